"""The pruning of data files: whether one can hold rows for which a filter is true, by its partition values and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from fluss_lab.errors import InvalidFilterError
from fluss_lab.lake.iceberg.table.layout import LakeColumns
from fluss_lab.lake.iceberg.table.type_mapping import wide_field

if TYPE_CHECKING:
    from pyiceberg.table import Table


def pruning(lake: Table, columns: LakeColumns, where: Any) -> Callable[[DataFile], bool]:
    """Return the test of whether a data file can hold rows for which a filter is true.

    Args:
        lake: The table.
        columns: Its columns, as the filter calls them.
        where: A pyiceberg expression; None: everything is wanted.

    Raises:
        InvalidFilterError: It is none, names no column of the table, or compares it with what it is not.
    """
    if where is None or isinstance(where, AlwaysTrue):
        return lambda _: True
    if not isinstance(where, BooleanExpression):
        raise InvalidFilterError(f"filter for the lake: expected a pyiceberg expression, found {type(where).__name__}")
    try:
        return _Pruning(lake, columns, where)
    except (ValueError, TypeError) as error:
        raise InvalidFilterError(f"filter {where}: {error}") from error


class _Pruning:
    """Decides from partition values and metrics whether a file can hold rows for which an expression is true."""

    def __init__(self, lake: Table, columns: LakeColumns, where: BooleanExpression) -> None:
        schema = _filter_schema(lake, columns)
        self._metrics = _InclusiveMetricsEvaluator(schema, where).eval
        spec = columns.layout.spec
        projected = inclusive_projection(schema, spec)(where)
        partition_schema = Schema(*spec.partition_type(schema).fields)
        self._partition = expression_evaluator(partition_schema, projected, case_sensitive=True)

    def __call__(self, file: DataFile) -> bool:
        return self._partition(file.partition) and self._metrics(file)


def _filter_schema(lake: Table, columns: LakeColumns) -> Schema:
    """Return the columns and their fields under their Fluss names, with the types that they have in the lake now, for bounds of either."""
    current = lake.schema()
    fields = []
    for field in columns.layout.schema.fields:
        try:
            required = current.find_field(field.field_id).required
        except ValueError:
            required = field.required
        wide = wide_field(field, current)
        fields.append(NestedField(wide.field_id, wide.name, wide.field_type, required=required))
    return Schema(*fields)
