"""The descriptor of a table: definition, identity, and the checks of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import InvalidBucketsError, InvalidPropertyError, InvalidSchemaError, UnsupportedError
from fluss_lab.model.auto_partition import check_auto_partition
from fluss_lab.model.bucketing import bucketing_kind
from fluss_lab.model.config import options
from fluss_lab.model.format_versions import check_format
from fluss_lab.model.names import TablePath
from fluss_lab.model.schema import COMMENT_LENGTH_MAX, Schema, make_schema
from fluss_lab.model.times import format_moment
from fluss_lab.model.types import DataType

#: Of the JSON form.
FORMAT: Final = 1

BUCKETS_DEFAULT: Final = 1
#: Each is a folder level in the lake, and a part of every partition's name.
PARTITION_COLUMNS_MAX: Final = 16
#: Bytes of a definition as JSON: it travels with each table that a server holds, and with each task of a round.
DEFINITION_BYTES_MAX: Final = 1 << 20
#: How many definitions a cache keeps, and how long the text of one may be: at most 64 MiB of text.
_KEPT: Final = 1024
_TEXT_LENGTH_MAX: Final = 64 << 10
#: Types whose values have an order that a version can go by.
_VERSION_TYPES: Final = ("INT", "BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ")
_OF_KEYED_TABLES: Final = (options.MERGE_ENGINE, options.VERSION_COLUMN, options.DELETE_BEHAVIOR)


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """A checked table definition.

    Attributes:
        schema: Columns and primary key (with the partition columns, if any).
        partitioned_by: Partition columns, in order; STRING, NOT NULL.
        buckets: Buckets of the table, or of each partition.
        bucket_key: Columns whose values decide a row's bucket; empty: rows are spread over the buckets.
        properties: Checked properties, as strings.
        comment: For people.
    """

    schema: Schema
    partitioned_by: tuple[str, ...] = ()
    buckets: int = BUCKETS_DEFAULT
    bucket_key: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @property
    def lake_enabled(self) -> bool:
        """Return whether the table is tiered into the lake."""
        return options.DATALAKE_ENABLED.of(self.properties)

    @property
    def bucketing(self) -> str:
        """Return which hash assigns buckets: ``iceberg``, ``fluss``, or ``none`` without a bucket key.

        Source: cases 1 and 3 of specs FIP "Iceberg tiering": decided by the key alone, so that the
        lake can be enabled later without moving a row.
        """
        if not self.bucket_key:
            return "none"
        return bucketing_kind([self.schema.column(name).type.arrow() for name in self.bucket_key])

    @property
    def summary(self) -> str:
        """Return in one line what table it is: its key, how wide, in how many buckets."""
        key = ", ".join(self.schema.primary_key)
        kind = f"primary-key table ({key})" if key else "log table"
        lake = ", in the lake" if self.lake_enabled else ""
        return f"{kind}, {len(self.schema.columns)} columns, {self.buckets} buckets{lake}"

    def __repr__(self) -> str:
        return f"<TableDescriptor: {self.summary}>"

    def _repr_html_(self) -> str:
        return _definition_html(
            "TableDescriptor", "log table" if not self.schema.primary_key else "primary-key table", self
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only properties have no form in which they travel; a copy's are its own.
        values = (self.schema, self.partitioned_by, self.buckets, self.bucket_key, dict(self.properties), self.comment)
        return TableDescriptor, values

    def with_properties(self, properties: Mapping[str, str]) -> TableDescriptor:
        """Return the same definition with other (already checked) properties."""
        return replace(self, properties=dict(properties))

    def to_json(self) -> dict[str, Any]:
        """Return the definition in Apache Fluss's JSON form."""
        value: dict[str, Any] = {
            "version": FORMAT,
            "schema": self.schema.to_json(),
            "partition_key": list(self.partitioned_by),
            "bucket_key": list(self.bucket_key),
            "bucket_count": self.buckets,
            "properties": dict(self.properties),
            "custom_properties": {},
        }
        if self.comment is not None:
            value["comment"] = self.comment
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> TableDescriptor:
        """Read the JSON form of `to_json`. Nothing is checked beyond its shape: see `make_descriptor`.

        Raises:
            InvalidSchemaError: The form is not that of a table definition.
            UnsupportedError: A newer version wrote it.
        """
        try:
            check_format("table definition in JSON", value.get("version"), FORMAT)
            return TableDescriptor(
                Schema.from_json(value["schema"]),
                tuple(value.get("partition_key", ())),
                int(value["bucket_count"]),
                tuple(value.get("bucket_key", ())),
                {
                    str(k): str(v)
                    for k, v in {**value.get("properties", {}), **value.get("custom_properties", {})}.items()
                },
                value.get("comment"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidSchemaError(f"not a table definition in JSON: {error!r}") from error


def _definition_html(
    kind: str, name: object, definition: TableDescriptor, facts: Iterable[tuple[str, object]] = ()
) -> str:
    """Return a definition as a card: its properties, for the columns have a schema that shows them."""
    properties = sorted(definition.properties.items())
    return card(
        kind,
        name,
        [
            ("columns", len(definition.schema.columns)),
            ("key", ", ".join(definition.schema.primary_key) or None),
            ("partitioned by", ", ".join(definition.partitioned_by) or None),
            ("buckets", definition.buckets),
            ("bucket key", ", ".join(definition.bucket_key) or None),
            *facts,
            ("comment", definition.comment),
        ],
        grid=Grid(["property", "value"], [list(each) for each in properties[:CARD_ROWS_MAX]]) if properties else None,
        total=len(properties),
        noun="property",
        calls=[".schema.columns", ".properties"],
    )


@dataclass(frozen=True)
class TableInfo:
    """A table as the cluster knows it: path, ids, definition."""

    path: TablePath
    table_id: int
    schema_id: int
    descriptor: TableDescriptor
    created_ms: int
    modified_ms: int

    @cached_property
    def schema(self) -> Schema:
        """Return the current schema."""
        return self.descriptor.schema

    @cached_property
    def is_log_table(self) -> bool:
        """Return whether the table has no primary key."""
        return not self.descriptor.schema.primary_key

    def with_schema(self, schema_id: int, schema: Schema) -> TableInfo:
        """Return the table with the columns of another schema of its own."""
        return replace(self, schema_id=schema_id, descriptor=replace(self.descriptor, schema=schema))

    def __repr__(self) -> str:
        ids = f"table id {self.table_id}, schema id {self.schema_id}"
        return f"<TableInfo {self.path}, {ids}: {self.descriptor.summary}>"

    def _repr_html_(self) -> str:
        ids = [("table id", str(self.table_id)), ("schema id", str(self.schema_id))]
        times = [("made", format_moment(self.created_ms)), ("changed", format_moment(self.modified_ms))]
        return _definition_html("TableInfo", self.path, self.descriptor, [*ids, *times])


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as the cluster knows it."""

    partition_id: int
    name: str


def make_descriptor(
    schema: Any,
    *,
    primary_key: Iterable[str] | None = None,
    partitioned_by: Iterable[str] | None = None,
    buckets: int | None = None,
    bucket_key: Iterable[str] | None = None,
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    buckets_max: int = options.BUCKETS_MAX.default,
) -> TableDescriptor:
    """Return a checked table definition from what a person writes, as `fluss_lab.Lab.create_table` takes it.

    >>> flights = make_descriptor(
    ...     {"id": "bigint", "month": "string"}, primary_key=["id", "month"], partitioned_by=["month"]
    ... )
    >>> flights.bucket_key, flights.buckets
    (('id',), 1)

    Args:
        schema: In any form that `make_schema` takes.
        primary_key: None or nothing: a log table.
        partitioned_by: None or nothing: no partitions.
        buckets: None: one.
        bucket_key: None or nothing: the primary key without the partition columns; of a log table none.
        properties: Values by name.
        comment: For people.
        buckets_max: The most that `buckets` may be.

    Raises:
        InvalidSchemaError, InvalidNameError: Columns, types or keys that cannot be.
        InvalidBucketsError: A bucket count out of ``[1, buckets_max]``, or a bucket key that cannot be.
        InvalidPropertyError: An unknown or ill-typed property.
        UnsupportedError: Well-formed, but not done: the text says why.
    """
    for name, value in (("primary_key", primary_key), ("partitioned_by", partitioned_by), ("bucket_key", bucket_key)):
        if isinstance(value, str):
            raise InvalidSchemaError(f"{name}: expected a list of column names, found the string {value!r}")
    partitions = tuple(partitioned_by or ())
    key = tuple(bucket_key or ())
    made = make_schema(schema, primary_key or (), required=(*partitions, *key))
    checked = options.check_properties(properties or {})
    if not key and made.primary_key:
        key = tuple(name for name in made.primary_key if name not in partitions)
    count = BUCKETS_DEFAULT if buckets is None else buckets
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= buckets_max:
        raise InvalidBucketsError(f"buckets: expected a whole number in [1, {buckets_max}], found {buckets!r}")
    if comment is not None and (not isinstance(comment, str) or len(comment) > COMMENT_LENGTH_MAX):
        raise InvalidSchemaError(f"comment: expected a string of at most {COMMENT_LENGTH_MAX} characters")
    descriptor = TableDescriptor(made, partitions, count, key, checked, comment)
    check_descriptor(descriptor)
    return descriptor


def check_descriptor(descriptor: TableDescriptor) -> None:
    """Check that the parts of a definition, each right by itself, fit together: of a new table, or an altered one.

    Raises:
        InvalidSchemaError, InvalidBucketsError, InvalidPropertyError: They do not; or it is too large.
        UnsupportedError: It is lake-enabled, and the lake cannot hold it.
    """
    _check_keys(descriptor)
    _check_partitions(descriptor)
    _check_merging(descriptor.schema, descriptor.properties)
    check_auto_partition(descriptor.partitioned_by, descriptor.properties)
    if descriptor.lake_enabled:
        check_lake(descriptor)
    if (size := len(json.dumps(descriptor.to_json()))) > DEFINITION_BYTES_MAX:
        raise InvalidSchemaError(
            f"the table's definition is {size} bytes of JSON, expected at most {DEFINITION_BYTES_MAX}: use fewer columns, "
            "shorter comments, or fewer properties"
        )


def _check_keys(descriptor: TableDescriptor) -> None:
    primary, key, partitions = descriptor.schema.primary_key, descriptor.bucket_key, descriptor.partitioned_by
    if len(set(key)) != len(key):
        raise InvalidBucketsError(f"bucket key {list(key)}: a column appears twice")
    if both := [name for name in key if name in partitions]:
        raise InvalidBucketsError(
            f"bucket key {list(key)}: {both[0]!r} is a partition column; rows are cut by it already"
        )
    for name in (*primary, *key):
        if descriptor.schema.column(name).type.name in {"ARRAY", "MAP", "ROW"}:
            kind = "primary" if name in primary else "bucket"
            raise InvalidSchemaError(
                f"{kind} key column {name!r}: type {descriptor.schema.column(name).type} is no key type"
            )
    if primary:
        if absent := [name for name in partitions if name not in primary]:
            raise InvalidSchemaError(
                f"primary key {list(primary)}: expected it to include partition column {absent[0]!r}"
            )
        if not set(primary) - set(partitions):
            raise InvalidSchemaError(
                f"primary key {list(primary)}: expected a column that is not a partition column, for rows of one partition "
                "to differ by"
            )
        if outside := [name for name in key if name not in primary]:
            raise InvalidBucketsError(
                f"bucket key {list(key)}: {outside[0]!r} is not in the primary key {list(primary)}"
            )


def _check_partitions(descriptor: TableDescriptor) -> None:
    partitions = descriptor.partitioned_by
    if len(partitions) > PARTITION_COLUMNS_MAX:
        raise InvalidSchemaError(f"expected at most {PARTITION_COLUMNS_MAX} partition columns, found {len(partitions)}")
    if len(set(partitions)) != len(partitions):
        raise InvalidSchemaError(f"partitioned by {list(partitions)}: a column appears twice")
    if len(partitions) == len(descriptor.schema.columns):
        raise InvalidSchemaError("a table needs a column that is not a partition column")
    for name in partitions:
        if (found := descriptor.schema.column(name).type).name not in {"STRING", "CHAR"}:
            raise InvalidSchemaError(f"partition column {name!r}: expected STRING, found {found}")


def check_lake(descriptor: TableDescriptor) -> None:
    """Check that a table can be held in the lake.

    Raises:
        UnsupportedError: Bucketing case 2 of the FIP, a precision above microseconds, or a floating-point key.
    """
    if descriptor.bucketing == "fluss":
        types = ", ".join(f"{name} {descriptor.schema.column(name).type}" for name in descriptor.bucket_key)
        raise UnsupportedError(
            f"a lake-enabled table needs no bucket key or a single one that Iceberg can bucket by (int, bigint, decimal, "
            f"date, time, timestamp, string, binary), found ({types}): Iceberg has no multi-argument bucket transform. "
            f"Choose one such column, or leave {options.DATALAKE_ENABLED.key} off"
        )
    for column in descriptor.schema.columns:
        _check_lake_type(column.name, column.type)
    for name in descriptor.schema.primary_key:
        if descriptor.schema.column(name).type.name in {"FLOAT", "DOUBLE"}:
            raise UnsupportedError(f"key column {name!r}: Iceberg refuses FLOAT and DOUBLE as identifiers; use DECIMAL")


def _check_lake_type(name: str, dtype: DataType) -> None:
    if dtype.name in {"TIME", "TIMESTAMP", "TIMESTAMP_LTZ"} and dtype.precision > 6:
        raise UnsupportedError(f"column {name!r}: {dtype} is finer than Iceberg's microseconds; use {dtype.name}(6)")
    for inner in dtype.fields:
        _check_lake_type(f"{name}.{inner.name}", inner.type)


def _check_merging(schema: Schema, properties: Mapping[str, str]) -> None:
    """Check merge engine, version column and delete behavior: which of two rows of a key stays.

    Raises:
        InvalidPropertyError: They do not fit the table or each other; the text says why.

    Source: Apache Fluss ``TableDescriptorValidation``.
    """
    if not schema.primary_key:
        if given := [option.key for option in _OF_KEYED_TABLES if option.key in properties]:
            raise InvalidPropertyError(
                f"property {given[0]!r}: it is for primary-key tables; give the table a primary key"
            )
        return
    engine = options.MERGE_ENGINE.of(properties)
    version = options.VERSION_COLUMN.of(properties)
    if engine == "versioned":
        _check_version(schema, version)
    elif version:
        raise InvalidPropertyError(
            f"property {options.VERSION_COLUMN.key!r}: it is for {options.MERGE_ENGINE.key}=versioned, found {engine}"
        )
    if engine != "default" and options.DELETE_BEHAVIOR.of(properties) == "allow":
        raise InvalidPropertyError(
            f"property {options.DELETE_BEHAVIOR.key!r}: expected ignore or disable with {options.MERGE_ENGINE.key}={engine}, "
            "whose rows cannot be deleted, found allow"
        )


def _check_version(schema: Schema, name: str) -> None:
    what = f"property {options.VERSION_COLUMN.key!r}"
    if not name:
        raise InvalidPropertyError(f"{what}: expected a column with {options.MERGE_ENGINE.key}=versioned, found none")
    if name not in schema.names:
        raise InvalidPropertyError(f"{what}: expected one of the columns {', '.join(schema.names)}, found {name!r}")
    if (found := schema.column(name).type).name not in _VERSION_TYPES:
        raise InvalidPropertyError(
            f"{what}: expected a column of type {', '.join(_VERSION_TYPES)}, found {name!r} of type {found}"
        )


class DefinitionCache:
    """Definitions by their JSON text, parsed once: one comes with every answer about a table, and changes almost never.

    It forgets the ones that were not asked for longest. Safe for threads.
    """

    def __init__(self) -> None:
        self._known = lru_cache(_KEPT)(_parse)

    def parse(self, text: str | bytes) -> TableDescriptor:
        """Return the definition that a text says; its properties are the caller's own.

        Raises:
            InvalidSchemaError: The form is not that of a table definition.
            UnsupportedError: A newer version wrote it.
            ValueError: The text is not JSON.
        """
        if len(text) > _TEXT_LENGTH_MAX:
            return _parse(text)
        found = self._known(text)
        # Whoever is given it may change it: it is a dict.
        return replace(found, properties=dict(found.properties))


def _parse(text: str | bytes) -> TableDescriptor:
    return TableDescriptor.from_json(json.loads(text))
