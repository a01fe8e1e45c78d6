"""Hashes of keys, over whole columns at once.

Two keys are the same key when their bytes are, as in Apache Fluss's ``CompactedKeyEncoder``: floats and doubles count by
their bits, so a NaN is equal to itself (to another NaN only with the same bits), and -0.0 and 0.0 are two keys.
Decimals, dates and times count by their number in the column's own unit, strings by their UTF-8 bytes.

A hash only gives a candidate: the caller compares the real keys, unless `KeyHash.is_exact`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.uint64]
Longs: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

ALL_BITS: Final = 2**64 - 1
#: Words of variable-length keys that are hashed at a time: some 2 MB for each of the arrays in use.
WORDS_PER_BLOCK: Final = 1 << 18

_WORD_BYTES: Final = 8
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_LENGTH: Final = np.uint64(0xD6E8FEB86659FD93)
# Made once: that takes as long as shifting a few words by them.
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE = np.uint64(30), np.uint64(27), np.uint64(31)
#: Element ``n`` keeps the first ``n`` bytes of a little-endian word.
_FIRST_BYTES: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)
#: Bytes of a value of the types whose bits are its identity, by the type's id.
_WIDTHS: Final = {
    arrow_type.id: width
    for width, types in {
        1: (pa.bool_(), pa.int8()),
        2: (pa.int16(), pa.float16()),
        4: (pa.int32(), pa.float32(), pa.date32(), pa.time32("s")),
        8: (pa.int64(), pa.float64(), pa.date64(), pa.time64("us"), pa.timestamp("us")),
    }.items()
    for arrow_type in types
}
_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class KeyHash:
    """A hash function of 64 bits, of its own for each store: keys that collide cannot be made from outside.

    Args:
        seed: Chooses the function; None draws one.
        mask: Bits of the hash that are kept. Tests leave few, so that keys collide.
    """

    def __init__(self, seed: int | None = None, mask: int = ALL_BITS) -> None:
        self._seed = np.uint64(secrets.randbits(64) if seed is None else seed & ALL_BITS)
        self._mask = np.uint64(mask)

    def is_exact(self, types: Sequence[pa.DataType]) -> bool:
        """Return whether different keys of these types always have different hashes.

        True for a single column of up to eight bytes a value: its hash is a permutation of its bits, so comparing hashes
        is comparing the keys themselves.
        """
        return len(types) == 1 and _width(types[0]) in _UNSIGNED and int(self._mask) == ALL_BITS

    def of(self, columns: Sequence[pa.Array]) -> Hashes:
        """Return the hash of each key.

        Args:
            columns: The key's columns in order, of one length, without nulls.

        Cost: 5 ns for a number, 20 to 40 ns for a short string or a decimal, on one core.
        """
        hashes = self._of_column(columns[0])
        for column in columns[1:]:
            hashes *= _GOLDEN
            hashes ^= self._of_column(column)
            _mix(hashes)
        if int(self._mask) != ALL_BITS:
            hashes &= self._mask
        return hashes

    def of_bits(self, bits: int) -> int:
        """Return what `of` gives for a single key of one column of up to eight bytes: a tenth of the cost for one.

        Args:
            bits: Of the key, as an unsigned number.
        """
        word = bits ^ int(self._seed)
        word ^= word >> 30
        word = word * int(_FIRST) & ALL_BITS
        word ^= word >> 27
        word = word * int(_SECOND) & ALL_BITS
        word ^= word >> 31
        return word & int(self._mask)

    def _of_column(self, column: pa.Array) -> Hashes:
        width = _width(column.type)
        if width in _UNSIGNED:
            return _mix(fixed_values(column).astype(np.uint64) ^ self._seed)
        if pa.types.is_decimal128(column.type):
            words = word_pairs(column)
            hashes = words[:, 0] ^ self._seed
            _mix(hashes)
            hashes ^= words[:, 1]
            return _mix(hashes)
        return self._of_bytes(*_byte_rows(column))

    def _of_bytes(self, data: Bytes, starts: Longs, lengths: Longs) -> Hashes:
        """Hash byte strings that lie in one buffer: mixed words, each salted with its place, added up."""
        hashes = np.empty(lengths.size, np.uint64)
        words = np.maximum((lengths + (_WORD_BYTES - 1)) // _WORD_BYTES, 1)
        word_at = _Words(data)
        for start, stop in _blocks(words):
            hashes[start:stop] = self._of_block(word_at, starts[start:stop], lengths[start:stop], words[start:stop])
        hashes += lengths.astype(np.uint64) * _LENGTH
        return _mix(hashes)

    def _of_block(self, word_at: _Words, starts: Longs, lengths: Longs, words: Longs) -> Hashes:
        if int(words.max()) == 1:
            mixed = word_at.read(starts, lengths)
            mixed ^= self._seed
            return _mix(mixed)
        ends = np.cumsum(words)
        firsts = ends - words
        row = np.repeat(np.arange(words.size), words)
        place = np.arange(int(ends[-1])) - firsts[row]
        skipped = place * _WORD_BYTES
        mixed = word_at.read(starts[row] + skipped, np.minimum(lengths[row] - skipped, _WORD_BYTES))
        mixed ^= place.astype(np.uint64) * _GOLDEN
        mixed ^= self._seed
        sums: Hashes = np.add.reduceat(_mix(mixed), firsts)
        return sums


class _Words:
    """Little-endian words at any byte of a buffer, cut off where a row ends."""

    def __init__(self, data: Bytes) -> None:
        if data.size < _WORD_BYTES:
            data = np.concatenate([data, np.zeros(_WORD_BYTES - data.size, np.uint8)])
        self._last = data.size - _WORD_BYTES
        self._at = np.ndarray((self._last + 1,), np.dtype("<u8"), data, strides=(1,))

    def read(self, places: Longs, lengths: Longs) -> Hashes:
        """Return the first `lengths` (0 to 8) bytes at each place as a word, zeros behind them."""
        held = np.minimum(places, self._last)
        words: Hashes = self._at[held]
        if bool((places > self._last).any()):
            # Near the end of the buffer: the word that ends with it, without the bytes before the place.
            words >>= ((places - held) * 8).astype(np.uint64)
        words &= _FIRST_BYTES[lengths]
        return words


def fixed_values(column: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    """Return the bits of a column of fixed width up to eight bytes as unsigned numbers; what nulls hold is arbitrary."""
    dtype = _UNSIGNED[_width(column.type)]
    if dtype is np.uint8 and pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype, len(column), column.offset * _width(column.type))


def word_pairs(column: pa.Array) -> Hashes:
    """Return the sixteen bytes of each decimal as two words; what nulls hold is arbitrary."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros((len(column), 2), np.uint64)
    words = np.frombuffer(data, np.uint64, count=2 * len(column), offset=16 * column.offset)
    return words.reshape(-1, 2)


def _width(type: pa.DataType) -> int:
    """Return the bytes of a value whose bits are its identity; 0 for other types."""
    return _WIDTHS.get(type.id, 0)


def _byte_rows(column: pa.Array) -> tuple[Bytes, Longs, Longs]:
    """Return buffer, starts and lengths of a string or binary column."""
    count, offset = len(column), column.offset
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        starts = (np.arange(count, dtype=np.int64) + offset) * width
        return _bytes(column.buffers()[1]), starts, np.full(count, width, np.int64)
    places = column.buffers()[1]
    if places is None:
        return _bytes(None), np.zeros(count, np.int64), np.zeros(count, np.int64)
    edges = np.frombuffer(places, np.int32, count=count + 1, offset=4 * offset).astype(np.int64)
    return _bytes(column.buffers()[2]), edges[:-1], np.diff(edges)


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _blocks(words: Longs) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that have about `WORDS_PER_BLOCK` words together; a long row is a block of its own."""
    ends = np.cumsum(words)
    start = 0
    while start < words.size:
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + WORDS_PER_BLOCK, "right")))
        yield start, stop
        start = stop


def _mix(words: Hashes) -> Hashes:
    """Let every bit of each word reach every other, in place; no two words become the same (SplitMix64's last step)."""
    words ^= words >> _THIRTY
    words *= _FIRST
    words ^= words >> _TWENTY_SEVEN
    words *= _SECOND
    words ^= words >> _THIRTY_ONE
    return words
