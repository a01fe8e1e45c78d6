"""The equality of rows, bit by bit, over whole columns at once.

Null is equal to null. Floats and doubles are compared by their bits, as keys are: a NaN is equal to itself, -0.0 and 0.0
differ. What lies under a null does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.server.kv.keys.key_hashes import Hashes, Longs, fixed_values, word_pairs

Mask: TypeAlias = npt.NDArray[np.bool_]


def equal_rows(columns: Sequence[pa.Array], left: Longs, right: Longs) -> Mask:
    """Return for each pair of rows of the same columns whether they are equal.

    Args:
        columns: Of one length; any Fluss type, nested ones too.
        left: Index of the one row of each pair.
        right: Index of the other, as many.

    Cost: the first column of all pairs; each further one only of the pairs that are still equal.
    """
    return _narrow([(column, column) for column in columns], left, right)


def equal_across(left: Sequence[pa.Array], left_at: Longs, right: Sequence[pa.Array], right_at: Longs) -> Mask:
    """Return as `equal_rows` for pairs whose rows lie in different batches of the same types."""
    return _narrow(list(zip(left, right, strict=True)), left_at, right_at)


def _narrow(columns: Sequence[tuple[pa.Array, pa.Array]], left: Longs, right: Longs) -> Mask:
    still = np.arange(left.size)
    # What is cheap to compare first.
    for ours, theirs in sorted(columns, key=lambda pair: _effort(pair[0].type)):
        if not still.size:
            break
        same = equal_values(ours.take(pa.array(left[still])), theirs.take(pa.array(right[still])))
        still = still[same]
    result = np.zeros(left.size, np.bool_)
    result[still] = True
    return result


def equal_values(left: pa.Array, right: pa.Array) -> Mask:
    """Return for each place of two columns of one type and length whether they hold the same value."""
    if not len(left):
        return np.zeros(0, np.bool_)
    if not (left.null_count or right.null_count):
        return _equal(left, right)
    ours, theirs = _valid(left), _valid(right)
    same: Mask = (ours == theirs) & (~ours | _equal(left, right))
    return same


def _effort(type: pa.DataType) -> int:
    if pa.types.is_nested(type):
        return 3
    return 0 if pa.types.is_primitive(type) else 2 if pa.types.is_binary(type) or pa.types.is_string(type) else 1


def _valid(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return _mask(column.is_valid())


def _mask(column: pa.Array) -> Mask:
    values: Mask = column.to_numpy(zero_copy_only=False)
    return values


def _equal(left: pa.Array, right: pa.Array) -> Mask:
    """Compare where both are valid; anything may come out elsewhere."""
    kind = left.type
    if pa.types.is_boolean(kind) or pa.types.is_primitive(kind):
        same: Mask = fixed_values(left) == fixed_values(right)
    elif pa.types.is_decimal128(kind):
        same = np.asarray((word_pairs(left) == word_pairs(right)).all(axis=1), np.bool_)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        same = _equal_lists(left, right)
    elif pa.types.is_struct(kind):
        fields = [equal_values(left.field(index), right.field(index)) for index in range(kind.num_fields)]
        same = np.logical_and.reduce(fields)
    else:
        same = _mask(pc.fill_null(pc.equal(left, right), False))
    return same


def _equal_lists(left: pa.Array, right: pa.Array) -> Mask:
    lengths = _lengths(left)
    same: Mask = _valid(left) & _valid(right) & (lengths == _lengths(right))
    chosen = pa.array(same)
    elements = equal_values(_elements(left.filter(chosen)), _elements(right.filter(chosen)))
    wrong = np.concatenate([[0], np.cumsum(~elements)])
    edges = np.concatenate([[0], np.cumsum(lengths[same])])
    same[same] = wrong[edges[1:]] == wrong[edges[:-1]]
    return same


def _elements(column: pa.Array) -> pa.Array:
    """Return the elements of lists or maps none of which is null, one after another."""
    if not pa.types.is_map(column.type):
        return column.flatten()
    pairs = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    edges = np.frombuffer(column.buffers()[1], np.int32, count=len(column) + 1, offset=4 * column.offset)
    return pairs.slice(int(edges[0]), int(edges[-1] - edges[0]))


def _lengths(column: pa.Array) -> Longs:
    edges = np.frombuffer(column.buffers()[1], np.int32, count=len(column) + 1, offset=4 * column.offset)
    return np.diff(edges).astype(np.int64)


def group_keys(hashes: Hashes, columns: Sequence[pa.Array], is_exact: bool) -> tuple[Longs, Longs]:
    """Return each row's group, and the first row of each group: rows of one group have one key.

    When all keys differ, each row is the group of its own number.

    Args:
        hashes: Of the keys.
        columns: The keys.
        is_exact: Whether keys are equal just when their hashes are.

    Cost: a sort of the hashes; comparisons of keys only for rows whose hash occurs twice.
    """
    groups, leaders = _by_hash(hashes)
    if is_exact or leaders.size == groups.size:
        return groups, leaders
    firsts = [leaders]
    known = leaders.size
    rows = np.arange(groups.size)
    others = rows[leaders[groups] != rows]
    while others.size:
        # Of each hash: rows that have another key than the group's first row make a new group, led by their first.
        led = np.concatenate(firsts)[groups[others]]
        others = others[~equal_rows(columns, others, led)]
        if others.size:
            again, heads = _by_hash(hashes[others])
            groups[others] = known + again
            firsts.append(others[heads])
            known += heads.size
            others = others[heads[again] != np.arange(others.size)]
    return (rows, rows) if known == rows.size else (groups, np.concatenate(firsts))


def _by_hash(hashes: Hashes) -> tuple[Longs, Longs]:
    count = hashes.size
    order = np.argsort(hashes)
    ordered = hashes[order]
    fresh = np.ones(count, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    if fresh.all():
        return np.arange(count), np.arange(count)
    starts = np.flatnonzero(fresh)
    groups = np.empty(count, np.int64)
    groups[order] = np.cumsum(fresh) - 1
    return groups, np.minimum.reduceat(order, starts)
