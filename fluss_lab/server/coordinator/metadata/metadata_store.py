"""The coordinator's metadata on disk: one SQLite file, one writer, every commit durable before it is answered."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, FlussError, InvalidError, LabError, StorageError, UnsupportedError
from fluss_lab.model.format_versions import newer_text
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.folder.disk_reserve import ADVICE, DiskReserve

log = logging.getLogger(__name__)

#: Version of the tables below. A file of a newer one is refused; an older one is brought up by `_MIGRATIONS`.
SCHEMA_VERSION: Final = 8
#: Of the lab's folder.
DATABASE_FILE: Final = "metadata.db"
#: "flab": distinguishes these files from other SQLite files.
APPLICATION_ID: Final = 0x666C6162
#: No other process writes the file, but a backup tool may lock it for a moment.
BUSY_TIMEOUT_S: Final = 10.0

#: Ids reserved at a time from a sequence that almost every call uses; 2**63 of them never run out.
BLOCK_IDS: Final = 1_000
#: SQLite's names for errors of the disk or of concurrent use: any other error while a file is opened means damage.
PASSING: Final = (
    "SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM",
    "SQLITE_NOMEM", "SQLITE_INTERRUPT",
)  # fmt: skip
_REMEDY: Final = "restore the file from a backup; `fluss-lab doctor` shows what else is known of the lab"

_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE sequences (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
CREATE TABLE databases (name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL) STRICT;
CREATE TABLE tables (
    table_id INTEGER PRIMARY KEY, database TEXT NOT NULL REFERENCES databases, name TEXT NOT NULL,
    schema_id INTEGER NOT NULL, descriptor TEXT NOT NULL, created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,
    UNIQUE (database, name)
) STRICT;
CREATE TABLE schemas (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, schema_id INTEGER NOT NULL, schema TEXT NOT NULL,
    PRIMARY KEY (table_id, schema_id)
) STRICT;
CREATE TABLE partitions (
    partition_id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    name TEXT NOT NULL, created_ms INTEGER NOT NULL, dropped_ms INTEGER,
    UNIQUE (table_id, name)
) STRICT;
CREATE TABLE assignments (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, partition_id INTEGER NOT NULL,
    leaders TEXT NOT NULL,
    PRIMARY KEY (table_id, partition_id)
) STRICT;
CREATE TABLE pending_stops (
    table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, leaders TEXT NOT NULL,
    PRIMARY KEY (table_id, partition_id)
) STRICT;
CREATE TABLE lake_tables (
    table_id INTEGER PRIMARY KEY, database TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL
) STRICT;
CREATE TABLE lake_snapshots (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, version INTEGER NOT NULL,
    snapshot_id INTEGER NOT NULL, committed_ms INTEGER NOT NULL,
    PRIMARY KEY (table_id, version)
) STRICT;
CREATE TABLE lake_offsets (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, partition_id INTEGER NOT NULL,
    bucket INTEGER NOT NULL, version INTEGER NOT NULL,
    start_offset INTEGER, end_offset INTEGER NOT NULL, max_timestamp INTEGER NOT NULL,
    PRIMARY KEY (table_id, partition_id, bucket, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE tiering (
    table_id INTEGER PRIMARY KEY REFERENCES tables ON DELETE CASCADE, state TEXT NOT NULL, epoch INTEGER NOT NULL,
    since_ms INTEGER NOT NULL, last_tiered_ms INTEGER, unfinished INTEGER NOT NULL, failures INTEGER NOT NULL,
    last_error TEXT
) STRICT;
"""

#: Key-value snapshots go with their buckets.
_KV_SNAPSHOTS: Final = """
CREATE TABLE kv_snapshots (
    table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL, snapshot_id INTEGER NOT NULL,
    log_offset INTEGER NOT NULL, completed TEXT NOT NULL,
    PRIMARY KEY (table_id, partition_id, bucket, snapshot_id),
    FOREIGN KEY (table_id, partition_id) REFERENCES assignments ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
"""

#: Partitions to be deleted from the lake too, and (done) those deleted: a late round may still report them.
_LAKE_PARTITION_DROPS: Final = """
CREATE TABLE lake_partition_drops (
    partition_id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    name TEXT NOT NULL, done INTEGER NOT NULL
) STRICT;
"""

#: Up to where the log of each bucket was on its server's device.
_BUCKET_OFFSETS: Final = """
CREATE TABLE bucket_offsets (
    table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL, durable_offset INTEGER NOT NULL,
    PRIMARY KEY (table_id, partition_id, bucket),
    FOREIGN KEY (table_id, partition_id) REFERENCES assignments ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
"""

#: Records lost with dropped partitions; the progress of automatic partitions.
_PARTITION_HISTORY: Final = """
CREATE TABLE partition_losses (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, partition_id INTEGER NOT NULL,
    name TEXT NOT NULL, from_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
    PRIMARY KEY (table_id, partition_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE auto_partition_marks (
    table_id INTEGER PRIMARY KEY REFERENCES tables ON DELETE CASCADE, present TEXT NOT NULL, dropped TEXT NOT NULL
) STRICT;
"""

#: The last rounds of each table; an error's code is 0 where the coordinator itself ended the round.
_TIERING_ROUNDS: Final = """
CREATE TABLE tiering_rounds (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, epoch INTEGER NOT NULL,
    started_ms INTEGER NOT NULL, ended_ms INTEGER, error_code INTEGER, error TEXT, idle_before INTEGER NOT NULL,
    row_count INTEGER, event_count INTEGER, files INTEGER, size_in_bytes INTEGER, splits INTEGER, snapshot_id INTEGER,
    is_limited INTEGER, plan_ms INTEGER, write_ms INTEGER, commit_ms INTEGER, maintain_ms INTEGER, total_ms INTEGER,
    records_before INTEGER, lag_ms_before INTEGER, records_after INTEGER, lag_ms_after INTEGER,
    PRIMARY KEY (table_id, epoch)
) STRICT, WITHOUT ROWID;
"""

#: The drops of partitions by which records were lost, and which: by bucket its offsets ``[start, stop)`` and last time, as JSON.
_LOSSY_DROPS: Final = """
CREATE TABLE lossy_drops (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE, number INTEGER NOT NULL,
    partition_id INTEGER NOT NULL, name TEXT NOT NULL, from_ms INTEGER NOT NULL, dropped_ms INTEGER NOT NULL,
    ranges TEXT NOT NULL,
    PRIMARY KEY (table_id, number)
) STRICT, WITHOUT ROWID;
"""

#: From a version to the next: SQL that brings the tables up.
_MIGRATIONS: Final[dict[int, str]] = {
    0: _TABLES,
    1: _KV_SNAPSHOTS,
    2: _LAKE_PARTITION_DROPS,
    3: _BUCKET_OFFSETS,
    4: _PARTITION_HISTORY,
    # The sums are made at the end of every migration.
    5: "",
    6: _TIERING_ROUNDS,
    7: _LOSSY_DROPS,
}


class MetadataStore:
    """An open metadata file. Any thread may use it; transactions run one after another.

    Args:
        path: The file; made when absent.
        reserve: Disk space for transactions that free some; None: no reserve.

    Attributes:
        reserve: The same.

    Raises:
        LabError: The file was written by a newer version.
        CorruptDataError: It is not a metadata file, or is damaged.
        StorageError: The disk refuses.
    """

    def __init__(self, path: Path, reserve: DiskReserve | None = None) -> None:
        self.path = path
        self.reserve = reserve or DiskReserve(path.parent, 0)
        self._lock = threading.RLock()
        self._depth = 0
        self._is_merged = False
        self._blocks: dict[str, Iterator[int]] = {}
        self._check_there()
        with self._known_errors(opening=True):
            if not path.exists():
                _make(path)
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _check_there(self) -> None:
        """Refuse what SQLite would take for a new file."""
        wal = self.path.with_name(f"{self.path.name}-wal")
        is_there = self.path.exists()
        if is_there and not self.path.stat().st_size:
            found = "an empty file"
        elif not is_there and wal.exists() and wal.stat().st_size:
            found = f"none, and {wal.name} beside it"
        else:
            return
        raise CorruptDataError(f"{self.path}: expected fluss_lab's metadata, found {found}; {_REMEDY}")

    def _open(self) -> None:
        # The owner of the file is checked first: a foreign or newer file is not changed.
        found, version = self._pragma("application_id"), self._pragma("user_version")
        if found != APPLICATION_ID:
            raise CorruptDataError(f"{self.path}: expected fluss_lab's metadata, found another SQLite file; {_REMEDY}")
        if version > SCHEMA_VERSION:
            raise LabError(newer_text(self.path, version, SCHEMA_VERSION))
        if (version == SCHEMA_VERSION or row_checksums.has_sums(self._db)) and (
            text := row_checksums.problem(self._db)
        ):
            raise CorruptDataError(f"{self.path}: the lab's metadata is damaged: {text}; {_REMEDY}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        row_checksums.prepare(self._db)
        _migrate(self._db, version)

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction: durable when the block ends, without any effect when it raises.

        A transaction within one belongs to the outer.

        Raises:
            StorageError: The disk refused; nothing was changed.
        """
        with self._lock, self._known_errors():
            if self._depth:
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield self._db
                self._db.execute("COMMIT")
                self._is_merged = False
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run queries that all see the same state."""
        with self._lock, self._known_errors():
            yield self._db

    def next_id(self, name: str, first: int = 0) -> int:
        """Return a number, from `first` up, that this sequence never returned before, in any run."""
        return self.next_ids(name, 1, first).start

    def next_ids(self, name: str, count: int, first: int = 0) -> range:
        """Return so many numbers, from `first` up, that this sequence never returned before, in any run."""
        with self.write() as db:
            row = db.execute(
                "INSERT INTO sequences VALUES (?, ?) ON CONFLICT DO UPDATE SET next = max(next, ?) + ? RETURNING next",
                (name, first + count, first, count),
            ).fetchone()
        return range(int(row[0]) - count, int(row[0]))

    def next_quick_id(self, name: str, first: int = 0) -> int:
        """Return what `next_id` does, mostly without a transaction.

        The file reserves a block of numbers at a time. Numbers of the block that a run does not use are never used.
        """
        with self._lock:
            if self._depth:
                return self.next_id(name, first)  # a block would outlive a transaction that is rolled back
            number = next(self._blocks.get(name, iter(())), None)
            if number is None:
                self._blocks[name] = iter(self.next_ids(name, BLOCK_IDS, first))
                number = next(self._blocks[name])
            return number

    def peek_id(self, name: str) -> int:
        """Return the number that `next_id` of a sequence would return now."""
        with self.read() as db:
            row = db.execute("SELECT next FROM sequences WHERE name = ?", (name,)).fetchone()
        return 1 if row is None else int(row[0])

    def meta(self, key: str) -> str | None:
        """Return a single value by its key."""
        with self.read() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def number(self, key: str) -> int | None:
        """Return a single value that is a whole number.

        Raises:
            CorruptDataError: It is not a whole number.
        """
        value = self.meta(key)
        with self.parse_guard(f"{key} in meta"):
            return None if value is None else int(value)

    def set_meta(self, key: str, value: str) -> None:
        """Set a single value."""
        with self.write() as db:
            db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value))

    def merge(self) -> None:
        """Merge what was committed from the write-ahead log into the file, unless that is done already.

        A lost or damaged write-ahead log then loses nothing. Called every second; commits are durable without it.
        On a full disk it is left for later.
        """
        with self._lock:
            if self._is_merged:
                return
            try:
                # Another process may read it, such as a backup: do not wait for it.
                self._db.execute("PRAGMA busy_timeout = 0")
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._is_merged = not busy
            except sqlite3.OperationalError as error:
                log.warning("event=metadata_not_merged file=%s error=%s", self.path, error)
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")

    def close(self) -> None:
        """Close the file; later calls fail."""
        with self._lock:
            self._db.close()

    @contextmanager
    def parse_guard(self, what: object) -> Iterator[None]:
        """Raise errors of the block, which parses rows, as damage of this file.

        Args:
            what: Which of its rows the block reads.

        Raises:
            CorruptDataError: It is nothing that fluss_lab writes.
            UnsupportedError: A newer version wrote it.
        """
        try:
            yield
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.path}: {what}: {error}") from error
        except (InvalidError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            said = str(error) if isinstance(error, InvalidError) else repr(error)
            raise CorruptDataError(
                f"{self.path}: {what}: expected what fluss_lab writes, found something else ({said}); {_REMEDY}"
            ) from error

    @contextmanager
    def _known_errors(self, *, opening: bool = False) -> Iterator[None]:
        try:
            yield
        except FlussError:
            raise
        except UnicodeDecodeError as error:
            # Raised for the text of an error itself.
            raise CorruptDataError(f"{self.path}: names in it are not text ({error}); {_REMEDY}") from error
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            is_damage = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or str(error).startswith(
                "Could not decode"
            )
            if is_damage or (opening and not name.startswith(PASSING)):
                raise CorruptDataError(f"{self.path}: {error}; {_REMEDY}") from error
            if isinstance(error, sqlite3.OperationalError):
                advice = f": {ADVICE}" if name == "SQLITE_FULL" else ""
                raise StorageError(f"{self.path}: {error}{advice}") from error
            raise


def _make(path: Path) -> None:
    """Make a file, whole and durable at once: there never is an empty one that a crash left."""
    made = path.with_name(f"{path.name}-new")
    made.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(made, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            row_checksums.prepare(db)
            _migrate(db, 0)
        files.replace(made, path)
    except OSError as error:
        raise StorageError(f"{path}: the lab's metadata cannot be made: {error}") from error


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring the tables of a version up, all at once: a crash leaves the old version or the new one."""
    if version == SCHEMA_VERSION:
        return
    steps = " ".join(_MIGRATIONS[step] for step in range(version, SCHEMA_VERSION))
    try:
        db.executescript(
            f"BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        )
        row_checksums.begin(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
