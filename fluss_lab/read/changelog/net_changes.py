"""The net changes of a log range: of each key the row before it and the row after it, at most.

No row is held that does not belong to the result, whatever happened in between: a record says which row it ends, by that
row's offset. So a first pass learns which rows the range both wrote and ended (a bit a record), and a second one keeps the
rows that were there before the range and the range ended, and those that it wrote and did not end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.bucketing import BUCKETS_MAX as HASHES
from fluss_lab.model.bucketing import fluss_bucket_ids
from fluss_lab.read.changelog.changelog import (
    LOG_OFFSET,
    Changelog,
    ChangelogRange,
    changelog_batch,
    changelog_schema,
    read_changes,
)
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.change_masks import end_mask
from fluss_lab.records import LogRecords, concat_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What Iceberg's changelog procedures call net changes.
INSERT: Final = "INSERT"
DELETE: Final = "DELETE"
UPDATE_BEFORE: Final = "UPDATE_BEFORE"
UPDATE_AFTER: Final = "UPDATE_AFTER"
#: A range of up to so many records is read once and held; a longer one is read twice, a column of it the first time.
HELD_RECORDS_MAX: Final = 256 * 1024
#: One whose rows are wide is read again all the same, so that memory does not depend on them.
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
#: More slices are not made of a range: by then each has fewer rows than one batch.
SLICES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class NetChange:
    """The net change of a range of one bucket. Every row is a record of the range, with its own offset and time.

    Attributes:
        inserted: Rows of keys that had none before.
        deleted: Rows of keys that have none after.
        before: Rows that changed, as they were.
        after: The same rows as they are, in the same order.
    """

    inserted: LogRecords
    deleted: LogRecords
    before: LogRecords
    after: LogRecords

    def reverse(self) -> NetChange:
        """Return what leads back: what was added goes, what went is added."""
        return NetChange(self.deleted, self.inserted, self.after, self.before)

    def labelled_parts(self) -> list[tuple[str, LogRecords]]:
        """Return the four parts with Iceberg's words for them."""
        return [
            (DELETE, self.deleted),
            (INSERT, self.inserted),
            (UPDATE_BEFORE, self.before),
            (UPDATE_AFTER, self.after),
        ]


@check_arguments
class NetChangelog(Changelog):
    """The net changes of a range of a primary-key table's log, by key: rows that it added, removed and changed.

    ``_change_type`` is in Iceberg's words: ``INSERT``, ``DELETE``, or ``UPDATE_BEFORE`` and ``UPDATE_AFTER`` of one key. A
    key whose row is the same before and after is left out. Every row has the offset and the time of its record: where
    several changed a key, those of the first one for the row before, and of the last one for the row after. The order is
    that of `Changelog`.

    Memory: the net change of a bucket, and a bit for each of its records.
    """

    net: ClassVar[bool] = True
    is_whole: ClassVar[bool] = False

    def read(self, part: ChangelogRange) -> Iterator[pa.RecordBatch]:
        """Yield the net changes of one bucket's range."""
        return net_batches(self.source, part, self.columns)

    def __repr__(self) -> str:
        return super().__repr__().replace("<Changelog", "<Net changelog", 1)


def net_batches(source: TableSource, part: ChangelogRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the net changes of a range, in the columns of `changelog_schema`, ascending by offset.

    Raises:
        OffsetOutOfRangeError: Records of the range are held nowhere any more.
        CorruptDataError: Bytes failed their checks, or the records contradict each other.
    """
    change = net_change(source, part)
    schema = changelog_schema(source.info, columns)
    parts = [changelog_batch(records, part, schema, word) for word, records in change.labelled_parts() if len(records)]
    if parts:
        yield from pa.Table.from_batches(parts, schema).sort_by(LOG_OFFSET).combine_chunks().to_batches()


def net_change(source: TableSource, part: ChangelogRange) -> NetChange:
    """Return the net change of a range; see `net_batches`."""
    names = source.info.schema.names
    ended = _Ended(part)
    held: list[LogRecords] | None = [] if part.stop - part.start <= HELD_RECORDS_MAX else None
    size_bytes = 0
    for records in read_changes(source, part, [] if held is None else names, previous_offsets=True):
        ended.add(records)
        if held is not None:
            held.append(records)
            size_bytes += records.rows.nbytes
            if size_bytes > HELD_BYTES_MAX:
                held = None
    again = read_changes(source, part, names, previous_offsets=True) if held is None else held
    return _net(source, part, [some for records in again if (some := _kept_records(records, part, ended)) is not None])


def net_slices(source: TableSource, part: ChangelogRange) -> Iterator[int | NetChange]:
    """Yield the net change of a range in slices, so that memory does not depend on how many rows changed.

    A slice has all changes of its keys: at most `HELD_RECORDS_MAX` rows, and `HELD_BYTES_MAX` bytes of them. Between slices
    come numbers: of records read since the last one.

    Raises:
        OffsetOutOfRangeError, CorruptDataError: As `net_batches`.

    Cost: the range is read once, a column of it, and once a slice; a slice that turns out too large is read again in halves.
    """
    ended = _Ended(part)
    for records in read_changes(source, part, [], previous_offsets=True):
        ended.add(records)
        yield len(records)
    count = 1
    while count * HELD_RECORDS_MAX < 2 * ended.kept_rows and count < SLICES_MAX:
        count *= 2
    slices = [(count, number) for number in reversed(range(count))]
    while slices:
        count, number = slices.pop()
        found: list[LogRecords] = []
        rows = size_bytes = 0
        for records in read_changes(source, part, source.info.schema.names, previous_offsets=True):
            yield len(records)
            if (some := _kept_records(records, part, ended)) is None or not len(
                some := _slice(source, some, count, number)
            ):
                continue
            found.append(some)
            rows, size_bytes = rows + len(some), size_bytes + some.rows.nbytes
            if (rows > HELD_RECORDS_MAX or size_bytes > HELD_BYTES_MAX) and count < SLICES_MAX:
                slices += [(2 * count, number + count), (2 * count, number)]
                break
        else:
            yield _net(source, part, found)


def _slice(source: TableSource, records: LogRecords, count: int, number: int) -> LogRecords:
    """Return the records of those keys that a slice has."""
    if count == 1:
        return records
    keys = [records.rows.column(name) for name in source.info.schema.primary_key]
    # The rows of a bucket have the same remainder of this hash already: its bits are mixed once more.
    hashes = fluss_bucket_ids(keys, HASHES).to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return take_records(records, np.flatnonzero((hashes >> np.uint64(32)) % np.uint64(count) == number))


def _net(source: TableSource, part: ChangelogRange, found: Sequence[LogRecords]) -> NetChange:
    """Return the net change that the records of some keys come to."""
    if not found:
        nothing = no_records(source.info)
        return NetChange(nothing, nothing, nothing, nothing)
    records = concat_records(found)
    old = end_mask(records)
    return _pair(source, part, take_records(records, np.flatnonzero(old)), take_records(records, np.flatnonzero(~old)))


class _Ended:
    """Which records of a range wrote rows that the range itself ended: a bit each.

    Attributes:
        kept_rows: How many records hold a row before the range or one after it.
    """

    def __init__(self, part: ChangelogRange) -> None:
        self._part = part
        self.kept_rows = 0
        self._bits = np.zeros((part.stop - part.start + 7) // 8, dtype=np.uint8)

    def add(self, records: LogRecords) -> None:
        """Record the rows that records end."""
        ending = end_mask(records)
        assert records.previous_offsets is not None
        rows, offsets = records.previous_offsets.to_numpy()[ending], records.offsets.to_numpy()[ending]
        if wrong := np.flatnonzero(rows >= offsets).tolist():
            raise CorruptDataError(
                f"bucket {self._part.bucket}: expected the record at offset {offsets[wrong[0]]} to end an earlier row, found "
                f"previous offset {rows[wrong[0]]}"
            )
        at = rows[rows >= self._part.start] - self._part.start
        self.kept_rows += len(records) - 2 * len(at)
        np.bitwise_or.at(self._bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))

    def __getitem__(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        at = offsets - self._part.start
        found: NDArray[np.bool_] = (self._bits[at >> 3] >> (at & 7).astype(np.uint8)) & 1 != 0
        return found


def _kept_records(records: LogRecords, part: ChangelogRange, ended: _Ended) -> LogRecords | None:
    """Return the records that hold a row before the range or one after it."""
    ending = end_mask(records)
    assert records.previous_offsets is not None
    before = records.previous_offsets.to_numpy() < part.start
    wanted = np.where(ending, before, ~ended[records.offsets.to_numpy()])
    return take_records(records, np.flatnonzero(wanted)) if wanted.any() else None


def take_records(records: LogRecords, at: NDArray[Any]) -> LogRecords:
    """Return the records at some positions."""
    indices = pa.array(at, pa.int64())
    return LogRecords(
        records.rows.take(indices),
        records.offsets.take(indices),
        records.timestamps_ms.take(indices),
        None if records.change_types is None else records.change_types.take(indices),
        None if records.previous_offsets is None else records.previous_offsets.take(indices),
    )


def no_records(info: TableInfo) -> LogRecords:
    """Return no records, in all columns of a table."""
    schema = info.schema.arrow_schema
    rows = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    empty = pa.array([], pa.int64())
    return LogRecords(rows, empty, empty)


def _pair(source: TableSource, part: ChangelogRange, old: LogRecords, new: LogRecords) -> NetChange:
    """Pair the rows of one key: what is on one side only was inserted or deleted."""
    key = source.info.schema.primary_key
    codes, count = row_codes([pa.concat_arrays([old.rows.column(name), new.rows.column(name)]) for name in key])
    one, other = codes[: len(old)], codes[len(old) :]
    if max(np.bincount(each, minlength=1).max() for each in (one, other)) > 1:
        raise CorruptDataError(
            f"bucket {part.bucket}, offsets [{part.start}, {part.stop}): expected of each key a row before and a row after at "
            "most, found two of one key: the previous offsets of its records do not fit"
        )
    place = np.full(count, -1, dtype=np.int64)
    place[one] = np.arange(len(one))
    at_old = place[other]
    at_new = np.flatnonzero(at_old >= 0)
    gone = np.ones(len(one), dtype=bool)
    gone[at_old[at_new]] = False
    before, after = take_records(old, at_old[at_new]), take_records(new, at_new)
    differ = np.flatnonzero(~_same_rows(before.rows, after.rows))
    return NetChange(
        take_records(new, np.flatnonzero(at_old < 0)),
        take_records(old, np.flatnonzero(gone)),
        take_records(before, differ),
        take_records(after, differ),
    )


def row_codes(columns: Sequence[pa.Array]) -> tuple[NDArray[np.int64], int]:
    """Return a number for each row, the same one for rows that are the same in every column; and how many there are."""
    codes, count = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        encoded = as_bits(column).dictionary_encode()
        indices = encoded.indices.cast(pa.int64()).to_numpy()
        both = pa.array(codes * len(encoded.dictionary) + indices).dictionary_encode() if count > 1 else encoded
        codes, count = both.indices.cast(pa.int64()).to_numpy(), len(both.dictionary)
    return codes, count


def as_bits(column: pa.Array) -> pa.Array:
    """Return floating-point values as integers: these are the same just when the bits are, be it of NaN or of zeros."""
    widths = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return column.view(widths[column.type]) if column.type in widths else column


def _same_rows(one: pa.RecordBatch, other: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return which rows are the same in every column, bit by bit: nulls and NaN are themselves, a zero's sign counts."""
    same = np.ones(one.num_rows, dtype=bool)
    for left, right in zip(one.columns, other.columns, strict=True):
        same = same_values(left, right, same)
    return same


def same_values(left: pa.Array, right: pa.Array, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which values are the same, of those asked for: bit by bit, and nulls are themselves."""
    if pa.types.is_nested(left.type):
        # Arrow compares no nested columns; few rows are left that are the same up to here and changed all the same.
        same = np.zeros(len(left), dtype=bool)
        at = np.flatnonzero(asked)
        same[at] = [repr(left[int(i)].as_py()) == repr(right[int(i)].as_py()) for i in at]
        return same
    equal = pc.fill_null(pc.equal(as_bits(left), as_bits(right)), fill_value=False)
    both_null = pc.and_(left.is_null(), right.is_null())
    found: NDArray[np.bool_] = asked & pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return found
