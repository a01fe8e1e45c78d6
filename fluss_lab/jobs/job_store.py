"""The jobs and runs of a lab: one SQLite file, which several processes write."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InternalError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.files import create_atomic, make_folder
from fluss_lab.jobs.run_record import ENDED, JobRecord, RunRecord
from fluss_lab.jobs.scheduling.due_plan import DuePlan
from fluss_lab.jobs.scheduling.retry_plan import plan_retry
from fluss_lab.model.format_versions import newer_text
from fluss_lab.model.json_codec import decode, encode

#: Of a lab's folder: the store, and a folder for each job.
JOBS_FOLDER: Final = "jobs"
STORE_FILE: Final = "jobs.db"
SCHEMA_VERSION: Final = 1
#: "fjob": distinguishes these files from other SQLite files.
APPLICATION_ID: Final = 0x666A6F62
#: Writers hold the file for milliseconds.
BUSY_TIMEOUT_S: Final = 20.0

#: States of runs that have not ended; a condition of an index, which SQLite uses where a query has the same words.
_PENDING: Final = "state IN ('queued', 'running')"
#: A record is its JSON; what is searched for stands beside it.
_TABLES: Final = f"""
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, record TEXT NOT NULL) STRICT;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, job TEXT NOT NULL COLLATE NOCASE, job_id INTEGER, due_ms INTEGER, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, record TEXT NOT NULL, UNIQUE (job_id, due_ms, attempt)
) STRICT;
CREATE INDEX runs_of_jobs ON runs (job);
CREATE INDEX runs_by_state ON runs (state) WHERE {_PENDING};
"""
_PASSING: Final = (
    "SQLITE_FULL",
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
    "SQLITE_PERM",
)
#: What is done about some of them.
_ACCESS: Final = "mend owner and mode of the file and the folders above it, or the disk"
_TODOS: Final = {
    "SQLITE_READONLY": "make the lab's folder writable",
    "SQLITE_FULL": "make room on its disk",
    "SQLITE_CANTOPEN": _ACCESS,
    "SQLITE_PERM": _ACCESS,
}
_REMEDY: Final = "restore it from a backup, or remove it: jobs and history are lost then, no table is"


class JobStore:
    """The jobs and runs of one lab. Safe in any thread and process; nothing is kept open between calls.

    Args:
        folder: The lab's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / JOBS_FOLDER
        self.path = self.folder / STORE_FILE

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> list[JobRecord]:
        """Return the jobs, sorted by name."""
        with self._read() as db:
            return [] if db is None else _jobs(db)

    def job(self, name: str) -> JobRecord:
        """Return a job.

        Raises:
            NotFoundError: There is none of that name; the text has those that are.
        """
        with self._read() as db:
            found = None if db is None else _job(db, name)
            if found is None:
                known = ", ".join(job.name for job in ([] if db is None else _jobs(db))) or "none"
                raise NotFoundError(
                    f"job {name!r}: there is none of that name in {self.path.parent.parent}; there are: {known}"
                )
            return found

    def job_of_run(self, run: RunRecord) -> JobRecord | None:
        """Return the job of a run; None: it has none, or that is gone."""
        with self._read() as db:
            return None if db is None else _job_of_run(db, run)

    def add_job(self, job: JobRecord, *, replaces: bool, now_ms: int | None = None) -> JobRecord:
        """Enter a job; its id is given here. Of one that it replaces queued runs are recorded as cancelled, and it stays paused.

        Raises:
            AlreadyExistsError: There is one of that name, and it is not to be replaced.
        """
        with self._write(makes_file=True) as db:
            present = _job(db, job.name)
            if present is not None and not replaces:
                raise AlreadyExistsError(
                    f"job {present.name!r} exists: remove it first, or replace it (replace=True, --replace)"
                )
            if present is not None:
                _cancel_queued(db, present, now_ms)
                _drop_job(db, present)
            entered = db.execute("INSERT INTO jobs (name, record) VALUES (?, '')", (job.name,))
            paused_ms = job.paused_ms if present is None else present.paused_ms
            made = replace(job, id=int(entered.lastrowid or 0), paused_ms=paused_ms)
            _put_job(db, made)
            return made

    def remove_job(self, name: str) -> JobRecord:
        """Remove a job and its queued runs; its history stays.

        Raises:
            NotFoundError: There is none.
        """
        job = self.job(name)
        with self._write() as db:
            _drop_job(db, job)
        return job

    def set_paused(self, name: str, now_ms: int, *, paused: bool) -> JobRecord:
        """Pause or resume a job. Twice is fine.

        Raises:
            NotFoundError: There is none.
        """
        self.job(name)
        with self._write() as db:
            job = _job(db, name)
            if job is None:
                raise NotFoundError(f"job {name!r}: removed meanwhile")
            if paused and job.paused_ms is None:
                job = replace(job, paused_ms=now_ms)
            elif not paused and job.paused_ms is not None:
                job = replace(job, paused_ms=None, resumed=(job.paused_ms, now_ms))
            _put_job(db, job)
            return job

    # -- runs ----------------------------------------------------------------------------------------------------------

    def runs(self, job: str | None = None, limit: int = 100, states: Iterable[str] = ()) -> list[RunRecord]:
        """Return runs, the last entered first.

        Args:
            job: Only of this job.
            limit: At most so many.
            states: Only in one of these; empty: in any.
        """
        query, values = runs_query(job, tuple(states))
        with self._read() as db:
            if db is None:
                return []
            return [_run_of(text) for (text,) in db.execute(query, [*values, limit])]

    def run(self, run_id: str) -> RunRecord:
        """Return a run.

        Raises:
            NotFoundError: There is none of that id.
        """
        with self._read() as db:
            found = None if db is None else _run(db, run_id)
        if found is None:
            place = shlex.quote(str(self.folder.parent))
            raise NotFoundError(
                f"run {run_id!r}: there is none of that id; `fluss-lab jobs history --folder {place}` lists them"
            )
        return found

    def add_run(self, run: RunRecord) -> None:
        """Enter a run."""
        with self._write(makes_file=True) as db:
            _put_run(db, run)

    def change_run(self, run_id: str, **changes: Any) -> RunRecord | None:
        """Change a run that has not ended; return it as it is now, None when it has ended or is gone."""
        with self._pending(run_id) as found:
            if found is None:
                return None
            db, run = found
            changed = replace(run, **changes)
            _put_run(db, changed)
            return changed

    def cancel_run(self, run_id: str, now_ms: int) -> RunRecord | None:
        """Have a run end; return it as it is now, None when it has ended or is gone. A queued one ends here, and never begins."""
        with self._pending(run_id) as found:
            if found is None:
                return None
            db, run = found
            changed = replace(run, is_cancelled=True)
            if run.state == "queued":
                changed = replace(changed, state="cancelled", error="cancelled", ended_ms=now_ms)
            _put_run(db, changed)
            return changed

    def end_run(self, run_id: str, *, can_pass: bool = True, **changes: Any) -> RunRecord | None:
        """End a run, at once with what its job's policies make of a failure: a retry is queued, or a notice is due.

        Args:
            run_id: The run's id.
            can_pass: Whether another attempt can do better.
            changes: Its last state, and what belongs to it.

        Returns:
            The run as it is now; None when it has ended already or is gone.
        """
        with self._pending(run_id) as found:
            if found is None:
                return None
            db, run = found
            ended = replace(run, **changes)
            job = None if run.is_by_hand else _job_of_run(db, run)
            retry = plan_retry(ended, job) if can_pass else None
            if retry is not None:
                _put_run(db, retry)
            elif ended.state == "failed" and job is not None and job.on_failure:
                ended = replace(ended, is_notice_due=True)
            _put_run(db, ended)
            return ended

    def note_notice(self, run_id: str) -> None:
        """Enter that the command for a run's failure was started."""
        with self._write() as db:
            run = _run(db, run_id)
            if run is not None:
                _put_run(db, replace(run, is_notice_due=False))

    def drop_runs(self, runs: Iterable[RunRecord]) -> None:
        """Remove runs from the history."""
        with self._write() as db:
            db.executemany("DELETE FROM runs WHERE id = ?", [(run.id,) for run in runs])

    def decide(self, job: JobRecord, plan: DuePlan, entries: Iterable[RunRecord]) -> bool:
        """Enter what was decided on a job's due times, at once with the time up to which it was.

        Returns:
            False when the job was changed meanwhile; nothing was entered.
        """
        with self._write() as db:
            if _job(db, job.name) != job:
                return False
            for run in entries:
                # Nothing twice: of a due time that was decided on before the clock was set back there is a run already.
                if not _has_run(db, run):
                    _put_run(db, run)
            _put_job(db, replace(job, next_due_ms=plan.next_due_ms))
            return True

    def bring_forward(self, job: JobRecord, now_ms: int, next_due_ms: int) -> None:
        """Have a job be due earlier: the clock was ahead, and is right now. What it missed in times to come goes.

        Nothing is done when the job was changed meanwhile.
        """
        with self._write() as db:
            if _job(db, job.name) == job:
                missed = "DELETE FROM runs WHERE job_id = ? AND state = 'missed' AND due_ms > ?"
                db.execute(missed, (job.id, now_ms))
                _put_job(db, replace(job, next_due_ms=next_due_ms))

    # -- the file ------------------------------------------------------------------------------------------------------

    def _is_there(self) -> bool:
        """Return whether there is such a file, whatever it is.

        Raises:
            StorageError: That cannot be seen.
        """
        try:
            self.path.lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(
                f"{self.path}: the jobs cannot be read or stored now: {error.strerror}; {_ACCESS}"
            ) from error
        return True

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection | None]:
        if not self._is_there():
            yield None
            return
        with self._opened() as db:
            yield db

    @contextmanager
    def _pending(self, run_id: str) -> Iterator[tuple[sqlite3.Connection, RunRecord] | None]:
        """Yield a run that has not ended, to be changed; None: it has ended, or is gone, perhaps with the file."""
        if not self._is_there():
            yield None
            return
        with self._write() as db:
            run = _pending_run(db, run_id)
            yield None if run is None else (db, run)

    @contextmanager
    def _write(self, *, makes_file: bool = False) -> Iterator[sqlite3.Connection]:
        if not self._is_there():
            if not makes_file:  # in a lab that was removed meanwhile nothing is made anew
                raise NotFoundError(f"{self.path}: removed meanwhile, with all jobs and runs that it had")
            self._make()
        with self._opened() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def _make(self) -> None:
        """Create the file at once with its tables: whoever finds it finds them."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            data = db.serialize()
        try:
            make_folder(self.folder)
            with suppress(FileExistsError):
                create_atomic(self.path, data)
        except OSError as error:
            raise StorageError(f"{self.path}: the jobs cannot be stored: {error.strerror or error}") from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self.path.is_symlink():
            raise StorageError(f"{self.path}: expected a file, found a link; no scheduler makes one: remove it")
        try:
            # A transaction that an error leaves open is rolled back by closing.
            with closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as db:
                if (version := _version(db)) > SCHEMA_VERSION:
                    raise UnsupportedError(newer_text(self.path, version, SCHEMA_VERSION))
                if version == 0:
                    raise CorruptDataError("it has no tables")
                yield db
        except CorruptDataError as error:  # also of a record that cannot be read
            raise CorruptDataError(f"{self.path}: damaged ({error}); {_REMEDY}") from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_CONSTRAINT"):
                raise InternalError(
                    f"{self.path}: a due time was to be entered twice ({error}); nothing was entered"
                ) from error
            if name.startswith(_PASSING):
                todo = next((f"; {todo}" for known, todo in _TODOS.items() if name.startswith(known)), "")
                raise StorageError(f"{self.path}: the jobs cannot be read or stored now: {error}{todo}") from error
            raise CorruptDataError(f"{self.path}: damaged ({error}); {_REMEDY}") from error


def runs_query(job: str | None, states: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the query of runs, and its values but the limit: of pending ones by their index, as schedulers ask several times a second."""
    conditions = [
        *(["job = ?"] if job is not None else []),
        *([f"state IN ({','.join('?' * len(states))})"] if states else []),
        *([_PENDING] if states and not set(states) & set(ENDED) else []),
    ]
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    query = f"SELECT record FROM runs {where}ORDER BY rowid DESC LIMIT ?"  # noqa: S608  no text of a caller
    return query, [*([] if job is None else [job]), *states]


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _jobs(db: sqlite3.Connection) -> list[JobRecord]:
    return [_job_of(text) for (text,) in db.execute("SELECT record FROM jobs ORDER BY name")]


def _job(db: sqlite3.Connection, name: str) -> JobRecord | None:
    row = db.execute("SELECT record FROM jobs WHERE name = ?", (name,)).fetchone()
    return None if row is None else _job_of(row[0])


def _job_of_run(db: sqlite3.Connection, run: RunRecord) -> JobRecord | None:
    row = db.execute("SELECT record FROM jobs WHERE id = ?", (run.job_id,)).fetchone()
    return None if row is None else _job_of(row[0])


def _job_of(text: str) -> JobRecord:
    return decode(JobRecord, text, "a job of the store")


def _put_job(db: sqlite3.Connection, job: JobRecord) -> None:
    db.execute("UPDATE jobs SET record = ? WHERE id = ?", (encode(job).decode(), job.id))


def _drop_job(db: sqlite3.Connection, job: JobRecord) -> None:
    db.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
    db.execute("DELETE FROM runs WHERE job_id = ? AND state = 'queued'", (job.id,))


def _cancel_queued(db: sqlite3.Connection, job: JobRecord, now_ms: int | None) -> None:
    rows = db.execute("SELECT record FROM runs WHERE job_id = ? AND state = 'queued'", (job.id,)).fetchall()
    for (text,) in rows:
        _put_run(
            db, replace(_run_of(text), state="cancelled", error="the job was replaced before it began", ended_ms=now_ms)
        )


def _run(db: sqlite3.Connection, run_id: str) -> RunRecord | None:
    row = db.execute("SELECT record FROM runs WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else _run_of(row[0])


def _pending_run(db: sqlite3.Connection, run_id: str) -> RunRecord | None:
    run = _run(db, run_id)
    return None if run is None or run.state in ENDED else run


def _run_of(text: str) -> RunRecord:
    return decode(RunRecord, text, "a run of the store")


def _has_run(db: sqlite3.Connection, run: RunRecord) -> bool:
    same = "SELECT 1 FROM runs WHERE job_id = ? AND due_ms = ? AND attempt = ?"
    return db.execute(same, (run.job_id, run.due_ms, run.attempt)).fetchone() is not None


def _put_run(db: sqlite3.Connection, run: RunRecord) -> None:
    db.execute(
        "INSERT INTO runs (id, job, job_id, due_ms, attempt, state, record) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
        (run.id, run.job, run.job_id, run.due_ms, run.attempt, run.state, encode(run).decode()),
    )


def parameter_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters as people read them."""
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())
