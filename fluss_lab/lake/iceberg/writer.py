"""The writer of one split: log records in, Parquet files with Iceberg's metrics out.

It runs in a task, maybe on another machine, and knows only its context. Records are gathered to row groups; what it
holds in memory is one of them and the compressed pages of the file's present one.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile

from fluss_lab.errors import FlussError, InternalError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.io import delete_quietly, native_stream, storage_error, sync_data_folders
from fluss_lab.lake.iceberg.metrics import StatisticsPlan, data_file
from fluss_lab.lake.iceberg.parquet import Encodings, ParquetSettings, choose_encodings
from fluss_lab.lake.iceberg.results import IcebergWriteResult
from fluss_lab.lake.iceberg.target import WriteTarget
from fluss_lab.lake.iceberg.types import arrow_field
from fluss_lab.lake.interfaces import LakeWriter, WriterInitContext
from fluss_lab.records import LogRecords

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    location: str
    stream: Any
    parquet: Any


class IcebergLakeWriter(LakeWriter[IcebergWriteResult]):
    """Writes a split's records into Parquet files of its bucket's partition, ascending by offset.

    A file that is finished is durable, with the folders by which it is found: the cluster may drop what is in it once
    it is committed. A new file begins when one has reached ``write.target-file-size-bytes``.
    """

    def __init__(self, context: WriterInitContext) -> None:
        self._context = context
        self._target = WriteTarget.from_json(context.lake_table)
        self._settings = ParquetSettings.of(self._target.properties)
        self._schema = pa.schema([arrow_field(field) for field in self._target.schema.fields])
        self._io = self._target.file_io()
        self._locations = self._target.locations()
        self._place = self._target.place(context.partition, context.bucket.bucket)
        self._plan = StatisticsPlan(
            compute_statistics_plan(self._target.schema, dict(self._target.properties)),
            parquet_path_to_id_mapping(self._target.schema),
        )
        self._encodings: Encodings | None = None
        self._gathered: list[LogRecords] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._open: _OpenFile | None = None
        self._files: list[DataFile] = []
        self._start_offset: int | None = None
        self._end_offset = 0
        self._max_timestamp_ms = -1

    def write(self, records: LogRecords) -> None:
        """Take records of the bucket, ascending by offset across calls.

        Raises:
            InternalError: Their offsets do not ascend.
            UnsupportedError: A value has no form in Iceberg (a time beyond microseconds of 64 bits).
            StorageError: A file cannot be written.
        """
        if self._start_offset is None:
            self._start_offset = self._end_offset = records.base_offset
        if records.base_offset < self._end_offset:
            raise InternalError(
                f"split {self._context.split_index} of {self._context.bucket}: expected offsets from {self._end_offset}, "
                f"found {records.base_offset}"
            )
        self._end_offset = records.next_offset
        self._max_timestamp_ms = int(records.timestamps_ms[-1].as_py())
        rest: LogRecords | None = records
        while rest is not None:
            taken, rest = _cut(rest, self._settings.row_group_rows - self._gathered_rows)
            self._gathered.append(taken)
            self._gathered_rows += len(taken)
            self._gathered_bytes += taken.rows.nbytes
            if (
                self._gathered_rows >= self._settings.row_group_rows
                or self._gathered_bytes >= self._settings.row_group_bytes
            ):
                self._flush()

    def complete(self) -> IcebergWriteResult:
        """Finish all files and return them; without records there are none.

        Raises:
            StorageError: A file cannot be written or made durable.
        """
        self._flush()
        if self._open is not None:
            self._finish_file()
        context = self._context
        start = 0 if self._start_offset is None else self._start_offset
        return IcebergWriteResult(
            context.table.table_id,
            context.partition,
            context.bucket.bucket,
            start,
            self._end_offset,
            self._max_timestamp_ms,
            tuple(self._files),
        )

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._gathered.clear()
        if (file := self._open) is not None:
            self._open = None
            for end in (file.parquet.close, file.stream.close):
                _quietly(end)
            delete_quietly(self._io, file.location)
        for finished in self._files:
            delete_quietly(self._io, finished.file_path)
        self._files.clear()

    def _flush(self) -> None:
        """Write what is gathered as a row group; as several of even size when few rows are that big."""
        if not self._gathered:
            return
        rows = self._rows()
        size = -(-len(rows) // max(self._gathered_bytes // self._settings.row_group_bytes, 1))
        self._gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0
        for start in range(0, len(rows), size):
            self._write_group(rows.slice(start, size))

    def _rows(self) -> pa.Table:
        """Return the gathered records as the table's columns in the lake: its types, system columns last."""
        gathered = self._gathered
        rows = pa.Table.from_batches([records.rows for records in gathered]).combine_chunks()
        offsets = pa.chunked_array([records.offsets for records in gathered]).combine_chunks()
        millis = np.concatenate([records.timestamps_ms.to_numpy() for records in gathered])
        fields = list(self._schema)
        columns = [self._cast(column, field) for column, field in zip(rows.columns, fields[:-3], strict=True)]
        columns.append(pa.repeat(pa.scalar(self._context.bucket.bucket, pa.int32()), len(rows)))
        columns.append(offsets)
        columns.append(pa.array(millis * 1000).view(fields[-1].type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _cast(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            context = self._context
            raise UnsupportedError(
                f"table {context.table.path}, bucket {context.bucket.bucket}, offsets "
                f"[{self._gathered[0].base_offset}, {self._end_offset}): column {field.name!r} holds a value that Iceberg's "
                f"{field.type} cannot hold: {error}"
            ) from error

    def _write_group(self, rows: pa.Table) -> None:
        if self._open is None:
            self._open = self._new_file(rows)
        file = self._open
        try:
            file.parquet.write_table(rows, row_group_size=len(rows))
            is_full = file.stream.tell() >= self._settings.file_bytes
        except OSError as error:
            raise storage_error(f"lake file {file.location}", error) from error
        if is_full:
            self._finish_file()

    def _new_file(self, first_rows: pa.Table) -> _OpenFile:
        """Begin a file; the first rows of the first one decide how all are encoded."""
        offset_name, timestamp_name = self._schema.names[-2:]
        if self._encodings is None:
            self._encodings = choose_encodings(first_rows, (offset_name, timestamp_name))
        context = self._context
        name = (
            f"{re.sub(r'[^A-Za-z0-9_-]', '_', context.round_id)}-b{context.bucket.bucket:05d}-s{context.split_index:05d}"
            f"-o{first_rows.column(offset_name)[0].as_py():019d}-{uuid.uuid4().hex}.parquet"
        )
        location = self._locations.new_data_location(name, self._place)
        try:
            stream = self._io.new_output(location).create()
        except OSError as error:
            raise storage_error(f"lake file {location}", error) from error
        arguments = self._settings.writer_arguments(self._encodings)
        return _OpenFile(location, stream, pq.ParquetWriter(native_stream(stream), self._schema, **arguments))

    def _finish_file(self) -> None:
        file = self._open
        assert file is not None
        try:
            file.parquet.close()
            size_bytes = file.stream.tell()
            file.stream.close()
            sync_data_folders(file.location, self._target.location)
        except OSError as error:
            raise storage_error(f"lake file {file.location}", error) from error
        self._open = None
        self._files.append(
            data_file(
                file.location,
                size_bytes,
                file.parquet.writer.metadata,
                self._plan,
                partition=self._place.record,
                spec_id=self._target.spec.spec_id,
                sort_order_id=self._target.sort_order_id,
            )
        )
        failpoint("lake.write.after_file")


def _cut(records: LogRecords, count: int) -> tuple[LogRecords, LogRecords | None]:
    """Return the first records, up to a count, and the rest. No copy."""
    if len(records) <= count:
        return records, None
    head, tail = (slice(0, count), slice(count, len(records)))
    return (
        LogRecords(records.rows[head], records.offsets[head], records.timestamps_ms[head]),
        LogRecords(records.rows[tail], records.offsets[tail], records.timestamps_ms[tail]),
    )


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except (OSError, pa.ArrowException, ValueError, FlussError) as error:
        _LOG.debug("while giving up a file: %s", error)
