"""Fluss types as Spark types, and the Arrow types in which Spark takes their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import UnsupportedError
from fluss_lab.model import DataType, Schema
from fluss_lab.read.changelog.changelog import BUCKET, CHANGE_TYPE, COMMIT_TIMESTAMP, LOG_OFFSET, PARTITION
from fluss_lab.read.union.read_columns import SOURCE_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql import types as T  # noqa: N812 - its usual name

#: Spark counts times in microseconds.
PRECISION_MAX: Final = 6
#: Spark 4.3 has TIME behind a switch.
TIME_SETTING: Final = "spark.sql.timeType.enabled"

_INT: Final = DataType("INT")
_BIGINT: Final = DataType("BIGINT")
_STRING: Final = DataType("STRING")
_MOMENT: Final = DataType("TIMESTAMP_LTZ", (PRECISION_MAX,))
#: The columns that reads give beside the user's, in Fluss's types.
SYSTEM_COLUMNS: Final = {
    "__bucket": _INT, "__offset": _BIGINT, "__timestamp": _MOMENT, SOURCE_COLUMN: _STRING,
    CHANGE_TYPE: _STRING, PARTITION: _STRING, BUCKET: _INT, LOG_OFFSET: _BIGINT, COMMIT_TIMESTAMP: _MOMENT,
}  # fmt: skip


def spark_type(dtype: DataType, column: str) -> T.DataType:
    """Return the Spark type of a Fluss type.

    Args:
        column: Its column, for messages.

    Raises:
        UnsupportedError: A time finer than microseconds.
    """
    from pyspark.sql import types as T  # noqa: N812

    if dtype.name in {"TIME", "TIMESTAMP", "TIMESTAMP_LTZ"} and dtype.precision > PRECISION_MAX:
        raise UnsupportedError(
            f"column {column!r}: {dtype} is finer than Spark's microseconds; leave the column out, or read with to_arrow()"
        )
    simple: dict[str, T.DataType] = {
        "BOOLEAN": T.BooleanType(), "TINYINT": T.ByteType(), "SMALLINT": T.ShortType(), "INT": T.IntegerType(),
        "BIGINT": T.LongType(), "FLOAT": T.FloatType(), "DOUBLE": T.DoubleType(), "CHAR": T.StringType(),
        "STRING": T.StringType(), "BINARY": T.BinaryType(), "BYTES": T.BinaryType(), "DATE": T.DateType(),
        "TIMESTAMP": T.TimestampNTZType(), "TIMESTAMP_LTZ": T.TimestampType(),
    }  # fmt: skip
    if (found := simple.get(dtype.name)) is not None:
        return found
    match dtype.name:
        case "DECIMAL":
            return T.DecimalType(*dtype.parameters)
        case "TIME":
            return T.TimeType(dtype.precision)
        case "ARRAY":
            return T.ArrayType(spark_type(dtype.fields[0].type, column))
        case "MAP":
            key, value = (spark_type(field.type, column) for field in dtype.fields)
            return T.MapType(key, value)
        case _:
            return T.StructType([T.StructField(f.name, spark_type(f.type, f"{column}.{f.name}")) for f in dtype.fields])


def wanted_schema(schema: Schema, columns: Sequence[str]) -> T.StructType:
    """Return the Spark schema of some of a table's columns and those that reads give beside them.

    Raises:
        UnsupportedError: A time finer than microseconds.
    """
    from pyspark.sql import types as T  # noqa: N812

    types = SYSTEM_COLUMNS | {column.name: column.type for column in schema.columns}
    return T.StructType([T.StructField(name, spark_type(types[name], name)) for name in columns])


def stored_schema(wanted: T.StructType) -> T.StructType:
    """Return the schema in which rows of a Spark schema come from Parquet and Arrow."""
    from pyspark.sql import types as T  # noqa: N812

    return T.StructType([T.StructField(field.name, stored_type(field.dataType)) for field in wanted.fields])


def stored_type(wanted: T.DataType) -> T.DataType:
    """Return the type in which values of a Spark type come from Parquet and Arrow: TIME always to the microsecond."""
    from pyspark.sql import types as T  # noqa: N812

    match wanted:
        case T.TimeType():
            return T.TimeType(PRECISION_MAX)
        case T.ArrayType():
            return T.ArrayType(stored_type(wanted.elementType))
        case T.MapType():
            return T.MapType(stored_type(wanted.keyType), stored_type(wanted.valueType))
        case T.StructType():
            return stored_schema(wanted)
        case _:
            return wanted


def has_time(dtype: DataType) -> bool:
    """Return whether a type is TIME or has one inside."""
    return dtype.name == "TIME" or any(has_time(field.type) for field in dtype.fields)


def allow_time(session: SparkSession) -> None:
    """Switch on Spark's TIME type for a session; without it no frame may have such a column."""
    if session.conf.get(TIME_SETTING, "false") != "true":
        session.conf.set(TIME_SETTING, "true")


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the one Arrow schema in which Spark takes rows of a Spark schema: all nullable, UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in Spark's Arrow types, by position.

    Raises:
        UnsupportedError: A value that Spark's type does not hold.
    """
    import pyarrow as pa

    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        except pa.ArrowException as error:
            raise UnsupportedError(
                f"column {field.name!r}: a value does not fit Spark's {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_nulls(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches whose further columns, which a schema has behind theirs, are null."""
    import pyarrow as pa

    for batch in batches:
        nulls = [pa.nulls(batch.num_rows, field.type) for field in list(schema)[batch.num_columns :]]
        yield pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=schema)
