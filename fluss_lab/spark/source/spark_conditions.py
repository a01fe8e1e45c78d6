"""Filters of scans as Spark conditions, true for exactly the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from fluss_lab.read.filter import predicates as tree
from fluss_lab.read.filter.filter_compiler import Filter
from fluss_lab.spark.source.spark_columns import quote

if TYPE_CHECKING:
    from pyspark.sql import Column


def spark_condition(where: Filter, types: Mapping[str, pa.DataType]) -> Column:
    """Return a filter as a Spark condition over columns of the same names.

    What is computed is computed by Arrow here too, in Spark's Python workers: it means the same.

    Args:
        where: The filter.
        types: Of the columns that it looks at, in Arrow.
    """
    return _condition(where.predicate, types)


def _condition(node: tree.Predicate, types: Mapping[str, pa.DataType]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    match node:
        case tree.Constant():
            return F.lit(bool(node.value))
        case tree.Junction():
            parts = [_condition(part, types) for part in node.parts]
            return tree.balance(parts, (lambda a, b: a & b) if node.all_of else (lambda a, b: a | b))
        case tree.Compare():
            return _comparison(node)
        case tree.Among():
            return _membership(node)
        case tree.Null():
            column = _column(node.column)
            return column.isNotNull() if node.negated else column.isNull()
        case tree.NotANumber():
            # Spark's isnan of null is false; of rows that are asked for, null is in neither.
            nan = F.isnan(_column(node.column))
            return ~nan & _column(node.column).isNotNull() if node.negated else nan
        case tree.Like():
            like = _column(node.column).like(node.pattern)
            return ~like if node.negated else like
        case tree.Applied():
            return _apply(node, types)


def _apply(node: tree.Applied, types: Mapping[str, pa.DataType]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.functions import arrow_udf

    names = list(dict.fromkeys(each.column for each in node.columns))
    # Spark gives times in the session's zone and to the microsecond, also those within a ROW.
    own = [_optional(types[name]) for name in names]

    def holds(*columns: pa.Array) -> pa.Array:
        rows = pa.table({name: array.cast(dtype) for name, array, dtype in zip(names, columns, own, strict=True)})
        places = pa.array(np.arange(rows.num_rows))
        try:
            kept = rows.append_column("\0row", places).filter(tree.to_arrow(node))["\0row"]
        except pa.ArrowException as error:
            raise tree.cannot_apply(error) from error
        mask = np.zeros(rows.num_rows, dtype=bool)
        mask[kept.to_numpy()] = True
        return pa.array(mask)

    udf: Any = arrow_udf  # its types leave functions of any number of columns out
    return cast("Column", udf(holds, "boolean")(*[F.col(quote(name)) for name in names]))


def _optional(dtype: pa.DataType) -> pa.DataType:
    """Return a type in which all that is within it may be null, as in what Spark gives."""
    if pa.types.is_struct(dtype):
        return pa.struct([(field.name, _optional(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(_optional(dtype.value_type))
    if pa.types.is_map(dtype):
        return pa.map_(_optional(dtype.key_type), _optional(dtype.item_type))
    return dtype


def _column(reference: tree.Reference) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quote(reference.path[0]))
    for name in reference.path[1:]:
        column = column.getField(name)
    return column


def _comparison(node: tree.Compare) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    column, value = _column(node.column), _literal(node.value)
    compared: dict[str, Column] = {
        "=": column == value, "!=": column != value, "<": column < value,
        "<=": column <= value, ">": column > value, ">=": column >= value,
    }  # fmt: skip
    condition = compared[node.operator]
    if not pa.types.is_floating(node.column.type):
        return condition
    if node.operator in {">", ">="}:
        # Spark sorts NaN above all numbers; here, as in IEEE 754, it is neither above nor below.
        condition = condition & ~F.isnan(column)
    return _keep_from_files(condition) if node.operator == "!=" or node.value.as_py() == 0 else condition


def _membership(node: tree.Among) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    column = _column(node.column)
    if node.negated and node.with_null:
        return F.lit(False)
    if not node.values:
        return column.isNotNull() if node.negated else F.lit(False)
    found = column.isin([_literal(value) for value in node.values])
    found = ~found if node.negated else found
    if not pa.types.is_floating(node.column.type):
        return found
    return _keep_from_files(found) if node.negated or any(value.as_py() == 0 for value in node.values) else found


def _keep_from_files(condition: Column) -> Column:
    """Keep a condition from being pushed to Parquet files.

    Their statistics leave NaN out, so what is true of NaN would lose it; and their readers distinguish -0.0 from 0.0, which
    are equal.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(condition, F.lit(False))


def _literal(value: pa.Scalar) -> Column:
    """Return a literal in the Spark type of its column's type; a cast of a literal is folded before filters are pushed."""
    from pyspark.sql import functions as F  # noqa: N812

    dtype = value.type
    if pa.types.is_timestamp(dtype):
        text = str(value.cast(pa.timestamp("us", dtype.tz)).cast(pa.string()).as_py())
        return F.lit(text).cast("timestamp_ltz" if dtype.tz else "timestamp_ntz")
    if pa.types.is_time(dtype):
        return F.lit(str(value.cast(pa.time64("us")).cast(pa.string()).as_py())).cast("time(6)")
    if pa.types.is_date(dtype):
        return F.lit(str(value.cast(pa.string()).as_py())).cast("date")
    if pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype):
        return F.lit(bytes(value.as_py()))
    if pa.types.is_decimal(dtype):
        return F.lit(value.as_py()).cast(f"decimal({dtype.precision},{dtype.scale})")
    names = {pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
             pa.float32(): "float", pa.float64(): "double"}  # fmt: skip
    literal = F.lit(value.as_py())
    return literal.cast(names[dtype]) if dtype in names else literal
