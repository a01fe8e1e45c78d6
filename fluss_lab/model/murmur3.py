"""The two murmur3 hashes that choose a bucket, over whole columns at once.

Both are murmur3 for 32 bits and differ in three places:

=================  ===========================  =========================================
what               Iceberg                      Fluss
=================  ===========================  =========================================
seed               0                            42
bytes after the    one word, mixed into the     each byte a word of its own, sign-extended,
last whole word    key only                     mixed like a whole word
after the hash     sign bit cleared             hashed once more as an int, then made positive
=================  ===========================  =========================================

Arrays are numpy ``uint32`` unless said otherwise; arithmetic wraps as Java's ``int`` does.

Source: murmur3_x86_32; the Iceberg spec, appendix B; Fluss ``MurmurHashUtils`` and ``MathUtils``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Hashes: TypeAlias = npt.NDArray[np.uint32]
Longs: TypeAlias = npt.NDArray[np.int64]

ICEBERG_SEED: Final = 0
FLUSS_SEED: Final = 42
#: Longer rows are hashed one by one. 256 bytes are at most 64 vectorised passes over a block of rows, each of about
#: 4 ns a row; a call per row costs about 0.5 us, then the lesser evil: a key of 1 MB must not mean 262,144 passes.
#: Words of a short row are counted in a byte, so this stays below 1024.
SHORT_BYTES_MAX: Final = 256

_WORD_BYTES: Final = 4
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_FIVE: Final = np.uint32(5)
_ADDEND: Final = np.uint32(0xE6546B64)
_F1: Final = 0x85EBCA6B
_F2: Final = 0xC2B2AE35
_F1_INVERSE: Final = pow(_F1, -1, 1 << 32)
_F2_INVERSE: Final = pow(_F2, -1, 1 << 32)


@dataclass(frozen=True, slots=True)
class ByteRows:
    """Byte strings of any lengths that lie in one buffer.

    Attributes:
        data: The buffer. Rows may overlap, have gaps between them, and come in any order.
        starts: Index of each row's first byte.
        lengths: Number of bytes of each row.
    """

    data: Bytes
    starts: Longs
    lengths: Longs

    def select(self, mask: npt.NDArray[np.bool_]) -> ByteRows:
        """Return the rows that a mask chooses, over the same buffer."""
        return ByteRows(self.data, self.starts[mask], self.lengths[mask])


def iceberg_hashes_of_longs(values: Longs) -> Hashes:
    """Return Iceberg's hash of each value as eight little-endian bytes, its sign bit cleared.

    Args:
        values: Contiguous.
    """
    halves = values.view(np.uint32)
    hashes = np.zeros(values.size, np.uint32)
    _mix(hashes, halves[0::2].copy())
    _mix(hashes, halves[1::2].copy())
    hashes ^= np.uint32(8)
    _finish(hashes)
    hashes &= _POSITIVE
    return hashes


def iceberg_hashes(rows: ByteRows) -> Hashes:
    """Return Iceberg's hash of each row, its sign bit cleared: what is left to do is ``% buckets``.

    Cost: some 4 ns for every four bytes of a short row; about 0.5 us a row beyond `SHORT_BYTES_MAX`.
    """
    hashes = _states(rows, ICEBERG_SEED)
    starts, lengths = _tails(rows)
    tails = np.zeros(lengths.size, np.uint32)
    for index in range(_WORD_BYTES - 1):
        chosen = np.flatnonzero(lengths > index)
        tails[chosen] |= rows.data[starts[chosen] + index].astype(np.uint32) << np.uint32(8 * index)
    _scatter(tails)
    hashes ^= tails
    hashes ^= rows.lengths.astype(np.uint32)
    _finish(hashes)
    hashes &= _POSITIVE
    return hashes


def fluss_hashes(rows: ByteRows) -> Hashes:
    """Return Fluss's hash of each row, made positive: what is left to do is ``% buckets``.

    Cost: as for `iceberg_hashes`.
    """
    hashes = _states(rows, FLUSS_SEED)
    starts, lengths = _tails(rows)
    for index in range(_WORD_BYTES - 1):
        chosen = np.flatnonzero(lengths > index)
        part = hashes[chosen]
        _mix(part, rows.data[starts[chosen] + index].view(np.int8).astype(np.int32).view(np.uint32))
        hashes[chosen] = part
    hashes ^= rows.lengths.astype(np.uint32)
    _finish(hashes)
    return _hash_of_int(hashes)


def _tails(rows: ByteRows) -> tuple[Longs, Longs]:
    """Return start and length of what follows each row's last whole word: zero to three bytes."""
    return rows.starts + (rows.lengths & ~3), rows.lengths & 3


def _states(rows: ByteRows, seed: int) -> Hashes:
    """Mix the whole words of each row."""
    is_long = rows.lengths > SHORT_BYTES_MAX
    if not is_long.any():
        return _states_of_short(rows, seed)
    states = np.empty(rows.lengths.size, np.uint32)
    states[~is_long] = _states_of_short(rows.select(~is_long), seed)
    states[is_long] = _states_of_long(rows.select(is_long), seed)
    return states


def _states_of_short(rows: ByteRows, seed: int) -> Hashes:
    """Mix the whole words of rows of up to `SHORT_BYTES_MAX` bytes, a word of every row at a time."""
    words = rows.lengths >> 2
    words_max = int(words.max(initial=0))
    # Longest first, so that the rows which still have a word are always the first ones. Bytes are sorted by radix.
    order = np.argsort((words_max - words).astype(np.uint8), kind="stable")
    with_more = words.size - np.cumsum(np.bincount(words, minlength=words_max + 1))
    starts = rows.starts[order]
    sorted_states = np.full(words.size, seed, np.uint32)
    word_at = _words_at_every_byte(rows.data)
    for index in range(words_max):
        live = int(with_more[index])
        _mix(sorted_states[:live], word_at[starts[:live] + _WORD_BYTES * index])
    states = np.empty_like(sorted_states)
    states[order] = sorted_states
    return states


def _states_of_long(rows: ByteRows, seed: int) -> Hashes:
    """Mix the whole words of each row by ``mmh3``, a row at a time, and take back its last step, which is too early."""
    aligned = rows.lengths & ~3
    spans = zip(rows.starts.tolist(), (rows.starts + aligned).tolist(), strict=True)
    codes = (mmh3.hash(rows.data[start:stop].tobytes(), seed, signed=False) for start, stop in spans)
    states = np.fromiter(codes, np.uint32, aligned.size)
    _unfinish(states)
    states ^= aligned.astype(np.uint32)
    return states


def _hash_of_int(codes: Hashes) -> Hashes:
    """Hash each hash once more and make it positive: the absolute value, with 0 for the one int that has none."""
    hashes = np.zeros_like(codes)
    _mix(hashes, codes)
    hashes ^= np.uint32(4)
    _finish(hashes)
    positive: Hashes = np.abs(hashes.view(np.int32)).view(np.uint32) & _POSITIVE
    return positive


def _words_at_every_byte(data: Bytes) -> Hashes:
    """Return a view whose element ``i`` is the little-endian word that starts at byte ``i``."""
    if data.size < _WORD_BYTES:
        return np.zeros(0, np.uint32)
    return np.ndarray((data.size - _WORD_BYTES + 1,), np.dtype("<u4"), data, strides=(1,))


def _mix(state: Hashes, words: Hashes) -> None:
    """Mix one word into each state, in place. The words are used up."""
    _scatter(words)
    np.bitwise_xor(state, words, out=state)
    _rotate(state, 13)
    np.multiply(state, _FIVE, out=state)
    np.add(state, _ADDEND, out=state)


def _scatter(words: Hashes) -> None:
    """Spread the bits of each word, in place: what a word undergoes before it meets the state."""
    np.multiply(words, _C1, out=words)
    _rotate(words, 15)
    np.multiply(words, _C2, out=words)


def _rotate(words: Hashes, bits: int) -> None:
    """Rotate each word to the left, in place."""
    fallen = words >> np.uint32(32 - bits)
    np.left_shift(words, np.uint32(bits), out=words)
    np.bitwise_or(words, fallen, out=words)


def _finish(state: Hashes) -> None:
    """Let every bit of the state reach every other, in place: murmur3's last step."""
    state ^= state >> np.uint32(16)
    np.multiply(state, np.uint32(_F1), out=state)
    state ^= state >> np.uint32(13)
    np.multiply(state, np.uint32(_F2), out=state)
    state ^= state >> np.uint32(16)


def _unfinish(state: Hashes) -> None:
    """Undo `_finish`, in place; every step of it has an inverse."""
    state ^= state >> np.uint32(16)
    np.multiply(state, np.uint32(_F2_INVERSE), out=state)
    state ^= state >> np.uint32(13) ^ state >> np.uint32(26)
    np.multiply(state, np.uint32(_F1_INVERSE), out=state)
    state ^= state >> np.uint32(16)
