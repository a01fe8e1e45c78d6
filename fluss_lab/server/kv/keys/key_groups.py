"""The groups of a batch's rows that have the same key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fluss_lab.server.kv.keys.key_hashes import Hashes, Longs
from fluss_lab.server.kv.keys.row_equality import equal_rows


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
