"""Filters as people write them, and as readers need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import Schema
from fluss_lab.read.filter import predicates as tree
from fluss_lab.read.filter.arrow_expression import ExpressionForm
from fluss_lab.read.filter.arrow_filter import predicate_of_arrow
from fluss_lab.read.filter.filter_pushdown import is_left_over, pushed_part, uncomputed_part
from fluss_lab.read.filter.iceberg_filter import predicate_of_iceberg, pruning_of
from fluss_lab.read.filter.typed_conditions import Conditions

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

#: The system columns, in the types in which every read gives them.
SYSTEM_TYPES: Final = {"__bucket": pa.int32(), "__offset": pa.int64(), "__timestamp": pa.timestamp("us", "UTC")}

_TEXT_SHOWN: Final = 300
#: How many filters are kept with a schema, and how long the text of one may be: some 10 kB each, 300 kB of the longest.
_KEPT: Final = 8
_TEXT_KEPT_MAX: Final = 512


@dataclass(frozen=True)
class Filter:
    """A checked filter: rows for which it is not true are left out. Nobody changes it: threads may share it.

    Attributes:
        text: As it was written, a long one cut.
        columns: The columns it looks at, of the user's and the system's.
        expression: For Arrow data in the table's own types.
        predicate: What it says, as a tree.
    """

    text: str
    columns: frozenset[str]
    expression: pc.Expression
    predicate: tree.Predicate

    def __repr__(self) -> str:
        return f"<Filter {self.text}>"

    @cached_property
    def pushed(self) -> pc.Expression | None:
        """Return what a file reader may filter by itself; see `pushed_part`."""
        return pushed_part(self.predicate)

    @cached_property
    def left_over(self) -> bool:
        """Return whether rows that pass `pushed` must be filtered again."""
        return is_left_over(self.predicate)

    @cached_property
    def _uncomputed(self) -> pc.Expression | None:
        return uncomputed_part(self.predicate)

    def prune(self) -> BooleanExpression | None:
        """Return a pyiceberg expression that is true wherever the filter is; None when there is nothing to prune by."""
        return self._pruning

    @cached_property
    def _pruning(self) -> BooleanExpression | None:
        return pruning_of(self.predicate)

    def decide(self, known: Mapping[str, Any]) -> Filter | bool:
        """Return what is left of the filter where some columns have one known value; True or False when it is decided.

        Args:
            known: Column names to the value (never null) that all rows at hand have.
        """
        return self._undecided if self.columns.isdisjoint(known) else self._decide(known)

    @cached_property
    def _undecided(self) -> Filter | bool:
        return self._decide({})

    def _decide(self, known: Mapping[str, Any]) -> Filter | bool:
        left = tree.decide(self.predicate, known)
        if isinstance(left, tree.Constant):
            return bool(left.value)
        if left == self.predicate:
            return self
        return replace(self, columns=tree.column_names(left), expression=tree.to_arrow(left), predicate=left)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the filter is true, in the same order.

        Raises:
            InvalidFilterError: What it computes cannot be computed for some row: a number too large, text that is none. Of rows
                that its other conditions leave out nothing is computed.
        """
        if self._uncomputed is not None:
            batch = batch.filter(self._uncomputed)
        if not batch.num_rows:
            return batch
        try:
            return batch.filter(self.expression)
        except pa.ArrowException as error:
            raise tree.cannot_apply(error) from error


def compile_filter(where: object, schema: Schema) -> Filter | None:
    """Return a filter in the forms that readers need.

    Args:
        where: A pyarrow expression, a pyiceberg expression (unbound), SQL text (the grammar is in
            `fluss_lab.read.filter.where_clause`), a filter that was made already, or None. It may name the table's columns and
            ``__bucket``, ``__offset``, ``__timestamp``; in SQL in any case.
        schema: The table's.

    Returns:
        None for no filter. SQL and pyiceberg expressions go by SQL's three-valued logic, and a NaN compares by IEEE 754
        (it equals nothing and is neither above nor below). So does a pyarrow expression but for `isin`, which is never
        unknown; what has no word in SQL Arrow evaluates by its own rules.

    Raises:
        InvalidFilterError: It cannot be read, names an unknown column, or compares what cannot be compared.
    """
    if where is None or isinstance(where, Filter):
        return where
    if isinstance(where, str):
        return _kept_filters(schema)(where) if len(where) <= _TEXT_KEPT_MAX else _sql_filter(schema, where)
    types = column_types(schema)
    conditions = Conditions(types)
    if isinstance(where, pc.Expression):
        form = ExpressionForm(where)
        return filter_of(predicate_of_arrow(form, conditions, pa.schema(list(types.items())).empty_table()), form.text)
    if type(where).__module__.startswith("pyiceberg."):
        return filter_of(predicate_of_iceberg(where, conditions), _text_of(where))
    raise InvalidFilterError(
        f"where: expected SQL text, a pyarrow expression or a pyiceberg expression, found {type(where).__name__}"
    )


def prepare_sql() -> None:
    """Import what reads SQL text, so that the first filter does not wait for it: 0.1 to 0.4 s, once a process."""
    from fluss_lab.read.filter import where_clause  # noqa: F401


def _kept_filters(schema: Schema) -> Callable[[str], Filter]:
    """Return `_sql_filter` of a schema, which remembers the texts asked for last: a reader asks again and again."""
    kept: Callable[[str], Filter] | None = schema.derived.get("filters")
    return kept or schema.derived.setdefault("filters", lru_cache(_KEPT)(partial(_sql_filter, schema)))


def _sql_filter(schema: Schema, text: str) -> Filter:
    from fluss_lab.read.filter.where_clause import parse_sql  # here: sqlglot takes 0.1 s to import

    return filter_of(parse_sql(text, Conditions(column_types(schema))), text)


def filter_of(node: tree.Predicate, text: str) -> Filter:
    """Return the filter that a tree says; the tree's literals are of their columns' own types.

    Raises:
        InvalidFilterError: It is larger than a read can evaluate.
    """
    tree.check_size(node)
    shown = text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}... ({len(text)} characters)"
    return Filter(shown, tree.column_names(node), tree.to_arrow(node), node)


def column_types(schema: Schema) -> dict[str, pa.DataType]:
    """Return the types of the columns that a filter may name, of the user's and the system's."""
    return {field.name: field.type for field in schema.arrow_schema} | SYSTEM_TYPES


def _text_of(where: object) -> str:
    try:
        return str(where)
    except RecursionError:  # pyiceberg's chains are as deep as they are long
        return f"{type(where).__name__}(...)"
