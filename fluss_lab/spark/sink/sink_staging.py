"""Rows of a task in a file, cut as they will be sent: a record batch for each run of rows of one bucket."""

from __future__ import annotations

import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.write.row_routing import Router
from fluss_lab.errors import CorruptDataError, RecordTooLargeError, StorageError
from fluss_lab.files import fsync_folder, fsync_path
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.names import BucketKey
from fluss_lab.records.row_sizes import RowLimit
from fluss_lab.spark.sink.sink_rows import RowForm

#: A run goes into the file when it has so many bytes: what a writer joins into one batch of the log.
RUN_BYTES: Final = 1 << 20
#: Rows that wait for more of their bucket, over all buckets; beyond, the file gets them as they are.
HELD_BYTES: Final = 32 << 20
#: Files of one batch that are open at once.
_OPEN_FILES_MAX: Final = 64


class StagedRun(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one bucket: a record batch of a file.

    Attributes:
        writes: How many of them are not deletes.
    """

    partition: str | None
    bucket: int
    rows: int
    writes: int


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """What a task wrote: the name of its file (empty: there were no rows), its bytes, and its record batches in order."""

    name: str
    size_bytes: int
    schema_id: int
    runs: tuple[StagedRun, ...]

    def to_json(self) -> str:
        """Return the file as text: what a task sends to the driver."""
        return encode(self).decode()

    @staticmethod
    def from_json(text: str) -> StagedFile:
        """Read what `to_json` gave.

        Raises:
            CorruptDataError: The text is not that.
        """
        return decode(StagedFile, text, "staged rows of a task", shown=True)


class Stager:
    """Writes the rows of one task into a file. Memory: `HELD_BYTES` and a batch of the input.

    Args:
        folder: Where; it must be there.
        form: How rows become those of the table.
        batch_id: Of the stream's batch, for the file's name: by it leftovers are known.
        turn: The bucket to begin with, where no key decides it; any number.
        row_limit: The largest row that the cluster takes.
    """

    def __init__(self, folder: Path, form: RowForm, batch_id: int, turn: int, row_limit: RowLimit) -> None:
        self._folder = folder
        self._form = form
        self._name = f"{batch_id}-{uuid.uuid4().hex}.arrow"
        self._router = Router(form.info.descriptor, turn)
        self._row_limit = row_limit
        self._held: defaultdict[BucketKey, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes: defaultdict[BucketKey, int] = defaultdict(int)
        self._total = 0
        self._runs: list[StagedRun] = []
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of the frame.

        Raises:
            InvalidRecordError, InvalidPartitionError, UnsupportedError: They do not fit the table.
            RecordTooLargeError: One row is larger than the cluster takes.
            StorageError: The disk refused.
        """
        for rows in self._form.convert(batch):
            for run in self._router.route([rows]):
                key = (run.partition, run.bucket)
                self._held[key].append(run.rows)
                self._bytes[key] += run.rows.nbytes
                self._total += run.rows.nbytes
                if self._bytes[key] >= RUN_BYTES:
                    self._write(key)
        if self._total >= HELD_BYTES:
            self._write_all()

    def close(self) -> StagedFile:
        """Write what is held, and return the file: whole, and on the device.

        Raises:
            StorageError: The disk refused.
        """
        self._write_all()
        if self._writer is None:
            return StagedFile("", 0, self._form.info.schema_id, ())
        path = self._folder / self._name
        with self._disk_errors():
            self._writer.close()
            fsync_path(path)
            fsync_folder(self._folder)
            size = path.stat().st_size
        return StagedFile(self._name, size, self._form.info.schema_id, tuple(self._runs))

    def discard(self) -> None:
        """Remove what was written."""
        with suppress(OSError):  # a full disk takes no end of the file either
            if self._writer is not None:
                self._writer.close()
        (self._folder / self._name).unlink(missing_ok=True)

    def _write_all(self) -> None:
        for key in list(self._held):
            self._write(key)

    def _write(self, key: BucketKey) -> None:
        rows = pa.concat_batches(self._held.pop(key))
        self._total -= self._bytes.pop(key)
        if self._writer is None:
            with self._disk_errors():
                self._writer = pa.ipc.new_file(str(self._folder / self._name), self._form.schema)
        for piece in self._cut(rows):
            with self._disk_errors():
                self._writer.write_batch(piece)
            self._runs.append(StagedRun(*key, piece.num_rows, self._write_rows(piece)))

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError(
                f"write to {self._form.info.path}: what was staged in {self._folder} is gone: a second query has the same checkpoint, "
                "which two must not have, or another program removed it; nothing of the batch was sent by this one"
            ) from error
        except OSError as error:
            raise StorageError(
                f"write to {self._form.info.path}: rows cannot be staged in {self._folder}: {error.strerror or error}; nothing "
                "of the batch was sent: make room there"
            ) from error

    def _write_rows(self, rows: pa.RecordBatch) -> int:
        if not self._form.keyed:
            return int(rows.num_rows)
        return int(pc.sum(pc.equal(rows.column(rows.num_columns - 1), int(ChangeType.UPDATE_AFTER))).as_py())

    def _cut(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows in runs of about `RUN_BYTES`."""
        size = rows.nbytes
        if rows.num_rows == 1:
            self._check_row(rows)
        if rows.num_rows == 1 or size < 2 * RUN_BYTES:
            yield rows
            return
        count = min(rows.num_rows, size // RUN_BYTES)
        edges = [rows.num_rows * index // count for index in range(count + 1)]
        for start, stop in pairwise(edges):
            yield from self._cut(rows.slice(start, stop - start))

    def _check_row(self, row: pa.RecordBatch) -> None:
        try:
            self._row_limit.check(row)
        except RecordTooLargeError as error:
            raise RecordTooLargeError(f"write to {self._form.info.path}: {error}; nothing was sent") from error


class StagedRows:
    """The rows of staged files, record batch by record batch. Files are mapped, not read: memory is what is looked at.

    Args:
        files: Name and bytes of each.
        keyed: Whether rows have a change type behind them.
    """

    def __init__(self, folder: Path, files: list[tuple[str, int]], *, keyed: bool) -> None:
        self._folder = folder
        self._files = files
        self._keyed = keyed
        self._open: OrderedDict[int, Any] = OrderedDict()

    def rows(self, file: int, batch: int, start: int, stop: int) -> tuple[pa.RecordBatch, bytes | None]:
        """Return rows of a record batch, and what is done with each.

        Raises:
            CorruptDataError: The file is missing, or is not what was written.
        """
        try:
            found = self._reader(file).get_batch(batch)
            found.validate(full=True)
        except (OSError, pa.ArrowException, IndexError) as error:
            name, size = self._files[file]
            raise CorruptDataError(f"{self._folder / name}: expected {size} bytes of staged rows: {error}") from error
        rows = found.slice(start, stop - start)
        if not self._keyed:
            return rows, None
        body = rows.select(rows.schema.names[:-1])
        return body, rows.column(rows.num_columns - 1).to_numpy().tobytes()

    def _reader(self, file: int) -> Any:
        if file in self._open:
            self._open.move_to_end(file)
            return self._open[file]
        name, size = self._files[file]
        if (found := (self._folder / name).stat().st_size) != size:
            raise OSError(f"found {found} bytes")
        if len(self._open) >= _OPEN_FILES_MAX:
            self._open.popitem(last=False)
        reader = self._open[file] = pa.ipc.open_file(pa.memory_map(str(self._folder / name)))
        return reader
