"""Columns and schemas of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from fluss_lab.errors import InvalidSchemaError
from fluss_lab.model.format_versions import check_format
from fluss_lab.model.names import check_column_name
from fluss_lab.model.types import DataType
from fluss_lab.model.values.schema_inference import is_rows, schema_of

#: Of the JSON form.
FORMAT: Final = 1

COLUMNS_MAX: Final = 2000
COMMENT_LENGTH_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its id never changes and is never used again, its name may change."""

    name: str
    type: DataType
    column_id: int
    comment: str | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a table in order, and its primary key (empty for a log table)."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Return the column names in order."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """Return a column by name.

        Raises:
            InvalidSchemaError: There is none of that name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidSchemaError(f"no column {name!r}; the columns are {', '.join(self.names)}")

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema in which rows of the table travel: columns in order, keys not null. Made once."""
        return pa.schema([column.type.arrow_field(column.name) for column in self.columns])

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Return what rooms above derive of the schema alone, each under a name of its own and bounded by itself.

        It lives as long as the schema, so nothing in it is ever outdated; a copy begins without it.
        """
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.columns, self.primary_key)

    def to_json(self) -> dict[str, Any]:
        """Return the schema in Apache Fluss's JSON form."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            value: dict[str, Any] = {"name": column.name, "data_type": column.type.to_json(), "id": column.column_id}
            if column.comment is not None:
                value["comment"] = column.comment
            columns.append(value)
        result: dict[str, Any] = {"version": FORMAT, "columns": columns}
        if self.primary_key:
            result["primary_key"] = list(self.primary_key)
        return result

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Schema:
        """Read the JSON form of `to_json`.

        Raises:
            InvalidSchemaError: The form is not that of a schema.
            UnsupportedError: A newer version wrote it.
        """
        try:
            check_format("schema in JSON", value.get("version"), FORMAT)
            columns = tuple(
                Column(str(c["name"]), DataType.from_json(c["data_type"]), int(c["id"]), c.get("comment"))
                for c in value["columns"]
            )
            return Schema(columns, tuple(value.get("primary_key", ())))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidSchemaError(f"not a schema in JSON: {error!r}") from error


def make_schema(
    source: Any,
    primary_key: Iterable[str] = (),
    required: Iterable[str] = (),
) -> Schema:
    """Return a checked schema from any of the forms a person writes.

    >>> made = make_schema({"id": "bigint", "name": "string"}, primary_key=["id"])
    >>> [str(column.type) for column in made.columns]
    ['BIGINT NOT NULL', 'STRING']

    Args:
        source: A schema, an Arrow schema, column names to types (Fluss type texts or Arrow types), or rows to take the
            schema of: a pandas frame or Arrow data (see `fluss_lab.model.values.schema_inference`).
        primary_key: Names of the key columns in order; they become NOT NULL whatever the source says.
        required: Further columns that become NOT NULL (partition columns, bucket keys).

    Raises:
        InvalidSchemaError: No columns, too many, a type that does not exist, a key column that does not, a field of a ROW that
            is there twice in any case.
        InvalidNameError: A column name that breaks the rule, is reserved, or is used twice in any case.
    """
    if is_rows(source):
        source = schema_of(source)
    if isinstance(source, Schema):
        typed = [(column.name, column.type, column.comment) for column in source.columns]
        primary_key = tuple(primary_key) or source.primary_key
    elif isinstance(source, pa.Schema):
        typed = [(field.name, _arrow_type(field), _comment(field)) for field in source]
    elif isinstance(source, Mapping):
        typed = [(name, _any_type(name, value), None) for name, value in source.items()]
    else:
        raise InvalidSchemaError(
            f"expected a pyarrow schema, a dict of names to types, or a frame, found {type(source).__name__}"
        )
    if not 0 < len(typed) <= COLUMNS_MAX:
        raise InvalidSchemaError(f"a table has 1 to {COLUMNS_MAX} columns, found {len(typed)}")
    names = [check_column_name(name) for name, _, _ in typed]
    for name, dtype, comment in typed:
        _check_comment(name, comment)
        _check_fields(name, dtype)
    _check_unique(names, "column")
    key, further = tuple(primary_key), tuple(required)
    # First of all: what came over the wire may be no names at all.
    if missing := [name for name in [*key, *further] if name not in names]:
        raise InvalidSchemaError(f"key or partition column {missing[0]!r} is not a column; found {', '.join(names)}")
    _check_unique(list(key), "primary key column")
    needed = {*key, *further}
    columns = tuple(
        Column(name, dtype.with_nullable(False) if name in needed else dtype, index + 1, comment)
        for index, (name, dtype, comment) in enumerate(typed)
    )
    return Schema(columns, key)


#: Name, type and comment of a column to be added.
NewColumn: TypeAlias = tuple[str, DataType, str | None]


def with_columns(schema: Schema, added: Iterable[NewColumn]) -> Schema:
    """Return a schema with columns added at its end, under ids that no column had.

    Args:
        schema: Checked.
        added: Name, type and comment of each; the types nullable, since the rows that exist have no value.

    Raises:
        InvalidSchemaError: A column that exists or is named twice, as is a field of a ROW, that is NOT NULL, or one too many.
        InvalidNameError: A name that breaks the rule or is reserved.
    """
    columns = list(schema.columns)
    next_id = 1 + max(column.column_id for column in columns)
    for number, (name, dtype, comment) in enumerate(added, next_id):
        check_column_name(name)
        _check_comment(name, comment)
        _check_fields(name, dtype)
        if not dtype.nullable:
            raise InvalidSchemaError(
                f"new column {name!r}: expected a nullable type, found {dtype}: the rows that exist have no value for it"
            )
        columns.append(Column(name, dtype, number, comment))
    _check_unique([column.name for column in columns], "column")
    if len(columns) > COLUMNS_MAX:
        raise InvalidSchemaError(f"a table has 1 to {COLUMNS_MAX} columns, found {len(columns)} with the new ones")
    return Schema(tuple(columns), schema.primary_key)


def _check_comment(name: str, comment: object) -> None:
    if comment is not None and (not isinstance(comment, str) or len(comment) > COMMENT_LENGTH_MAX):
        raise InvalidSchemaError(
            f"comment of column {name!r}: expected a string of at most {COMMENT_LENGTH_MAX} characters"
        )


def _check_fields(name: str, dtype: DataType) -> None:
    """Check what is within a column: Spark and DuckDB compare names of fields whatever their case."""
    if dtype.name == "ROW":
        _check_unique([field.name for field in dtype.fields], f"column {name!r}: field")
    for field in dtype.fields:
        _check_fields(f"{name}.{field.name}", field.type)


def _check_unique(names: list[str], kind: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.get(str(name).lower())) is not None:
            raise InvalidSchemaError(f"{kind} {name!r} appears twice (also as {other!r}; names are unique in any case)")
        seen[str(name).lower()] = name


def _arrow_type(field: pa.Field) -> DataType:
    try:
        return DataType.from_arrow(field.type, field.nullable)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"column {field.name!r}: {error}") from error


def _any_type(name: str, value: str | pa.DataType | DataType) -> DataType:
    try:
        if isinstance(value, DataType):
            return value
        return DataType.from_arrow(value) if isinstance(value, pa.DataType) else DataType.parse(value)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"column {name!r}: {error}") from error


def _comment(field: pa.Field) -> str | None:
    raw = (field.metadata or {}).get(b"comment")
    return raw.decode("utf-8", "replace") if raw is not None else None
