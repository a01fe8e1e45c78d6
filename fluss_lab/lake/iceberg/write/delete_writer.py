"""Delete files written: events gathered, placed where the rows are that they end, sorted by file and position.

Their form is that of `delete_schema`. Memory is bounded: so many events are gathered and written; then the next.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.files.parquet_output import (
    FinishedParquet,
    ParquetOutput,
    ParquetSettings,
    StatisticsPlan,
    choose_encodings,
    data_file,
)
from fluss_lab.lake.iceberg.write.data_file_writer import RecordBuffer, even_groups, lake_rows
from fluss_lab.lake.iceberg.write.delete_schema import (
    CHANGE_TYPE_COLUMN,
    CHANGE_TYPE_ID,
    NO_PATH,
    NO_POSITION,
    PATH_ID,
    POSITION_ID,
    PREVIOUS_OFFSET_COLUMN,
    PREVIOUS_OFFSET_ID,
    SYMBOL_TYPE,
    change_symbols,
    conform_events,
    delete_schema,
    equality_schema,
    event_fields,
    field_id_of,
    read_events,
)
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile, RowLocator
from fluss_lab.lake.iceberg.write.write_target import BucketTarget, WriteTarget
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

#: Instead of the index of a file: the event's row is in no file, so it is deleted by its key,
BY_KEY: Final = -1
#: or where the row is will be known when all files of the round are.
PLACED_LATER: Final = -2
#: So much is gathered before it is sorted and written. It is held twice for a moment, so one writer takes some 200 MB.
EVENTS_MAX: Final = 1_000_000
EVENT_BYTES_MAX: Final = 96 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where the rows are that some events end.

    Attributes:
        paths: Data files.
        file_of: int32; for each event the index of its row's file among `paths`, or `BY_KEY`, or `PLACED_LATER`.
        positions: int64; for each event the position of its row in that file.
    """

    paths: Sequence[str]
    file_of: NDArray[np.int32]
    positions: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """What a `DeleteFileWriter` wrote.

    Attributes:
        placed: Position-delete files, and equality-delete files.
        unplaced: Files of events that are to be placed.
    """

    placed: tuple[DataFile, ...]
    unplaced: tuple[DataFile, ...]


class DeleteFileWriter:
    """Writes events of one bucket into delete files. Used by one thread.

    Args:
        io: Access to the lake's files.
        target: Where the bucket's files go and how they are called.
        place: Returns where the rows of some offsets are; called once each time events are written.
    """

    def __init__(self, io: FileIO, target: BucketTarget, place: Callable[[NDArray[np.int64]], RowPlaces]) -> None:
        self._io = io
        self._target = target
        self._place = place
        self._settings = ParquetSettings.of_deletes(target.table.properties)
        schema = target.table.schema
        self._events = pa.schema(event_fields(schema, SYMBOL_TYPE))
        self._position_schema = delete_schema(schema, pa.dictionary(pa.int32(), pa.string()), SYMBOL_TYPE)
        self._equality_schema = equality_schema(schema, SYMBOL_TYPE)
        offset_id, timestamp_id = (field.field_id for field in schema.fields[-2:])
        self._ascending = {POSITION_ID, PREVIOUS_OFFSET_ID, offset_id, timestamp_id}
        self._gathered = RecordBuffer()
        self._tables: list[pa.Table] = []
        self._tables_bytes = 0
        self._output: ParquetOutput | None = None
        self._placed: list[DataFile] = []
        self._unplaced: list[DataFile] = []

    def append(self, records: LogRecords) -> None:
        """Take ``-U`` and ``-D`` records with their previous offsets.

        Raises:
            UnsupportedError: A value has no form in Iceberg.
            StorageError: A file cannot be written.
            CorruptDataError, CommitConflictError: As `RowLocator.locate`.
        """
        self._gathered.append(records)
        self._flush_if_full()

    def append_events(self, events: pa.RecordBatch) -> None:
        """Take events of `read_events`, whose places are found anew; columns that they lack are null.

        Raises:
            CorruptDataError: They are no events of the table.
            StorageError, CommitConflictError: As `append`.
        """
        table = conform_events(self._target.what, events, self._events)
        self._tables.append(table)
        self._tables_bytes += table.nbytes
        self._flush_if_full()

    def finish(self) -> DeleteFiles:
        """Write what is gathered and return all files; without events there are none.

        Raises:
            As `append`.
        """
        self._flush()
        return DeleteFiles(tuple(self._placed), tuple(self._unplaced))

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._gathered.take()
        self._tables.clear()
        if (output := self._output) is not None:
            self._output = None
            output.abort()
        for file in (*self._placed, *self._unplaced):
            delete_quietly(self._io, file.file_path)
        self._placed.clear()
        self._unplaced.clear()

    def _flush_if_full(self) -> None:
        events = self._gathered.rows + sum(len(table) for table in self._tables)
        if events >= EVENTS_MAX or self._gathered.size_bytes + self._tables_bytes >= EVENT_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        """Place, sort and write what is gathered."""
        if not self._gathered.rows and not self._tables:
            return
        events = self._all_gathered()
        placement = self._place(events.column(PREVIOUS_OFFSET_COLUMN).to_numpy())
        file_of, positions = placement.file_of, placement.positions
        # In the order of the paths' bytes, as Iceberg wants the file sorted.
        by_path = sorted(range(len(placement.paths)), key=lambda index: placement.paths[index])
        ranks = np.empty(len(by_path), dtype=np.int32)
        ranks[by_path] = np.arange(len(by_path), dtype=np.int32)
        at = np.flatnonzero(file_of >= 0)
        order = at[_by_place(ranks[file_of[at]], positions[at])]
        paths = pa.array([placement.paths[index] for index in by_path], pa.string())
        self._write_positions(events, order, paths, ranks[file_of[order]], positions[order], self._placed)
        later = np.flatnonzero(file_of == PLACED_LATER)
        nowhere = np.zeros(len(later), dtype=np.int32)
        no_positions = np.full(len(later), NO_POSITION, dtype=np.int64)
        self._write_positions(events, later, pa.array([NO_PATH]), nowhere, no_positions, self._unplaced)
        self._write_equality(events, np.flatnonzero(file_of == BY_KEY))

    def _all_gathered(self) -> pa.Table:
        tables, self._tables, self._tables_bytes = self._tables, [], 0
        if gathered := self._gathered.take():
            rows = lake_rows(self._target, pa.schema(list(self._events)[2:]), gathered)
            kinds = np.concatenate([each.change_types for each in gathered if each.change_types is not None])
            previous = np.concatenate([each.previous_offsets for each in gathered if each.previous_offsets is not None])
            events = [change_symbols(kinds), pa.array(previous), *rows.columns]
            tables.append(pa.Table.from_arrays(events, schema=self._events))
        return pa.concat_tables(tables).combine_chunks()

    def _write_positions(
        self,
        events: pa.Table,
        order: NDArray[np.intp],
        paths: pa.Array,
        path_of: NDArray[np.int32],
        positions: NDArray[np.int64],
        files: list[DataFile],
    ) -> None:
        """Write events, in an order, as rows of position-delete files."""

        def part(start: int, stop: int) -> pa.Table:
            taken = events.take(pa.array(order[start:stop]))
            # pyiceberg looks for each value of the dictionary in all rows: it has those alone that occur.
            used, indices = np.unique(path_of[start:stop], return_inverse=True)
            path = pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), paths.take(pa.array(used)))
            return pa.Table.from_arrays(
                [path, pa.array(positions[start:stop]), *taken.columns], schema=self._position_schema
            )

        for finished, start, stop in self._write_files(events, order, self._position_schema, part):
            bounds = (paths[int(path_of[start])].as_py(), paths[int(path_of[stop - 1])].as_py())
            files.append(self._position_file(finished, stop - start, *bounds))

    def _write_equality(self, events: pa.Table, order: NDArray[np.intp]) -> None:
        """Write events as rows of equality-delete files."""

        def part(start: int, stop: int) -> pa.Table:
            symbols, previous, *columns = events.take(pa.array(order[start:stop])).columns
            return pa.Table.from_arrays([*columns, symbols, previous], schema=self._equality_schema)

        for finished, _, _ in self._write_files(events, order, self._equality_schema, part):
            self._placed.append(self._equality_file(finished))

    def _write_files(
        self, events: pa.Table, order: NDArray[np.intp], schema: pa.Schema, part: Callable[[int, int], pa.Table]
    ) -> Iterator[tuple[FinishedParquet, int, int]]:
        """Write events to files and yield each with the half-open range of the order that it holds."""
        settings, count = self._settings, len(order)
        if not count:
            return
        share = events.nbytes // max(len(events), 1) + 1
        edges = even_groups(count, count * share, settings.row_group_rows, settings.row_group_bytes)
        first = 0
        for start, stop in pairwise(edges):
            rows = part(start, stop)
            if self._output is None:
                first = start
                self._output = self._new_file(events, order[start:], schema, rows)
            self._output.write_group(rows)
            if stop == count or self._output.size_bytes >= settings.file_bytes:
                finished = self._output.finish(self._target.table.location)
                self._output = None
                yield finished, first, stop
                failpoint("lake.write.after_delete_file")

    def _new_file(self, events: pa.Table, rest: NDArray[np.intp], schema: pa.Schema, rows: pa.Table) -> ParquetOutput:
        """Begin a file. Its name has the ranges of what is left to write: maybe more than it will hold."""
        offset_name, timestamp_name = self._events.names[-2:]
        offsets = events.column(offset_name).to_numpy()[rest]
        millis = events.column(timestamp_name).cast(pa.int64()).to_numpy()[rest] // 1000
        ranges = f"e{offsets.min()}_{offsets.max()}-t{millis.min()}_{millis.max()}"
        encodings = choose_encodings(rows, [field.name for field in schema if field_id_of(field) in self._ascending])
        return ParquetOutput(
            self._io,
            self._target.location(f"{ranges}-{uuid.uuid4().hex}"),
            schema,
            self._settings,
            encodings,
        )

    def _position_file(self, finished: FinishedParquet, count: int, first_path: str, last_path: str) -> DataFile:
        """Return a position-delete file: no metrics but the paths, since pyiceberg prunes by any it finds."""
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=finished.location,
            file_format=FileFormat.PARQUET,
            partition=self._target.place.record,
            record_count=count,
            file_size_in_bytes=finished.size_bytes,
            column_sizes=None,
            value_counts=None,
            null_value_counts=None,
            nan_value_counts=None,
            lower_bounds={PATH_ID: first_path.encode()},
            upper_bounds={PATH_ID: last_path.encode()},
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        file.spec_id = self._target.table.spec.spec_id
        return file

    def _equality_file(self, finished: FinishedParquet) -> DataFile:
        """Return an equality-delete file by the table's key, with metrics of the key alone."""
        target = self._target.table
        schema = Schema(
            *target.schema.fields,
            NestedField(CHANGE_TYPE_ID, CHANGE_TYPE_COLUMN, StringType(), required=True),
            NestedField(PREVIOUS_OFFSET_ID, PREVIOUS_OFFSET_COLUMN, LongType(), required=True),
        )
        ids = sorted(target.schema.identifier_field_ids)
        plan = StatisticsPlan(
            compute_statistics_plan(schema, dict(target.properties)), parquet_path_to_id_mapping(schema)
        )
        return data_file(
            finished,
            plan.only(ids),
            partition=self._target.place.record,
            spec_id=target.spec.spec_id,
            sort_order_id=None,
            equality_ids=ids,
        )


def _by_place(ranks: NDArray[np.int32], positions: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order of file, then position. One number of both sorts several times faster than two."""
    rows = positions.max(initial=0) + 1
    return np.argsort(ranks * rows + positions)


def place_again(
    target: WriteTarget,
    io: FileIO,
    deletes: Sequence[DataFile],
    files: Sequence[OffsetFile],
    partition: str | None,
    bucket: int,
    round_id: str,
) -> list[DataFile]:
    """Write the events of delete files anew, each at the place where its row is now.

    The files read stay. On failure nothing is left of what was written.

    Args:
        target: The table's.
        io: Access to the files.
        deletes: Delete files of one bucket that carry events: placed, unplaced, or by equality.
        files: The data files in which the rows are sought: all live ones and those of the round. (Those of the round alone
            make equality deletes of all events that end rows of earlier rounds: delete mode ``equality``.)
        partition: Name of the bucket's partition, or None.
        bucket: Its number.
        round_id: Of the round, for the files' names.

    Returns:
        Position-delete files, and an equality-delete file for events whose row is in no file.

    Raises:
        CorruptDataError: A row is in two files; or a file is not what it should be.
        CommitConflictError: A data file is gone. Plan the round again.
        StorageError: A file cannot be written.

    Cost: the events are read once and written once; `EVENTS_MAX` of them at a time are placed and in memory.
    """
    locator = RowLocator(io, files, target.offset_id)
    paths = [file.path for file in files]
    bucket_target = BucketTarget.of(target, f"lake table {target.location}", partition, bucket, round_id, "placed")
    writer = DeleteFileWriter(io, bucket_target, lambda offsets: RowPlaces(paths, *locator.locate(offsets)))
    try:
        for file in deletes:
            for events in read_events(io, file):
                writer.append_events(events)
        return list(writer.finish().placed)
    except BaseException:
        writer.abort()
        raise
