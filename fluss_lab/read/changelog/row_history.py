"""The history of one row: every change of its key, in order, from lake and log together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import and_
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.cluster.lossy_drops import lossy_drops
from fluss_lab.client.kv.lookuper import as_rows
from fluss_lab.client.write.row_routing import Router
from fluss_lab.display import Grid, card, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import (
    CorruptDataError,
    InvalidRequestError,
    PartitionNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import FetchContext
from fluss_lab.model import ChangeType
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.read.changelog.changelog import (
    Changelog,
    ChangelogRange,
    changelog_batch,
    follow_range,
    read_log_part,
)
from fluss_lab.read.changelog.net_changes import as_bits, take_records
from fluss_lab.read.changelog.offset_ranges import EARLIEST, LogRange
from fluss_lab.read.filter.filter_compiler import Filter, compile_filter
from fluss_lab.read.moment.log_retention import bucket_text, log_starts, time_at
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState, known_start
from fluss_lab.read.union.read_columns import stored_columns
from fluss_lab.records import LogRecords

_ENDS: Final = (ChangeType.UPDATE_BEFORE, ChangeType.DELETE)


@check_arguments
class RowHistory(Changelog):
    """Every change of one key of a primary-key table, in order, with the columns of `Changelog`.

    Up to when is decided at first use. It goes back as far as lake and cluster hold the log of the key's bucket without a
    gap: `first_offset` says from where on, and `starts_late` whether changes before that may be missing; `ends_early`, whether
    some were lost with the key's partition.

    The records are checked against each other: each that ends a row names the record that wrote it.

    Made by `Table.history`. Cost: the part of one bucket's log that the cluster holds, and of the lake the row groups that
    can have the key, by their statistics.
    """

    is_whole: ClassVar[bool] = False

    def __init__(self, source: TableSource, key: Any, columns: Sequence[str] | None = None) -> None:
        self._key, self._place = _route_key(source, key)
        super().__init__(source, EARLIEST, None, [self._place], columns)
        self._filter = _filter(source, self._key)

    @property
    def key(self) -> dict[str, Any]:
        """Return the key, by column."""
        row: dict[str, Any] = self._key.to_pylist()[0]
        return row

    @cached_property
    def _range(self) -> tuple[LogRange, str, str]:
        """Return the range of the bucket's log, and what is to be said of what lies before and behind it; empty for nothing."""
        return self.source.answer(self._read_range)

    def _read_range(self, state: TableState) -> tuple[LogRange, str, str]:
        path, place = self.source.info.path, self._place
        state = state.only(lambda each: each.key == place)
        bucket = next(iter(state.buckets), None)
        if bucket is None:
            raise PartitionNotFoundError(
                f"table {path}: history of {self.key}: no partition {place[0]!r}, in cluster or lake"
            )
        bucket.check_known()
        start = known_start(bucket, log_starts(self.source, state))
        since = ""
        if start > 0:
            since = (
                f"history starts at offset {start}{time_at(self.source, state, bucket, start)} of bucket "
                f"{bucket_text(place)}: changes before that are no longer available"
            )
        until = self._losses_behind(bucket) if bucket.is_dropped else ""
        return LogRange(bucket.bucket, bucket.partition, start, bucket.end), since, until

    def _losses_behind(self, bucket: BucketState) -> str:
        """Return what is to be said of a dropped bucket's records behind those that the lake has."""
        for lost in lossy_drops(self.source.connection, self.source.info, 1).lost:
            if lost.bucket == bucket.bucket and lost.reach(bucket.end):
                return (
                    f"history ends at offset {bucket.end} of bucket {bucket_text(self._place)}: changes from there on were lost when "
                    f"its partition was dropped at {format_moment(lost.dropped_ms)}"
                )
        return ""

    @cached_property
    def offset_ranges(self) -> list[LogRange]:
        """Return the range of the key's bucket, decided at first use; none when it is empty."""
        found, _, _ = self._range
        return [found] if found.records else []

    @property
    def first_offset(self) -> int:
        """Return the offset in the key's bucket from which on the history is whole: 0 when nothing is missing."""
        return self._range[0].start

    @property
    def starts_late(self) -> str | None:
        """Return what is missing, in words: "history starts at offset 120 (...)"; None when nothing can be."""
        return self._range[1] or None

    @property
    def ends_early(self) -> str | None:
        """Return what was lost with the key's partition, in words: "history ends at offset 120 (...)"; None when nothing was."""
        return self._range[2] or None

    def to_spark(self) -> Any:
        """Raise: a row's history is small.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("to_spark: the history of one row is small: use to_arrow() or to_pandas()")

    def read(self, part: ChangelogRange) -> Iterator[pa.RecordBatch]:
        """Yield the key's records of a range of `plan`.

        Raises:
            OffsetOutOfRangeError: Some are held nowhere any more.
            CorruptDataError: A change is missing: a record ends another row than the history has.
        """
        schema, chain = self.schema, _Chain(self, part)
        for records in follow_range(self.source, part, self._read_once, is_whole=False):
            at = np.flatnonzero(self._is_key(records.rows))
            if len(at):
                mine = records if len(at) == len(records) else take_records(records, at)
                chain.follow(mine)
                yield changelog_batch(mine, part, schema)

    def _read_once(self, part: ChangelogRange, position: int) -> Iterator[LogRecords]:
        """Yield all records that can be of the key, in order."""
        source, names = self.source, self._names
        if position < part.lake_stop and part.snapshot_id is not None:
            context = FetchContext(
                position, part.lake_stop, part.partition, part.bucket.bucket, part.snapshot_id, names
            )  # fmt: skip
            for records in self._from_lake(context):
                if records.base_offset < position or records.next_offset > part.lake_stop:
                    raise CorruptDataError(
                        f"table {source.info.path}, bucket {part.bucket}, lake snapshot {part.snapshot_id}: expected records "
                        f"in [{position}, {part.lake_stop}), found [{records.base_offset}, {records.next_offset})"
                    )
                position = records.next_offset
                yield records
        yield from read_log_part(source, part, position, names, previous_offsets=True)

    def _from_lake(self, context: FetchContext) -> Iterator[LogRecords]:
        where = self._filter
        if where is None or where.pushed is None or (prune := where.prune()) is None:
            return self.source.log_source.fetch_log_records(context)
        return self.source.log_source.fetch_records_by_key(context, prune, where.pushed)

    @property
    def _names(self) -> tuple[str, ...]:
        """Return the columns that are read: those asked for, and the key's."""
        return tuple(dict.fromkeys([*stored_columns(self.source.info, self.columns), *self._key.schema.names]))

    def _is_key(self, rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which rows have the key, bit by bit, as the cluster compares keys."""
        same = np.ones(rows.num_rows, dtype=bool)
        for field, value in zip(self._key.schema, self._key.columns, strict=True):
            equal = pc.equal(as_bits(rows.column(field.name)), as_bits(value)[0])
            same &= pc.fill_null(equal, fill_value=False).to_numpy(zero_copy_only=False)
        return same

    # -- for people ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        notes = [self.starts_late, self.ends_early] if "_range" in vars(self) else []
        missing = "".join(f"; {note}" for note in notes if note)
        return f"<RowHistory of {short(self.key, 120)} in {self.source.info.path}, bucket {bucket_text(self._place)}{missing}>"

    def _repr_html_(self) -> str:
        rows = [[field.name, str(field.type)] for field in list(self.schema)[:CARD_ROWS_MAX]]
        try:
            notes = [self.starts_late, self.ends_early]
        except Exception as error:  # what is shown must not fail
            notes = [str(error) or type(error).__name__]
        return card(
            "RowHistory",
            self.source.info.path,
            [("key`", str(self.key)), ("bucket", bucket_text(self._place)), ("columns", len(self.schema))],
            notes=notes,
            grid=Grid(["column", "type"], rows),
            total=len(self.schema),
            noun="column",
            last="Nothing is read yet.",
            calls=[".to_pandas()", ".to_arrow()", ".explain()"],
        )


class _Chain:
    """The record that wrote the row that lives now, as far as it is known: what ends it must name it."""

    def __init__(self, history: RowHistory, part: ChangelogRange) -> None:
        self._history, self._part = history, part
        #: None: no row lives, or the record that wrote it is before the range.
        self._live: int | None = None

    def follow(self, records: LogRecords) -> None:
        """Take the next records.

        Raises:
            CorruptDataError: They do not follow.
        """
        assert records.change_types is not None
        assert records.previous_offsets is not None
        found = (each.to_pylist() for each in (records.offsets, records.change_types, records.previous_offsets))
        for offset, kind, previous in zip(*found, strict=True):
            if kind in _ENDS:
                if self._live != (previous if previous >= self._part.start else None):
                    raise self._broken_error(
                        offset, f"to end the row of offset {self._live}, found that it ends {previous}"
                    )
                self._live = None
            else:
                if self._live is not None:
                    raise self._broken_error(offset, f"an end of the row of offset {self._live} before it, found none")
                self._live = offset

    def _broken_error(self, offset: int, why: str) -> CorruptDataError:
        return CorruptDataError(
            f"table {self._history.source.info.path}, bucket {self._part.bucket}: history of {self._history.key}: of the record at "
            f"offset {offset} expected {why}: a record is missing, or one too many"
        )


def _route_key(source: TableSource, key: Any) -> tuple[pa.RecordBatch, BucketKey]:
    """Return a key as the one row that it is, and its partition and bucket."""
    info = source.info
    if info.is_log_table:
        raise UnsupportedError(f"table {info.path}: history: it has no primary key; the changelog has its records")
    batches = record_batches(as_rows(key), info.schema, info.schema.primary_key)
    if (count := sum(batch.num_rows for batch in batches)) != 1:
        raise InvalidRequestError(f"table {info.path}: history: expected one key, found {count}")
    (run,) = Router(info.descriptor, 0).route(batches)
    return run.rows, (run.partition, run.bucket)


def _filter(source: TableSource, key: pa.RecordBatch) -> Filter | None:
    """Return a condition that the key fulfils, to prune by; None where nothing can be said of it.

    Floating-point numbers are left out: as keys they are compared by their bits.
    """
    terms = [
        pc.field(field.name) == value[0]
        for field, value in zip(key.schema, key.columns, strict=True)
        if not pa.types.is_floating(field.type)
    ]
    return compile_filter(reduce(and_, terms), source.info.schema) if terms else None
