"""The pushdown of a filter: the part that a file reader may apply by itself, and what is to be applied to its rows again."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.read.filter import predicates as tree


def pushed_part(predicate: tree.Predicate) -> pc.Expression | None:
    """Return what a file reader may filter by itself: true wherever the filter is. None when that is nothing.

    Arrow trusts the statistics of Parquet files, which leave NaN out: by them a NaN can pass for a number. So
    nothing that is said of a FLOAT or DOUBLE is handed over, and nothing that may fail for a row.
    """
    return _without(predicate, _stays_here)


def is_left_over(predicate: tree.Predicate) -> bool:
    """Return whether rows that pass `pushed_part` must be filtered again."""
    return any(_stays_here(leaf) for leaf in tree.leaves(predicate))


def computes(predicate: tree.Predicate) -> bool:
    """Return whether a filter computes something, which Arrow does, and which may fail for a row."""
    return any(_is_computed(leaf) for leaf in tree.leaves(predicate))


def uncomputed_part(predicate: tree.Predicate) -> pc.Expression | None:
    """Return what a filter says without computing: true wherever it is. None when it computes nothing, or says no more."""
    return _without(predicate, _is_computed) if computes(predicate) else None


def _without(predicate: tree.Predicate, leaves: Callable[[tree.Leaf], bool]) -> pc.Expression | None:
    weaker = tree.decide(tree.weaken(predicate, leaves), {})
    return None if isinstance(weaker, tree.Constant) and weaker.value else tree.to_arrow(weaker)


def _stays_here(leaf: tree.Leaf) -> bool:
    return isinstance(leaf, tree.Applied) or bool(pa.types.is_floating(leaf.column.type))


def _is_computed(leaf: tree.Leaf) -> bool:
    return isinstance(leaf, tree.Applied)
