"""A changelog batch applied again: what it does is read off its records, and must fit what is there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.changes import ChangeType
from fluss_lab.server.kv.change_derivation import Present
from fluss_lab.server.kv.keys.key_hashes import Longs
from fluss_lab.server.kv.merge_engines import Operations


def kinds_of(change_types: bytes, count: int, base_offset: int) -> npt.NDArray[np.int8]:
    """Return the change types of a changelog batch as numbers.

    Raises:
        CorruptDataError: Not one a row, one that no changelog has, or a -U without its +U.
    """
    kinds = np.frombuffer(change_types, np.int8)
    if kinds.size != count:
        raise CorruptDataError(f"changelog at offset {base_offset}: {count} rows with {kinds.size} change types")
    if count and not ((kinds >= ChangeType.INSERT) & (kinds <= ChangeType.DELETE)).all():
        raise CorruptDataError(f"changelog at offset {base_offset}: expected change types 1 to 4, found others")
    before = kinds == ChangeType.UPDATE_BEFORE
    after = kinds == ChangeType.UPDATE_AFTER
    if count and (before[-1] or after[0] or (before[:-1] != after[1:]).any()):
        raise CorruptDataError(f"changelog at offset {base_offset}: expected each -U just before its +U")
    return kinds


def previous_offsets(
    kinds: npt.NDArray[np.int8], operations: Operations, before: Longs, present: Present, base_offset: int
) -> Longs:
    """Return for each record the offset of the row that it ends or replaces; -1 for +I.

    Args:
        kinds: Of all records.
        operations: All records but the -U.
        before: For each operation the one before it of the same key; -1 for none.
        present: What the index has for each key.
        base_offset: Of the batch.

    Raises:
        CorruptDataError: A +I of a key that has a row, or a -U, +U or -D of one that has none.
    """
    ended = present.offsets[operations.groups]
    again = before >= 0
    earlier = before[again]
    ended[again] = np.where(operations.upserts[earlier], base_offset + operations.rows[earlier], -1)
    expected = kinds[operations.rows] != ChangeType.INSERT
    if (wrong := expected != (ended >= 0)).any():
        first = int(np.argmax(wrong))
        there = "none" if ended[first] < 0 else f"one of offset {ended[first]}"
        kind = ChangeType(int(kinds[operations.rows[first]])).symbol
        raise CorruptDataError(
            f"changelog at offset {base_offset + int(operations.rows[first])}: {kind} does not fit the rows there are: "
            f"its key has {there}. The log and the snapshot it is replayed on do not belong together"
        )
    result = np.empty(kinds.size, np.int64)
    result[operations.rows] = ended
    olds = np.flatnonzero(kinds == ChangeType.UPDATE_BEFORE)
    result[olds] = result[olds + 1]
    return result
