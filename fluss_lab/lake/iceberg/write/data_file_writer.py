"""The writer of a bucket's data files: row groups gathered, files rolled at the target size, with Iceberg's metrics.

A split of a log table is such files and nothing else, so its writer is here too. It runs in a task, maybe on another machine,
and knows only its context.
"""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.errors import UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.format_interfaces import LakeWriter, WriterInitContext
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.files.parquet_output import (
    Encodings,
    ParquetOutput,
    ParquetSettings,
    choose_encodings,
    data_file,
)
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult, WrittenSpan
from fluss_lab.lake.iceberg.write.write_target import BucketTarget
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS
from fluss_lab.model.values.required_fields import cast_column
from fluss_lab.records import LogRecords, concat_records

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile

#: A batch of fewer rows is small: what Arrow spends on it beside its values, some 0.5 kB a column, matters.
SMALL_ROWS: Final = 1024
#: So many small batches are copied together at a time: 1 to 2 MB of overhead of tiny ones.
SMALL_BATCHES_MAX: Final = 256


class RecordBuffer:
    """Runs of records in the order in which they were given. Used by one thread."""

    def __init__(self) -> None:
        self._runs: list[LogRecords] = []
        #: How many of the last runs are small.
        self._small = 0
        self.rows = 0
        self.size_bytes = 0

    def append(self, records: LogRecords) -> None:
        """Take records."""
        self._runs.append(records)
        self.rows += len(records)
        self.size_bytes += records.rows.nbytes
        self._small = self._small + 1 if len(records) < SMALL_ROWS else 0
        if self._small == SMALL_BATCHES_MAX:
            self._runs[-self._small :] = [concat_records(self._runs[-self._small :])]
            self._small = 0

    def take(self) -> list[LogRecords]:
        """Return what was gathered, at most a few small runs among it, and begin anew."""
        taken, self._runs = self._runs, []
        self._small = self.rows = self.size_bytes = 0
        return taken


#: Batches of fewer rows (on average) are copied together before they are cast and written, column by column.
CHUNK_ROWS_MIN: Final = 4096


class DataFileWriter:
    """Writes rows of one bucket into data files, ascending by offset. Used by one thread.

    A file that is finished is durable, with the folders by which it is found. A new file begins when one has reached
    ``write.target-file-size-bytes``. What is held in memory is a row group and the compressed pages of another.

    Args:
        io: Access to the lake's files.
        target: Where the bucket's files go and how they are called.
    """

    def __init__(self, io: FileIO, target: BucketTarget) -> None:
        self._io = io
        self._target = target
        self._settings = ParquetSettings.of(target.table.properties)
        self._schema = target.table.arrow_schema
        self._encodings: Encodings | None = None
        self._gathered = RecordBuffer()
        self._output: ParquetOutput | None = None
        self._written_rows = 0
        #: By file: the number of rows before it, and its location.
        self._begun: list[tuple[int, str]] = []
        self._files: list[DataFile] = []

    @property
    def begun(self) -> list[tuple[int, str]]:
        """Return, of every file that was begun, how many rows were written before it, and its location."""
        return self._begun

    def append(self, records: LogRecords) -> None:
        """Take rows of the table as planned, ascending by offset across calls.

        Raises:
            UnsupportedError: A value has no form in Iceberg (a time beyond microseconds of 64 bits).
            StorageError: A file cannot be written.
        """
        settings = self._settings
        rest: LogRecords | None = records
        while rest is not None:
            taken, rest = _cut(rest, settings.row_group_rows - self._gathered.rows)
            self._gathered.append(taken)
            if self._gathered.rows >= settings.row_group_rows or self._gathered.size_bytes >= settings.row_group_bytes:
                self.flush()

    def flush(self) -> None:
        """Write what is gathered as a row group; as several of even size when few rows are that big."""
        if not self._gathered.rows:
            return
        size_bytes = self._gathered.size_bytes
        self._write(lake_rows(self._target, self._schema, self._gathered.take()), size_bytes)

    def append_lake_rows(self, rows: pa.Table) -> None:
        """Take rows that have the lake's columns and types already, ascending by offset across calls.

        They become row groups of their own: give many at a time.

        Raises:
            StorageError: A file cannot be written.
        """
        self.flush()
        self._write(rows, rows.nbytes)

    def finish(self) -> tuple[DataFile, ...]:
        """Finish all files and return them, ascending by offset; without rows there are none.

        Raises:
            StorageError, UnsupportedError: As `append`.
        """
        self.flush()
        if self._output is not None:
            self._finish_file(self._output)
        return tuple(self._files)

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._gathered.take()
        if (output := self._output) is not None:
            self._output = None
            output.abort()
        for file in self._files:
            delete_quietly(self._io, file.file_path)
        self._files.clear()

    def _write(self, rows: pa.Table, size_bytes: int) -> None:
        edges = even_groups(len(rows), size_bytes, self._settings.row_group_rows, self._settings.row_group_bytes)
        for start, stop in pairwise(edges):
            group = rows.slice(start, stop - start)
            if self._output is None:
                self._output = self._new_file(group)
            self._output.write_group(group)
            self._written_rows += len(group)
            if self._output.size_bytes >= self._settings.file_bytes:
                self._finish_file(self._output)

    def _new_file(self, first_rows: pa.Table) -> ParquetOutput:
        """Begin a file; the first rows of the first one decide how all are encoded."""
        offset_name, timestamp_name = self._schema.names[-2:]
        if self._encodings is None:
            self._encodings = choose_encodings(first_rows, (offset_name, timestamp_name))
        first_offset = first_rows.column(offset_name)[0].as_py()
        location = self._target.location(f"o{first_offset:019d}-{uuid.uuid4().hex}")
        output = ParquetOutput(self._io, location, self._schema, self._settings, self._encodings)
        self._begun.append((self._written_rows, location))
        return output

    def _finish_file(self, output: ParquetOutput) -> None:
        finished = output.finish(self._target.table.location)
        self._output = None
        self._files.append(
            data_file(
                finished,
                self._target.table.statistics_plan,
                partition=self._target.place.record,
                spec_id=self._target.table.spec.spec_id,
                sort_order_id=self._target.table.sort_order_id,
            )
        )
        failpoint("lake.write.after_file")


class IcebergLakeWriter(LakeWriter[IcebergWriteResult]):
    """Writes the records of a log table's split into Parquet files of its bucket's partition, ascending by offset.

    A file that is finished is durable, with the folders by which it is found: the cluster may drop what is in it once
    it is committed. A new file begins when one has reached ``write.target-file-size-bytes``.
    """

    def __init__(self, context: WriterInitContext) -> None:
        target = BucketTarget.of_split(context)
        self._span = WrittenSpan(context)
        self._rows = DataFileWriter(target.table.file_io(), target)

    def write(self, records: LogRecords) -> None:
        """Take records of the bucket, ascending by offset across calls.

        Raises:
            InternalError: Their offsets do not ascend.
            UnsupportedError: A value has no form in Iceberg (a time beyond microseconds of 64 bits).
            StorageError: A file cannot be written.
        """
        self._span.add(records)
        self._rows.append(records)

    def complete(self) -> IcebergWriteResult:
        """Finish all files and return them; without records there are none.

        Raises:
            StorageError: A file cannot be written or made durable.
        """
        return self._span.result(files=self._rows.finish())

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._rows.abort()


def lake_rows(target: BucketTarget, schema: pa.Schema, gathered: list[LogRecords]) -> pa.Table:
    """Return records as rows of the lake: its types, bucket, offset and timestamp last.

    Args:
        target: The bucket they are of.
        schema: `WriteTarget.arrow_schema`, or the same columns under other names.
        gathered: The records, at least one, of the table as planned.

    Raises:
        UnsupportedError: A value has no form in Iceberg.
    """
    # Chunks of some size are written as fast as one whole, without the copy.
    runs = [concat_records(gathered)] if sum(map(len, gathered)) < CHUNK_ROWS_MIN * len(gathered) else gathered
    rows = pa.Table.from_batches([records.rows for records in runs])
    fields = list(schema)
    columns = []
    for column, field in zip(rows.columns, fields[: -len(SYSTEM_COLUMNS)], strict=True):
        try:
            columns.append(cast_column(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedError(
                f"{target.what}, offsets [{gathered[0].base_offset}, {gathered[-1].next_offset}): column "
                f"{rows.schema.field(len(columns)).name!r} holds a value that Iceberg's {field.type} cannot hold: {error}. "
                "It stays in the log, so no round can tier this bucket: read the table by `scan`, and write the rows that fit "
                "to another one"
            ) from error
    columns.append(pa.repeat(pa.scalar(target.bucket, pa.int32()), len(rows)))
    columns.append(pa.chunked_array([records.offsets for records in runs]))
    micros = [pa.array(records.timestamps_ms.to_numpy() * 1000) for records in runs]
    columns.append(pa.chunked_array([each.view(fields[-1].type) for each in micros]))
    return pa.Table.from_arrays(columns, schema=schema)


def even_groups(rows: int, size_bytes: int, rows_max: int, bytes_max: int) -> list[int]:
    """Return the edges of row groups of even length, none of which has more rows or (on average) bytes than allowed."""
    groups = max(-(-rows // rows_max), min(size_bytes // bytes_max, rows), 1)
    return [rows * number // groups for number in range(groups + 1)]


def _cut(records: LogRecords, count: int) -> tuple[LogRecords, LogRecords | None]:
    """Return the first records, up to a count, and the rest. No copy."""
    if len(records) <= count:
        return records, None
    head, tail = (slice(0, count), slice(count, len(records)))
    return (
        LogRecords(records.rows[head], records.offsets[head], records.timestamps_ms[head]),
        LogRecords(records.rows[tail], records.offsets[tail], records.timestamps_ms[tail]),
    )
