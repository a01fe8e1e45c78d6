"""The journal of a sink in its folder, by which any process goes on where another one died.

``sink.json`` says which batch is done; ``intent.json`` says what the batch under way is made of, and under which numbers
its parts are sent; ``progress.json`` says how far it got. Each is replaced whole. ``staged`` holds the rows.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fluss_lab.errors import CorruptDataError, StorageError, UnavailableError
from fluss_lab.files import make_folder, try_lock, write_json_atomic
from fluss_lab.model import TableBucket
from fluss_lab.model.json_codec import Whole, check_checksum, decode, to_plain, with_checksum

T = TypeVar("T")

log = logging.getLogger(__name__)

_VERSION: Final = 1
NO_BATCH: Final = -1
#: Spark's number of a query's first batch; it leaves none out.
FIRST_BATCH: Final = 0
_REMEDY: Final = (
    "not what a sink wrote; restore the folder with the query's checkpoint from a backup, or start a new query, with a new checkpoint, behind what the "
    "table has"
)
_LOCK_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of a sink.

    Attributes:
        table_id: The table that it writes to.
        query: Id of the streaming query whose batches it has; empty for a single batch.
        done: The last batch that was written whole; -1 for none.
        writers: By bucket: the writer id of its batches, and the number of the next one.
        created_ms: When the table was made: one of a lab whose folder was made anew may have the same id. None: an older
            release wrote the notes.
        extent: Of the last batch, as in `Intent`.
        writer_id: Under whose numbers buckets are written that have had no batch; decided with the first one, also of no
            rows: in a copy of these notes it is the same. None: an older release wrote the notes.
    """

    table_id: int
    query: str
    done: int = NO_BATCH
    writers: Mapping[TableBucket, tuple[int, int]] = field(default_factory=dict)
    created_ms: int | None = None
    extent: str | None = None
    writer_id: int | None = None


@dataclass(frozen=True, slots=True)
class IntentBucket:
    """What a batch has for one bucket.

    Attributes:
        bucket: Which.
        partition: Name of its partition.
        writer_id: Under whose numbers it is sent, at first.
        sequence: The number of its first part.
        log_end: No part of it lies before this offset of the bucket's log.
        runs: Place of each run of rows: number of the file, number of the record batch, rows.
    """

    bucket: TableBucket
    partition: str | None
    writer_id: int
    sequence: int
    log_end: int
    runs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Intent:
    """What a batch is made of; once it is journalled, this is the batch, whatever tasks stage later.

    Attributes:
        batch_id: Spark's number of the batch.
        schema_id: Of the table's schema that the rows have.
        targets: Columns of a partial update; None: all.
        files: Name and bytes of each staged file.
        buckets: What goes where.
        table_id: The table that it is for: there may be no `SinkState` yet. None: an older release wrote the notes.
        created_ms: When that table was made, as in `SinkState`.
        extent: Stands for what Spark's checkpoint says of how far the batch goes: a batch of the same number that goes elsewhere
            is another one. None: that is not known, or an older release wrote the notes.
    """

    batch_id: int
    schema_id: int
    targets: tuple[str, ...] | None
    files: tuple[tuple[str, int], ...]
    buckets: tuple[IntentBucket, ...]
    table_id: int | None = None
    created_ms: int | None = None
    extent: str | None = None


@dataclass(frozen=True, slots=True)
class SendPosition:
    """How far one bucket's part of a batch was sent, and how the next rows are numbered.

    Attributes:
        run: The next run.
        row: The first row of it that is left.
        rows_max: Rows of it to send at once, where the server found more too large; 0: all that are left.
        writer_id: Under whose numbers.
        sequence: The next number.
        log_end: What is not sent yet, or not known to be there, lies at this offset of the bucket's log or behind.
    """

    run: int
    row: int
    rows_max: int
    writer_id: int
    sequence: int
    log_end: int

    @staticmethod
    def first(bucket: IntentBucket) -> SendPosition:
        """Return where a bucket's part begins."""
        return SendPosition(0, 0, 0, bucket.writer_id, bucket.sequence, bucket.log_end)

    def advance(self, rows: int, run_rows: int, sequence: int, log_end: int) -> SendPosition:
        """Return the position when some rows of the run are in the log."""
        at = self.row + rows
        moved = replace(self, sequence=sequence, log_end=max(self.log_end, log_end))
        return replace(moved, row=at) if at < run_rows else replace(moved, run=self.run + 1, row=0, rows_max=0)


class _State(msgspec.Struct):
    """``sink.json``. Of writers: partition id, bucket, writer id, next number."""

    table_id: Whole
    query: str
    done: int
    writers: list[tuple[int | None, int, int, int]]
    created_ms: Whole | None = None
    extent: str | None = None
    writer_id: Whole | None = None


class _Intent(msgspec.Struct):
    """``intent.json``. Of buckets: partition id, partition, bucket, writer id, number, end of the log, runs."""

    batch_id: int
    schema_id: int
    files: tuple[tuple[str, int], ...]
    buckets: list[tuple[int | None, str | None, int, int, int, int, tuple[tuple[int, int, int], ...]]]
    targets: tuple[str, ...] | None
    table_id: Whole | None = None
    created_ms: Whole | None = None
    extent: str | None = None


class _Progress(msgspec.Struct):
    """``progress.json``. Of positions: see `SendPosition`."""

    batch_id: int
    positions: list[tuple[int, int, int, int, int, int]]


class SinkFolder:
    """A sink's folder. What changes it is called under `locked`.

    Args:
        path: Where; on a file system that driver and tasks share, with POSIX renames and locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.staged = path / "staged"

    def make(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            StorageError: The disk refused.
        """
        try:
            make_folder(self.staged)
        except OSError as error:
            raise StorageError(
                f"{self.path}: the folder of a sink cannot be made: {error.strerror or error}"
            ) from error

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Hold the folder's lock while the block runs. The lock of a process that dies is released.

        Raises:
            UnavailableError: Another process has not left in time.
        """
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
            while not try_lock(fd):
                if time.monotonic() > deadline_s:
                    raise UnavailableError(
                        f"{self.path}: another process has been writing for {timeout_s:g} s; two queries must not have one "
                        "checkpoint, and the process of a killed query ends on its own"
                    )
                pause.wait(_LOCK_LOOK_S)
            yield
        finally:
            os.close(fd)

    # -- records -------------------------------------------------------------------------------------------------------

    def state(self) -> SinkState | None:
        """Return the state of the sink; None for a new one."""
        if (found := self._read(_State, "sink.json")) is None:
            return None
        writers = {
            TableBucket(found.table_id, partition_id, number): (writer_id, sequence)
            for partition_id, number, writer_id, sequence in found.writers
        }
        return SinkState(
            found.table_id, found.query, found.done, writers, found.created_ms, found.extent, found.writer_id
        )

    def write_state(self, state: SinkState) -> None:
        """Replace the state of the sink."""
        writers = [(each.partition_id, each.bucket, *found) for each, found in state.writers.items()]
        value = _State(
            state.table_id, state.query, state.done, writers, state.created_ms, state.extent, state.writer_id
        )
        self._write("sink.json", value)

    def intent(self, table_id: int) -> Intent | None:
        """Return the batch under way; None when there is none."""
        if (found := self._read(_Intent, "intent.json")) is None:
            return None
        buckets = tuple(
            IntentBucket(TableBucket(table_id, partition_id, number), partition, writer_id, sequence, log_end, runs)
            for partition_id, partition, number, writer_id, sequence, log_end, runs in found.buckets
        )
        return Intent(
            found.batch_id, found.schema_id, found.targets, found.files, buckets, found.table_id, found.created_ms,
            found.extent,
        )  # fmt: skip

    def write_intent(self, intent: Intent) -> None:
        """Write down what a batch is made of."""
        buckets = [
            (each.bucket.partition_id, each.partition, each.bucket.bucket, each.writer_id, each.sequence, each.log_end,
             each.runs)
            for each in intent.buckets
        ]  # fmt: skip
        value = _Intent(
            intent.batch_id, intent.schema_id, intent.files, buckets, intent.targets, intent.table_id, intent.created_ms,
            intent.extent,
        )  # fmt: skip
        self._write("intent.json", value)

    def positions(self, intent: Intent) -> list[SendPosition]:
        """Return how far each bucket's part of a batch is known to be sent."""
        found = self._read(_Progress, "progress.json")
        if found is None or found.batch_id != intent.batch_id:
            return [SendPosition.first(each) for each in intent.buckets]
        if len(found.positions) != len(intent.buckets):
            raise CorruptDataError(
                f"{self.path / 'progress.json'}: {len(found.positions)} positions, expected {len(intent.buckets)}; {_REMEDY}"
            )
        return [SendPosition(*numbers) for numbers in found.positions]

    def write_positions(self, intent: Intent, positions: Iterable[SendPosition]) -> None:
        """Write down how far a batch was sent. Not made durable: the log itself is read where more was sent than noted."""
        numbers = [(p.run, p.row, p.rows_max, p.writer_id, p.sequence, p.log_end) for p in positions]
        self._write("progress.json", _Progress(intent.batch_id, numbers), durable=False)

    def clear(self, batch_id: int) -> None:
        """Remove what a batch that is done, or those before it, left."""
        for name in ("intent.json", "progress.json"):
            (self.path / name).unlink(missing_ok=True)
        for path in self.staged.iterdir():
            number, _, _ = path.name.rpartition("-")
            if number.lstrip("-").isdecimal() and int(number) <= batch_id:
                path.unlink(missing_ok=True)

    def abandon(self, names: Iterable[str], timeout_s: float) -> None:
        """Remove staged files of a batch that failed, but for those that it was written down with: it will be gone on with.

        When another process works here, nothing is removed; what is left goes with the batch.
        """
        try:
            with self.locked(timeout_s):
                intent = self.intent(0)
                kept = set() if intent is None else {name for name, _ in intent.files}
                self.remove(set(names) - kept)
        except (UnavailableError, CorruptDataError) as error:
            log.warning("event=staged_rows_left folder=%s reason=%s", self.path, error)

    def remove(self, names: Iterable[str]) -> None:
        """Remove staged files that are not needed."""
        for name in names:
            if name:
                (self.staged / name).unlink(missing_ok=True)

    def _read(self, kind: type[T], name: str) -> T | None:
        path = self.path / name
        try:
            data = path.read_bytes()
            found = decode(kind, data, path, version=_VERSION, remedy=_REMEDY)
            # A changed digit would have whole batches taken for written.
            check_checksum(path, json.loads(data))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CorruptDataError(f"{path}: {error!r}; {_REMEDY}") from error
        return found

    def _write(self, name: str, value: msgspec.Struct, *, durable: bool = True) -> None:
        plain = with_checksum(to_plain(value, version=_VERSION))
        try:
            write_json_atomic(self.path / name, plain, durable=durable)
        except OSError as error:
            raise StorageError(
                f"{self.path / name}: the note of a batch cannot be written: {error.strerror or error}; a stream that is "
                "started again goes on where it was, with each row once"
            ) from error
