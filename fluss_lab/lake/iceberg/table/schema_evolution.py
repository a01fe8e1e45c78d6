"""A lake table's columns brought to those of its altered Fluss table, as one change of table metadata.

New columns stand before the system columns, under field ids that no column had. Columns that an alteration brought here and
that was then cut off or taken back go again: no file has them, since writers learn of a column only after it is certain.
Everything else in the lake's schema stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.iceberg.table.layout import LakeLayout, kept_field_ids, layout_by
from fluss_lab.lake.iceberg.table.type_mapping import ids_of, lake_field
from fluss_lab.lake.system_columns import BUCKET_COLUMN, SYSTEM_COLUMNS
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

#: How Iceberg calls the schema that the same commit adds.
_LAST_ADDED: Final = -1


@dataclass(frozen=True, slots=True)
class Evolution:
    """What is to be done to a lake table's schema.

    Attributes:
        layout: The table's layout afterwards.
        updates: Changes of table metadata; none when the columns are right already.
        requirements: What must hold for them.
    """

    layout: LakeLayout
    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] = ()


def evolution_of(table: TableInfo, lake: Table) -> Evolution:
    """Return how a lake table's columns become those of its Fluss table.

    Raises:
        UnsupportedError: The lake table was not made by fluss_lab, or has something of a new column's name already.
    """
    kept = kept_field_ids(table, lake)
    columns = {str(column.column_id): column for column in table.schema.columns}
    left = {key: ids for key, ids in kept.items() if key not in columns and key not in SYSTEM_COLUMNS}
    new = [column for key, column in columns.items() if key not in kept]
    fields = [field for field in lake.schema().fields if field.field_id not in {ids[0] for ids in left.values()}]
    numbers = count(lake.metadata.last_column_id + 1)
    added = [lake_field(column.name, column.type, numbers, column.comment) for column in new]
    _check_names(table, lake, fields, added)
    ids = {key: kept[key] for key in kept if key not in left}
    ids |= {str(column.column_id): ids_of(field) for column, field in zip(new, added, strict=True)}
    layout = layout_by(table, lake, ids)
    if not added and not left:
        return Evolution(layout)
    return Evolution(layout, *_changes(lake, _place_fields(fields, added, ids[BUCKET_COLUMN][0])))


def _place_fields(fields: list[NestedField], added: list[NestedField], bucket_id: int) -> list[NestedField]:
    at = next((index for index, field in enumerate(fields) if field.field_id == bucket_id), len(fields))
    return [*fields[:at], *added, *fields[at:]]


def _changes(lake: Table, fields: list[NestedField]) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    current = lake.schema()
    requirements = (
        AssertCurrentSchemaId.model_validate({"current-schema-id": current.schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": lake.metadata.last_column_id}),
    )
    schema_id = 1 + max(schema.schema_id for schema in lake.metadata.schemas)
    wanted = Schema(*fields, schema_id=schema_id, identifier_field_ids=current.identifier_field_ids)
    for known in lake.metadata.schemas:
        # As Iceberg's own code does: a schema that the table had before is not added again.
        if known == wanted:
            return (_current(known.schema_id),), requirements
    return (AddSchemaUpdate(schema=wanted), _current(_LAST_ADDED)), requirements


def _current(schema_id: int) -> TableUpdate:
    return SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id})


def _check_names(table: TableInfo, lake: Table, fields: list[NestedField], added: list[NestedField]) -> None:
    """Refuse names that something in the lake has: readers of Iceberg could not distinguish the two."""
    what = f"lake table {table.path}: new column"
    names = {field.name.lower() for field in fields}
    # An identity partition has its column's name, so that is among the columns.
    partitions = {field.name.lower() for spec in lake.metadata.partition_specs for field in spec.fields}
    for field in added:
        if field.name.lower() in names:
            raise UnsupportedError(
                f"{what} {field.name!r}: another engine added a column of that name in the lake; rename it there"
            )
        if field.name.lower() in partitions:
            raise UnsupportedError(
                f"{what} {field.name!r}: that is the name of a partition field in the lake; choose another name"
            )
