"""The bucket of a record, for whole columns of bucket keys at once.

Two functions share the work. `iceberg_bucket_ids` is Iceberg's ``bucket[N]`` transform, so that a record rests in the
same bucket in the cluster and in the lake; `fluss_bucket_ids` is Fluss's own, for keys that Iceberg cannot bucket.
`bucketing_kind` says which one a table uses, and `bucket_ids` is that one. All of them are pure, and safe in any thread.

Source: the Iceberg spec, appendix B; the FIP on tiering to Iceberg, "IcebergBucketFunction"; Fluss
``FlussBucketingFunction``, ``CompactedKeyEncoder`` and ``IcebergKeyEncoder``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidBucketsError, UnsupportedError
from fluss_lab.model.murmur3 import ByteRows, Hashes, Longs, fluss_hashes, iceberg_hashes, iceberg_hashes_of_longs

#: A Java int, like the ids themselves.
BUCKETS_MAX: Final = 2**31 - 1
#: Rows hashed at a time: the handful of arrays in use, 128 to 256 kB each, then stay within a core's cache.
ROWS_PER_BLOCK: Final = 32_768

_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NANOS_PER_MILLI: Final = 1_000_000
_SEVEN_BITS: Final = 0x7F
_COMPACT_DECIMAL_PRECISION_MAX: Final = 18
# The first positive value, low and high word, whose two's complement needs one byte more.
_LOW_STEPS: Final = np.array([1 << (8 * size - 1) for size in range(1, 9)], np.uint64)
_HIGH_STEPS: Final = np.array([1 << (8 * size - 1) for size in range(1, 8)], np.uint64)

BucketingKind: TypeAlias = Literal["iceberg", "fluss"]
Keys: TypeAlias = pa.Array | pa.ChunkedArray


def is_iceberg_bucketable(type: pa.DataType) -> bool:
    """Return whether Iceberg's bucket transform is defined for a column of this Arrow type.

    True for integers, decimal, date, time, timestamp with and without time zone, string, binary, fixed and uuid.
    False for booleans, floats and doubles (Iceberg leaves them out), nested types, and Arrow types that no Fluss type
    travels in (unsigned integers, ``date64``, ``decimal256``, dictionaries).

    Wider than Apache Fluss in two places, narrower in one. TINYINT and SMALLINT: the lake stores them as Iceberg
    ``int``, and Iceberg hashes an int by its value, so bucketing them is exact. TIMESTAMP_LTZ is ``timestamptz``, which
    the FIP lists. FLOAT and DOUBLE, which Apache Fluss encodes though no Iceberg writer could repeat it, are out.
    """
    return _hashes_as_long(type) or pa.types.is_decimal128(type) or _is_bytes(type)


def bucketing_kind(key_types: Sequence[pa.DataType]) -> BucketingKind:
    """Return which function places the records of a table with these bucket keys.

    Iceberg's with exactly one key of a type that it buckets, lake-enabled or not, so that the lake can be enabled
    later without moving a record (case 1 of the FIP). Fluss's otherwise, also for no key at all; such a table's lake
    cannot be bucketed by Iceberg (cases 2 and 3).
    """
    return "iceberg" if len(key_types) == 1 and is_iceberg_bucketable(key_types[0]) else "fluss"


def bucket_ids(kind: str, columns: Sequence[Keys], buckets: int) -> pa.Int32Array:
    """Return the bucket of each key as a table's own function gives it.

    Args:
        kind: Which one it is: ``iceberg`` or ``fluss``, as `bucketing_kind` says.
        columns: The bucket-key columns in the table's order, of one length, without nulls.
        buckets: Number of buckets, from 1 to `BUCKETS_MAX`.

    Raises:
        ValueError, InvalidBucketsError, UnsupportedError: As of `iceberg_bucket_ids` and `fluss_bucket_ids`.

    Example:
        >>> bucket_ids("iceberg", [pa.array(["iceberg", "fluss"])], 16).to_pylist()
        [9, 15]
    """
    if kind == "iceberg":
        (keys,) = columns
        return iceberg_bucket_ids(keys, buckets)
    return fluss_bucket_ids(columns, buckets)


def iceberg_bucket_ids(keys: Keys, buckets: int) -> pa.Int32Array:
    """Return the bucket of each key as Iceberg's ``bucket[N]`` transform gives it.

    Equal to pyiceberg's ``BucketTransform`` for every type of `is_iceberg_bucketable`. Times and timestamps of any unit
    hash as microseconds, those of nanoseconds rounded down, so that a column keeps its buckets when its unit changes.
    An empty string or binary has a bucket here, as in Iceberg; Apache Fluss refuses it.

    Args:
        keys: The one bucket-key column, without nulls.
        buckets: Number of buckets, from 1 to `BUCKETS_MAX`.

    Returns:
        Ids in ``[0, buckets)``, in the order of the keys; empty for no keys.

    Raises:
        ValueError: A key is null; the text names the first such row, counted from 0 over all chunks.
        InvalidBucketsError: No such number of buckets can be.
        UnsupportedError: Iceberg does not bucket this type: use `fluss_bucket_ids`.

    Cost: integers and times 70 to 300 million keys a second on one core; strings, binaries and decimals 10 to 40.

    Example:
        >>> iceberg_bucket_ids(pa.array(["iceberg", "fluss"]), 16).to_pylist()
        [9, 15]
    """
    _check_buckets(buckets)
    if not is_iceberg_bucketable(keys.type):
        raise UnsupportedError(f"Iceberg's bucket transform is not defined for {keys.type}; Fluss's own function is")
    _check_no_nulls(keys, "the bucket key")
    return _remainders([_iceberg_hashes(block) for (block,) in _blocks([keys])], buckets)


def fluss_bucket_ids(columns: Sequence[Keys], buckets: int) -> pa.Int32Array:
    """Return the bucket of each key as Fluss's default bucketing function gives it.

    Equal to ``FlussBucketingFunction`` over the bytes of ``CompactedKeyEncoder``. Where these depend on a precision,
    the Arrow type tells it: a timestamp of seconds or milliseconds has one up to 3, others beyond. TIME counts as whole
    milliseconds. Floats count by their bits: 0.0 and -0.0 differ.

    Args:
        columns: The bucket-key columns in the table's order, of one length, without nulls.
        buckets: Number of buckets, from 1 to `BUCKETS_MAX`.

    Returns:
        Ids in ``[0, buckets)``, in the order of the keys; empty for no keys.

    Raises:
        ValueError: A key is null (the text names column and first row, counted from 0), there is no column, or their
            lengths differ.
        InvalidBucketsError: No such number of buckets can be.
        UnsupportedError: A column is of a type that cannot be a key.

    Cost: 11 to 80 million keys a second for one column (short strings 18), 9 to 11 for two, on one core; the memory of
    one block. Keys of more than 256 bytes: two to three million.

    Example:
        >>> fluss_bucket_ids([pa.array([1, 2]), pa.array(["a", "b"])], 16).to_pylist()
        [5, 4]
    """
    _check_buckets(buckets)
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"bucket-key columns of one length are needed, found {[len(column) for column in columns]}")
    for index, column in enumerate(columns):
        _check_no_nulls(column, f"bucket key {index}")
        _check_fluss_key(column.type)
    return _remainders([fluss_hashes(_compacted_keys(block)) for block in _blocks(columns)], buckets)


def bucket_part_ids(columns: Sequence[Keys], parts: int) -> npt.NDArray[np.int64]:
    """Return in which of so many parts of its bucket each key is: the keys of any bucket are spread evenly.

    Keys of a bucket may have the same remainder of Fluss's hash already, so a part is no remainder of it: its bits are mixed
    once more, and the upper ones scaled.

    Args:
        columns: Columns of keys, as of `fluss_bucket_ids`; they need not be the bucket's.
        parts: From 1 to `BUCKETS_MAX`.

    Raises:
        ValueError, UnsupportedError: As of `fluss_bucket_ids`.
    """
    hashes = fluss_bucket_ids(columns, BUCKETS_MAX).to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found: npt.NDArray[np.int64] = ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
    return found


# ── checks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_buckets(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise InvalidBucketsError(f"number of buckets: expected 1 to {BUCKETS_MAX}, found {buckets}")


def _check_no_nulls(keys: Keys, what: str) -> None:
    if keys.null_count:
        raise ValueError(f"{what} is null in row {pc.index(keys.is_null(), True).as_py()}")


def _check_fluss_key(arrow_type: pa.DataType) -> None:
    is_number = pa.types.is_boolean(arrow_type) or pa.types.is_float32(arrow_type) or pa.types.is_float64(arrow_type)
    if not (is_number or is_iceberg_bucketable(arrow_type)):
        raise UnsupportedError(f"a column of type {arrow_type} cannot be a bucket key")


def _hashes_as_long(arrow_type: pa.DataType) -> bool:
    t = pa.types
    return any(is_a(arrow_type) for is_a in (t.is_signed_integer, t.is_date32, t.is_time, t.is_timestamp))


def _is_bytes(arrow_type: pa.DataType) -> bool:
    t = pa.types
    strings = (t.is_string, t.is_large_string, t.is_string_view)
    binaries = (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary)
    return isinstance(arrow_type, pa.UuidType) or any(is_a(arrow_type) for is_a in strings + binaries)


# ── from Arrow to what is hashed ────────────────────────────────────────────────────────────────────────────────────


def _blocks(columns: Sequence[Keys]) -> Iterator[list[pa.Array]]:
    """Yield the columns cut alike into blocks of 1 to `ROWS_PER_BLOCK` rows, without copying."""
    table = pa.table(list(columns), names=[str(index) for index in range(len(columns))])
    for batch in table.to_batches(max_chunksize=ROWS_PER_BLOCK):
        if batch.num_rows:
            yield batch.columns


def _remainders(hashes: Sequence[Hashes], buckets: int) -> pa.Int32Array:
    """Return ``hash % buckets``; the division by a constant is vectorised, the remainder is not."""
    joined = np.concatenate([np.zeros(0, np.uint32), *hashes])
    joined -= joined // np.uint32(buckets) * np.uint32(buckets)
    return pa.array(joined.view(np.int32))


def _iceberg_hashes(column: pa.Array) -> Hashes:
    if _hashes_as_long(column.type):
        return iceberg_hashes_of_longs(_iceberg_longs(column))
    if pa.types.is_decimal128(column.type):
        return iceberg_hashes(_unscaled_bytes(column))
    return iceberg_hashes(_rows_of(_large_binary(column)))


def _large_binary(column: pa.Array) -> pa.Array:
    """Return strings, binaries or uuids as the one Arrow type of them that is looked into here."""
    stored = column.storage if isinstance(column.type, pa.UuidType) else column
    return stored.cast(pa.large_binary())


def _integers(column: pa.Array) -> Longs:
    """Return the numbers that an integer, date, time or timestamp column holds, as int64, in the column's own unit."""
    width = column.type.bit_width
    values: Longs = column.view(f"int{width}").to_numpy().astype(np.int64)
    return values


def _iceberg_longs(column: pa.Array) -> Longs:
    """Return the long that Iceberg hashes for each value. It wraps where microseconds do not fit, as Java's would."""
    values = _integers(column)
    unit = getattr(column.type, "unit", None)
    if unit == "ns":
        return values // 1_000
    return values if unit is None else values * _MICROS[unit]


def _compacted_keys(columns: Sequence[pa.Array]) -> ByteRows:
    """Return the bytes of each row's key: Fluss's compacted row format without its null bits."""
    parts = [part for column in columns for part in _compact(column)]
    if len(parts) == 1 and isinstance(parts[0], ByteRows):
        return parts[0]
    return _rows_of(pc.binary_join_element_wise(*map(_arrow_of, parts), pa.scalar(b"", pa.large_binary())))


def _compact(column: pa.Array) -> list[ByteRows | pa.Array]:
    """Return the parts, to be joined row by row, that the compacted format writes for a column."""
    arrow_type = column.type
    if _is_bytes(arrow_type):
        values = _large_binary(column)
        return [_varints(pc.binary_length(values).to_numpy().view(np.uint64)), values]
    if pa.types.is_decimal128(arrow_type):
        if arrow_type.precision <= _COMPACT_DECIMAL_PRECISION_MAX:
            return [_varints(_unscaled_words(column)[0::2].astype(np.uint64))]
        unscaled = _unscaled_bytes(column)
        return [_varints(unscaled.lengths.view(np.uint64)), unscaled]
    if pa.types.is_timestamp(arrow_type):
        return _compacted_timestamps(column)
    return [_compacted_number(column)]


def _compacted_number(column: pa.Array) -> ByteRows:
    """INT, BIGINT, DATE and TIME are varints, the others their own little-endian bytes."""
    arrow_type = column.type
    if pa.types.is_time(arrow_type):
        millis = _integers(column) * _NANOS[arrow_type.unit] // _NANOS_PER_MILLI
        return _varints(millis.astype(np.int32).view(np.uint32))
    if pa.types.is_int32(arrow_type) or pa.types.is_date32(arrow_type):
        return _varints(column.view("int32").to_numpy().view(np.uint32))
    if pa.types.is_int64(arrow_type):
        return _varints(column.to_numpy().view(np.uint64))
    raw = column.cast(pa.uint8()) if pa.types.is_boolean(arrow_type) else column
    return _fixed_rows(raw.to_numpy().view(np.uint8).reshape(len(raw), -1))


def _compacted_timestamps(column: pa.Array) -> list[ByteRows | pa.Array]:
    """Milliseconds; beyond that precision also the nanoseconds since the millisecond began."""
    values = _integers(column)
    nanos = _NANOS[column.type.unit]
    if nanos >= _NANOS_PER_MILLI:
        return [_varints((values * (nanos // _NANOS_PER_MILLI)).view(np.uint64))]
    millis, rest = np.divmod(values, _NANOS_PER_MILLI // nanos)
    return [_varints(millis.view(np.uint64)), _varints((rest * nanos).view(np.uint64))]


def _unscaled_words(decimals: pa.Array) -> npt.NDArray[np.uint64]:
    """Return low and high word of each unscaled value in turn: 128 bits of two's complement."""
    words = np.frombuffer(decimals.buffers()[1], np.dtype("<u8"))
    return words[2 * decimals.offset : 2 * (decimals.offset + len(decimals))]


def _unscaled_bytes(decimals: pa.Array) -> ByteRows:
    """Return each unscaled value in the fewest bytes of big-endian two's complement that hold it."""
    words = _unscaled_words(decimals)
    sign = (words[1::2].view(np.int64) >> 63).view(np.uint64)
    low, high = words[0::2] ^ sign, words[1::2] ^ sign
    low_sizes = 1 + np.searchsorted(_LOW_STEPS, low, side="right")
    high_sizes = 9 + np.searchsorted(_HIGH_STEPS, high, side="right")
    sizes = np.where(high == 0, low_sizes, high_sizes)
    big_endian = words.view(np.uint8).reshape(-1, 16)[:, ::-1]
    starts = np.arange(16, 16 * len(decimals) + 1, 16) - sizes
    return ByteRows(np.ascontiguousarray(big_endian).reshape(-1), starts, sizes)


def _fixed_rows(rows: npt.NDArray[np.uint8]) -> ByteRows:
    """Return the rows of a matrix, one key part each."""
    count, width = rows.shape
    return ByteRows(rows.reshape(-1), np.arange(0, count * width, width), np.full(count, width))


def _varints(values: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]) -> ByteRows:
    """Return each number in groups of seven bits, the lowest first, all but the last with their top bit set."""
    width = -(-max(int(values.max()).bit_length(), 1) // 7)
    rows = np.empty((values.size, width), np.uint8)
    lengths = np.ones(values.size, np.uint8)
    for index in range(width):
        rest = values >> values.dtype.type(7 * index)
        more = rest > _SEVEN_BITS
        rows[:, index] = rest.astype(np.uint8) & _SEVEN_BITS | more.view(np.uint8) << 7
        lengths += more
    return ByteRows(rows.reshape(-1), np.arange(0, values.size * width, width), lengths.astype(np.int64))


def _arrow_of(part: ByteRows | pa.Array) -> pa.Array:
    """Return equal-spaced rows as Arrow values. Their spacing is the greatest length of the block."""
    if isinstance(part, pa.Array):
        return part
    count = part.lengths.size
    rows = part.data.reshape(count, -1)
    first = (part.starts % rows.shape[1])[:, None]
    at = np.arange(rows.shape[1])
    data = rows[(at >= first) & (at < first + part.lengths[:, None])]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(part.lengths)])
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _rows_of(values: pa.Array) -> ByteRows:
    """Return Arrow's large binary values as rows over its own buffer."""
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    return ByteRows(np.frombuffer(data, np.uint8), offsets[:-1], np.diff(offsets))
