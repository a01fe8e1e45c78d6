"""Fluss types as Iceberg types, and Iceberg types as the Arrow types that their Parquet files are written in.

Source: FIP "Iceberg tiering"; Apache Fluss's type mapping (TINYINT and SMALLINT become int, CHAR string, BINARY binary).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from fluss_lab.errors import UnsupportedError
from fluss_lab.model import DataType

#: Where Parquet keeps the id of a field, as pyarrow writes and reads it.
FIELD_ID_KEY: Final = b"PARQUET:field_id"

_ICEBERG: Final[dict[str, Callable[[], PrimitiveType]]] = {
    "BOOLEAN": BooleanType, "TINYINT": IntegerType, "SMALLINT": IntegerType, "INT": IntegerType, "BIGINT": LongType,
    "FLOAT": FloatType, "DOUBLE": DoubleType, "CHAR": StringType, "STRING": StringType, "BINARY": BinaryType,
    "BYTES": BinaryType, "DATE": DateType, "TIME": TimeType, "TIMESTAMP": TimestampType, "TIMESTAMP_LTZ": TimestamptzType,
}  # fmt: skip
_ARROW: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(), IntegerType: pa.int32(), LongType: pa.int64(), FloatType: pa.float32(),
    DoubleType: pa.float64(), StringType: pa.string(), BinaryType: pa.binary(), DateType: pa.date32(),
    TimeType: pa.time64("us"), TimestampType: pa.timestamp("us"), TimestamptzType: pa.timestamp("us", "UTC"),
}  # fmt: skip


def lake_field(name: str, dtype: DataType, ids: Iterator[int], doc: str | None = None) -> NestedField:
    """Return the Iceberg field of a Fluss column or nested field.

    Args:
        name: Its name in the lake.
        dtype: Its Fluss type.
        ids: The field ids to use: the field's own, then those inside it, depth first (the order of `ids_of`).
        doc: The column's comment.
    """
    field_id = next(ids)
    return NestedField(field_id, name, _lake_type(dtype, ids), required=not dtype.nullable, doc=doc)


def _lake_type(dtype: DataType, ids: Iterator[int]) -> IcebergType:
    if (primitive := _ICEBERG.get(dtype.name)) is not None:
        return primitive()
    match dtype.name:
        case "DECIMAL":
            return DecimalType(*dtype.parameters)
        case "ARRAY":
            inner = lake_field("element", dtype.fields[0].type, ids)
            return ListType(inner.field_id, inner.field_type, element_required=inner.required)
        case "MAP":
            key = lake_field("key", dtype.fields[0].type, ids)
            value = lake_field("value", dtype.fields[1].type, ids)
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
        case _:
            return StructType(*[lake_field(field.name, field.type, ids) for field in dtype.fields])


def inner_fields(field_type: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields directly inside a type: of a struct, the element of a list, key and value of a map."""
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return (field_type.key_field, field_type.value_field)
        case _:
            return ()


def ids_of(field: NestedField) -> list[int]:
    """Return the ids of a field and of all fields inside it, depth first."""
    return [field.field_id, *(inner_id for inner in inner_fields(field.field_type) for inner_id in ids_of(inner))]


def holds(wider: IcebergType, narrower: IcebergType) -> bool:
    """Return whether a primitive type is another one or one that Iceberg lets it be promoted to."""
    if wider == narrower:
        return True
    match narrower, wider:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return wider.scale == narrower.scale and wider.precision >= narrower.precision
        case _:
            return False


def wide_field(field: NestedField, others: Schema) -> NestedField:
    """Return a field with each type in it, at any depth, as wide as others have it: widened by another engine.

    Args:
        field: By its own names.
        others: Columns of a file, or of the lake table now, by whatever names: found by their ids.
    """
    return NestedField(field.field_id, field.name, _wide_type(field, others), required=field.required)


def _wide_type(field: NestedField, others: Schema) -> IcebergType:
    kind, inner = field.field_type, [wide_field(each, others) for each in inner_fields(field.field_type)]
    match kind:
        case StructType():
            return StructType(*inner)
        case ListType():
            (element,) = inner
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType():
            key, value = inner
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
    try:
        found = others.find_field(field.field_id).field_type
    except ValueError:
        return kind
    return found if found.is_primitive and holds(found, kind) else kind


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a lake table as they are written: Arrow types, field ids in the metadata."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: NestedField) -> pa.Field:
    """Return the Arrow field in which an Iceberg field is written, its ids (nested ones too) in the metadata.

    Raises:
        UnsupportedError: A type that fluss_lab never makes; another engine changed the table.
    """
    metadata = {FIELD_ID_KEY: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type), nullable=not field.required, metadata=metadata)


def arrow_type(field_type: IcebergType) -> pa.DataType:
    """Return the Arrow type in which values of an Iceberg type are written."""
    if (simple := _ARROW.get(type(field_type))) is not None:
        return simple
    match field_type:
        case DecimalType():
            return pa.decimal128(field_type.precision, field_type.scale)
        case FixedType():
            return pa.binary(len(field_type))
        case UUIDType():
            return pa.binary(16)
        case StructType():
            return pa.struct([arrow_field(inner) for inner in field_type.fields])
        case ListType():
            return pa.list_(arrow_field(field_type.element_field))
        case MapType():
            return pa.map_(arrow_field(field_type.key_field), arrow_field(field_type.value_field))
        case _:
            raise UnsupportedError(f"Iceberg type {field_type}: fluss_lab neither makes nor writes it")


def arrow_ids(field: pa.Field) -> list[int] | None:
    """Return the ids in an Arrow field's metadata and inside it, depth first; None when one has none."""
    raw = (field.metadata or {}).get(FIELD_ID_KEY)
    if raw is None:
        return None
    found = [int(raw)]
    for inner in _arrow_inner(field.type):
        ids = arrow_ids(inner)
        if ids is None:
            return None
        found += ids
    return found


def _arrow_inner(arrow: pa.DataType) -> list[pa.Field]:
    types = pa.types
    if types.is_struct(arrow):
        return list(arrow)
    if types.is_map(arrow):
        return [arrow.key_field, arrow.item_field]
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return [arrow.value_field]
    return []


def arrow_names(field: pa.Field) -> list[str]:
    """Return the names of struct fields inside an Arrow field, depth first. Arrow casts structs by these names."""
    named = [inner.name for inner in field.type] if pa.types.is_struct(field.type) else []
    return [*named, *(name for inner in _arrow_inner(field.type) for name in arrow_names(inner))]
