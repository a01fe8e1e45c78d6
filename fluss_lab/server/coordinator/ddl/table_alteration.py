"""The outcome of an ALTER TABLE: decided and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from fluss_lab.errors import InvalidSchemaError, UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DATALAKE_FORMAT, TABLE_OPTIONS, check_properties, free_prefixes
from fluss_lab.model.descriptor import check_descriptor
from fluss_lab.model.schema import with_columns
from fluss_lab.model.types import DataType

#: Log batches hold a schema's id in 16 bits.
SCHEMA_ID_MAX: Final = 2**15 - 1

#: Name, type and comment of a column to be added.
NewColumn: TypeAlias = tuple[str, DataType, str | None]


@dataclass(frozen=True, slots=True)
class Alteration:
    """What one request changes of a table: all of it, or nothing.

    Attributes:
        set: Properties and their new values.
        reset: Properties that go back to their defaults.
        columns: Columns added at the end, in order.
    """

    set: Mapping[str, str] = field(default_factory=dict)
    reset: Sequence[str] = ()
    columns: Sequence[NewColumn] = ()

    def _check(self, known: Mapping[str, str]) -> None:
        """Check each property by itself; which prefixes are free depends on those that the table has."""
        lake = {key: value for key, value in known.items() if key == DATALAKE_FORMAT.key}
        check_properties({**lake, **self.set})
        free = free_prefixes(lake)
        for key in (*self.set, *self.reset):
            if not key.startswith(free):
                _check_alterable(key, free)

    def applied(self, old: TableInfo, now_ms: int) -> TableInfo | None:
        """Return the table as it will be; None when nothing changes.

        Raises:
            InvalidSchemaError, InvalidNameError: A column that cannot be added, or a definition that becomes too large.
            InvalidPropertyError: An unknown property, a value that cannot be, or properties that do not fit each other or
                the table.
            UnsupportedError: A property that a live table may not change, or a table that the lake cannot hold.
        """
        self._check(old.descriptor.properties)
        kept = {key: value for key, value in old.descriptor.properties.items() if key not in self.reset}
        schema = with_columns(old.schema, self.columns)
        properties = check_properties({**kept, **self.set})
        descriptor = replace(old.descriptor, schema=schema, properties=properties)
        if descriptor == old.descriptor:
            return None
        check_descriptor(descriptor)
        schema_id = old.schema_id + bool(self.columns)
        if schema_id > SCHEMA_ID_MAX:
            raise InvalidSchemaError(
                f"table {old.path} has had {old.schema_id} schemas, the most there may be: create it anew"
            )
        return replace(old, schema_id=schema_id, descriptor=descriptor, modified_ms=now_ms)


def _check_alterable(key: str, free: Sequence[str]) -> None:
    option = TABLE_OPTIONS.get(key)
    if option is None:
        check_properties({key: ""})  # says what is known
    elif not option.alterable:
        raise UnsupportedError(
            f"property {key!r}: a live table may not change it; those that may change are {', '.join(_alterable())} and "
            f"anything under {' and '.join(repr(prefix) for prefix in free)}"
        )


def _alterable() -> Iterable[str]:
    return sorted(name for name, each in TABLE_OPTIONS.items() if each.alterable)
