"""The layout of a Fluss table in Iceberg: schema, partition spec, sort order, and the check that it is unchanged.

Source: FIP "Iceberg tiering", "IcebergLakeCatalog". The names of the user's columns are those of the table when it was
created; from then on columns are known by field id, so that a rename in the lake by another engine changes nothing.
Which Fluss column (by column id) has which field ids is a property of the lake table, `FIELD_IDS_PROPERTY`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.table.type_mapping import (
    arrow_field,
    arrow_ids,
    arrow_names,
    holds,
    ids_of,
    inner_fields,
    lake_field,
)
from fluss_lab.lake.system_columns import BUCKET_COLUMN, OFFSET_COLUMN, SYSTEM_COLUMNS, SYSTEM_FIELDS, TIMESTAMP_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.model.values.required_fields import cast_column

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.name_mapping import NameMapping

FORMAT_VERSION: Final = 2
TABLE_ID_PROPERTY: Final = "fluss.table-id"
#: JSON: by Fluss column id, or name of a system column, the field's id and those inside it, depth first.
FIELD_IDS_PROPERTY: Final = "fluss.field-ids"
#: What becomes of a lake table that cannot be used: a new one.
MAKE_ANEW: Final = (
    "where what only the lake holds may be lost, drop the lake table, disable and enable the lake for the table, and run "
    "'fluss-lab repair TABLE --adopt'"
)
_MEND: Final = f"undo that change in the lake; or, {MAKE_ANEW}"


@dataclass(frozen=True)
class LakeLayout:
    """What fluss_lab makes of one table in Iceberg.

    Attributes:
        schema: The user's columns in order, under their Fluss names, then the system columns; with the field ids of
            the lake. It is what reads and writes go by; the lake's own schema may call columns otherwise. The columns
            of the primary key are its identifier fields; a log table has none.
        spec: Partition columns by identity, then the bucket.
        sort_order: Ascending by offset.
    """

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder

    @cached_property
    def system_ids(self) -> tuple[int, int, int]:
        """Return the field ids of bucket, offset and timestamp."""
        bucket, offset, timestamp = (self.schema.find_field(name).field_id for name in SYSTEM_COLUMNS)
        return bucket, offset, timestamp

    def field_ids_json(self, table: TableInfo) -> str:
        """Return the value of `FIELD_IDS_PROPERTY`."""
        keys = [str(column.column_id) for column in table.schema.columns] + list(SYSTEM_COLUMNS)
        ids = {key: ids_of(field) for key, field in zip(keys, self.schema.fields, strict=True)}
        return json.dumps(ids, separators=(",", ":"))


def new_layout(table: TableInfo) -> LakeLayout:
    """Return the layout of a table that is about to be made, with the field ids that every Iceberg catalog will give it."""
    numbers = count(1)
    fields = [lake_field(column.name, column.type, numbers, column.comment) for column in table.schema.columns]
    provisional = Schema(*fields, *(system_field(name, next(numbers)) for name in SYSTEM_COLUMNS))
    return _lay_out(table, assign_fresh_schema_ids(_with_identifiers(table, provisional)))


def system_field(name: str, field_id: int) -> NestedField:
    """Return the Iceberg field of a system column: required, as in Apache Fluss."""
    types = {BUCKET_COLUMN: IntegerType(), OFFSET_COLUMN: LongType(), TIMESTAMP_COLUMN: TimestamptzType()}
    return NestedField(field_id, name, types[name], required=True)


def known_layout(table: TableInfo, lake: Table) -> LakeLayout:
    """Return the layout of a table that exists, by the field ids that were kept with it. Nothing is compared.

    Raises:
        UnsupportedError: It was not made by fluss_lab, or has columns that it knows nothing of.
    """
    return layout_by(table, lake, kept_field_ids(table, lake))


def readable_layout(table: TableInfo, lake: Table) -> LakeLayout:
    """Return the layout of a table that exists and whose files can be read.

    Whoever renamed or moved columns, made them optional or widened their types: columns are found by field id. One that
    was dropped is refused, though older files have it: newer ones do not, and its nulls would look like others.

    Raises:
        UnsupportedError: As `known_layout`; or a column is gone, or of a type that Iceberg cannot make of it.
    """
    layout = known_layout(table, lake)
    current = lake.schema()
    for field in layout.schema.fields:
        _check_readable(f"lake table {table.path}: column {field.name!r}", field, current)
    return layout


def _check_readable(what: str, field: NestedField, current: Schema) -> None:
    try:
        found = current.find_field(field.field_id)
    except ValueError:
        raise UnsupportedError(
            f"{what} (field id {field.field_id}) is gone: another engine dropped it in the lake, and files written since lack its "
            f"values; {_MEND}"
        ) from None
    inner = inner_fields(field.field_type)
    if not inner and not holds(found.field_type, field.field_type):
        raise UnsupportedError(f"{what}: expected type {field.field_type}, found {found.field_type}; {_MEND}")
    for each in inner:
        _check_readable(what, each, current)


def kept_field_ids(table: TableInfo, lake: Table) -> dict[str, list[int]]:
    """Return the field ids that were kept with a table that exists: see `FIELD_IDS_PROPERTY`.

    Raises:
        UnsupportedError: There are none.
    """
    try:
        raw = json.loads(lake.properties.get(FIELD_IDS_PROPERTY, ""))
        return {str(key): [int(field_id) for field_id in ids] for key, ids in raw.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _unknown_fields(table, lake) from error


def layout_by(table: TableInfo, lake: Table, kept: Mapping[str, Sequence[int]]) -> LakeLayout:
    """Return the layout of a table by field ids like those of `kept_field_ids`.

    Raises:
        UnsupportedError: They do not have all of its columns.
    """
    try:
        fields = [
            lake_field(column.name, column.type, iter(kept[str(column.column_id)]), column.comment)
            for column in table.schema.columns
        ]
        system = [system_field(name, kept[name][0]) for name in SYSTEM_COLUMNS]
    except (KeyError, StopIteration, IndexError) as error:
        raise _unknown_fields(table, lake) from error
    return _lay_out(table, _with_identifiers(table, Schema(*fields, *system)))


def _unknown_fields(table: TableInfo, lake: Table) -> UnsupportedError:
    return UnsupportedError(
        f"lake table {table.path}: property {FIELD_IDS_PROPERTY!r} does not hold the field ids of the table's columns (found "
        f"{lake.properties.get(FIELD_IDS_PROPERTY)!r}): the table was not made by fluss_lab, or another program changed the property"
    )


def _with_identifiers(table: TableInfo, schema: Schema) -> Schema:
    """Return a schema with the columns of the primary key as its identifier fields, in the key's order."""
    ids = [schema.find_field(name).field_id for name in table.schema.primary_key]
    return Schema(*schema.fields, identifier_field_ids=ids)


def _lay_out(table: TableInfo, schema: Schema) -> LakeLayout:
    return LakeLayout(
        schema,
        _spec(table, schema),
        SortOrder(SortField(schema.find_field(OFFSET_COLUMN).field_id, IdentityTransform(), SortDirection.ASC)),
    )


def _spec(table: TableInfo, schema: Schema) -> PartitionSpec:
    descriptor = table.descriptor
    numbers = count(PARTITION_FIELD_ID_START)
    fields = [
        PartitionField(schema.find_field(name).field_id, next(numbers), IdentityTransform(), name)
        for name in descriptor.partitioned_by
    ]
    if descriptor.bucket_key:
        key = schema.find_field(descriptor.bucket_key[0])
        # Iceberg's own name of it; a user's column of that name takes precedence.
        taken = {name.lower() for name in table.schema.names}
        names = (f"{key.name}_bucket" + (f"_{number}" if number else "") for number in count())
        name = next(name for name in names if name.lower() not in taken)
        fields.append(PartitionField(key.field_id, next(numbers), BucketTransform(descriptor.buckets), name))
    else:
        bucket = schema.find_field(BUCKET_COLUMN)
        fields.append(PartitionField(bucket.field_id, next(numbers), IdentityTransform(), BUCKET_COLUMN))
    return PartitionSpec(*fields)


def check_owner(table: TableInfo, lake: Table) -> None:
    """Raise `UnsupportedError` where a lake table is that of another table, or of none."""
    if (found := lake.properties.get(TABLE_ID_PROPERTY)) != str(table.table_id):
        raise UnsupportedError(
            f"lake table {table.path}: expected {TABLE_ID_PROPERTY}={table.table_id}, found {found}: it belongs to another Fluss "
            "table, or to none. Bring back the one that it replaced; or rename it in the lake, disable and enable the lake for "
            f"the table to make a new one (what only the lake held is lost then), and run 'fluss-lab repair {table.path} --adopt'"
        )


def checked_layout(table: TableInfo, lake: Table) -> LakeLayout:
    """Return the layout of a table that exists and can still be written and read as it was made.

    What another engine may have done without harm: rename or move a column or a field within one, widen a type as Iceberg
    allows, add optional ones, give a log table identifier fields.

    Raises:
        UnsupportedError: Anything else was changed; the text names it.
    """
    what = f"lake table {table.path}"
    if (version := lake.format_version) != FORMAT_VERSION:
        raise UnsupportedError(
            f"{what}: expected format version {FORMAT_VERSION}, found {version}; fluss_lab does not write it"
        )
    check_owner(table, lake)
    layout = known_layout(table, lake)
    current = lake.schema()
    known = {field_id for field in layout.schema.fields for field_id in ids_of(field)}
    for field in layout.schema.fields:
        _check_field(what, field, current)
    for field in current.fields:
        if field.required and field.field_id not in known:
            raise UnsupportedError(f"{what}: another engine added the required column {field.name!r}; make it optional")
    check_identifiers(what, layout.schema, current)
    check_spec(what, layout.spec, lake.spec())
    return layout


def _check_field(what: str, field: NestedField, current: Schema) -> None:
    try:
        found = current.find_field(field.field_id)
    except ValueError:
        raise UnsupportedError(f"{what}: column {field.name!r} (field id {field.field_id}) is gone; {_MEND}") from None
    if found.required and not field.required:
        raise UnsupportedError(f"{what}: column {field.name!r} was made required; make it optional")
    _check_type(f"{what}: column {field.name!r}", field, found)


def _check_type(what: str, field: NestedField, found: NestedField) -> None:
    expected, current = inner_fields(field.field_type), {each.field_id: each for each in inner_fields(found.field_type)}
    if not expected and not holds(found.field_type, field.field_type):
        raise UnsupportedError(f"{what}: expected type {field.field_type}, found {found.field_type}; {_MEND}")
    ids = {inner.field_id for inner in expected}
    added = [each for number, each in current.items() if number not in ids]
    if not ids <= current.keys() or any(each.required for each in added):
        raise UnsupportedError(
            f"{what}: expected the fields of {field.field_type}, found those of {found.field_type}; {_MEND}"
        )
    for inner in expected:
        if (now := current[inner.field_id]).required and not inner.required:
            raise UnsupportedError(f"{what}: its field {inner.name!r} was made required; make it optional")
        _check_type(what, inner, now)


def same_schema(one: Schema, other: Schema) -> bool:
    """Return whether two schemas have the same fields and the same identifier fields; catalogs order the latter freely."""
    same_fields = one.as_struct() == other.as_struct()
    return same_fields and set(one.identifier_field_ids) == set(other.identifier_field_ids)


def check_identifiers(what: str, expected: Schema, found: Schema) -> None:
    """Raise `UnsupportedError` unless the identifier fields are those of the primary key; without one, any will do."""
    wanted, present = set(expected.identifier_field_ids), set(found.identifier_field_ids)
    if wanted and wanted != present:
        raise UnsupportedError(
            f"{what}: expected the identifier fields {sorted(expected.identifier_field_names())}, those of the primary key, "
            f"found {sorted(found.identifier_field_names())}; {_MEND}"
        )


def partition_values(file: DataFile) -> list[Any]:
    """Return the partition values of a file, in the order of its spec."""
    return [file.partition[at] for at in range(len(file.partition))]


def check_spec(what: str, expected: PartitionSpec, found: PartitionSpec) -> None:
    """Raise `UnsupportedError` unless a partition spec cuts rows as expected; names do not matter."""
    if [(f.source_id, f.transform) for f in expected.fields] != [(f.source_id, f.transform) for f in found.fields]:
        raise UnsupportedError(f"{what}: expected partition spec {expected}, found {found}; {_MEND}")


#: Schemas of files that a table's columns were lately looked for in: few tables have files of more.
MATCHES_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """Which columns of a table a file has, and how.

    Attributes:
        plain: Those that lie in it exactly as fluss_lab lays them.
        absent: Those that it does not have at all.
        direct: Those that Arrow's scan reads right out of it: plain ones in the lake's types, and absent ones.
    """

    plain: frozenset[str]
    absent: frozenset[str]
    direct: frozenset[str]


@dataclass(frozen=True)
class LakeColumns:
    """The columns of a table as they are handed out, and as they are called and typed in the lake. Safe in any thread.

    Attributes:
        layout: Field ids and lake types.
        schema: The user's columns in Fluss's Arrow types, then the system columns.
        name_mapping: For files that others added without field ids; None when the table has none.
    """

    layout: LakeLayout
    schema: pa.Schema
    name_mapping: NameMapping | None = None

    @staticmethod
    def of(table: TableInfo, layout: LakeLayout, name_mapping: NameMapping | None = None) -> LakeColumns:
        """Return the columns of a Fluss table."""
        return LakeColumns(layout, pa.schema([*table.schema.arrow_schema, *SYSTEM_FIELDS]), name_mapping)

    def conform(self, rows: pa.RecordBatch, location: str) -> pa.RecordBatch:
        """Return rows of a file in the table's own types.

        Raises:
            CorruptDataError: A value is none of its column's type, or null where there is none.
        """
        fields = [self.schema.field(name) for name in rows.schema.names]
        columns = []
        for column, field in zip(rows.columns, fields, strict=True):
            if not field.nullable and column.null_count:
                raise CorruptDataError(f"lake file {location}: column {field.name!r} is NOT NULL, but holds nulls")
            try:
                columns.append(column if column.type == field.type else cast_column(column, field.type))
            except pa.ArrowException as error:
                raise CorruptDataError(f"lake file {location}: column {field.name!r}: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def names_in(self, expression: pc.Expression) -> list[str]:
        """Return the columns that an expression may speak of: those whose names its text holds, so maybe too many."""
        text = str(expression)
        return [name for name in self.schema.names if name in text]

    @cached_property
    def stored(self) -> Mapping[str, pa.Field]:
        """Return by name the columns in the Arrow types in which they are stored, each nullable: a file may lack it."""
        return {field.name: arrow_field(field).with_nullable(True) for field in self.layout.schema.fields}

    @cached_property
    def _matches(self) -> list[tuple[pa.Schema, ColumnMatch]]:
        return []

    def match(self, physical: pa.Schema) -> ColumnMatch:
        """Return which columns a file of some schema has; its seal, and what else is the file's own, does not matter."""
        physical = physical.remove_metadata()  # fields keep theirs: their ids
        for known, found in self._matches:
            if known.equals(physical, check_metadata=True):
                return found
        found = self._match(physical)
        self._matches[:] = [(physical, found), *self._matches[: MATCHES_KEPT - 1]]
        return found

    def _match(self, physical: pa.Schema) -> ColumnMatch:
        by_id = {ids[0]: (field, ids) for field in physical if (ids := arrow_ids(field)) is not None}
        has_all_ids = len(by_id) == len(physical)
        plain, absent = set(), set()
        for field in self.layout.schema.fields:
            if field.field_id in by_id:
                found, ids = by_id[field.field_id]
                same_names = arrow_names(found) == arrow_names(self.stored[field.name])
                if found.name == field.name and ids == ids_of(field) and same_names:
                    plain.add(field.name)
            elif has_all_ids and field.name not in physical.names and not field.required:
                absent.add(field.name)
        same = {name for name in plain if physical.field(name).type == self.stored[name].type}
        return ColumnMatch(frozenset(plain), frozenset(absent), frozenset(same | absent))


def user_names(columns: LakeColumns) -> list[str]:
    """Return the names of the user's columns, in order."""
    return list(columns.schema.names[: -len(SYSTEM_COLUMNS)])
