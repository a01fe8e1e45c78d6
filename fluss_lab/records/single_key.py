"""The bytes in which a single key of one integer travels: those of an Arrow record batch, where only the value changes.

Most lookups ask for one key, and making such a batch by Arrow, or reading and checking it, costs more than finding the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import pyarrow as pa

from fluss_lab.records.batch import Buffer


class SingleKey:
    """Writes and reads single keys of one type.

    Args:
        type: An integer type of Arrow, signed.
    """

    __slots__ = ("_head", "_size", "_stop", "_tail", "_width")

    def __init__(self, type: pa.DataType) -> None:
        zero, ones = _encode(0, type), _encode(-1, type)
        start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(zero, ones, strict=True)))
        self._width = type.bit_width // 8
        self._size, self._stop = len(zero), start + self._width
        self._head, self._tail = zero[:start], zero[self._stop :]

    @staticmethod
    def of(key: pa.Schema) -> SingleKey | None:
        """Return what writes and reads keys of some columns; None where they are not one integer."""
        if len(key) != 1 or not pa.types.is_signed_integer(key.field(0).type):
            return None
        return SingleKey(key.field(0).type)

    def encode(self, value: int) -> bytes:
        """Return the bytes of a key, as Arrow makes them.

        Raises:
            OverflowError: The type does not hold the value.
        """
        return self._head + value.to_bytes(self._width, "little", signed=True) + self._tail

    def decode(self, payload: Sequence[Buffer]) -> int | None:
        """Return the bits of a key as an unsigned number; None for other bytes, which may be right too: Arrow says."""
        if len(payload) != 1 or len(payload[0]) != self._size:
            return None
        data = bytes(payload[0])
        if not data.startswith(self._head) or not data.endswith(self._tail):
            return None
        return int.from_bytes(data[len(self._head) : self._stop], "little")


def _encode(value: int, type: pa.DataType) -> bytes:
    keys = pa.RecordBatch.from_arrays([pa.array([value], type)], ["key"])
    return bytes(keys.serialize().to_pybytes())
