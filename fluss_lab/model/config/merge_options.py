"""The options of primary-key tables that say which of two rows of a key stays, checked against the table's columns.

Source: Apache Fluss ``TableDescriptorValidation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config import options
from fluss_lab.model.schema import Schema

#: Types whose values have an order that a version can go by.
VERSION_TYPES: Final = ("INT", "BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ")
_OF_KEYED_TABLES: Final = (options.MERGE_ENGINE, options.VERSION_COLUMN, options.DELETE_BEHAVIOR)


def check_merging(schema: Schema, properties: Mapping[str, str]) -> None:
    """Check merge engine, version column and delete behavior.

    Raises:
        InvalidPropertyError: They do not fit the table or each other; the text says why.
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
    if (found := schema.column(name).type).name not in VERSION_TYPES:
        raise InvalidPropertyError(
            f"{what}: expected a column of type {', '.join(VERSION_TYPES)}, found {name!r} of type {found}"
        )
