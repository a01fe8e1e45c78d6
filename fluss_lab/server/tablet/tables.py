"""What a tablet server knows of tables: their definitions, and every schema that batches in their logs may have."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_lab import files
from fluss_lab.errors import FlussError, UnsupportedError
from fluss_lab.model import options
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.model.names import TablePath
from fluss_lab.model.schema import Schema

log = logging.getLogger(__name__)

_SCHEMA_FILE: Final = re.compile(r"schema-(\d{1,9})\.json")


@dataclass(slots=True)
class Table:
    """A table with buckets here.

    Attributes:
        table_id: Its id.
        path: Its path.
        schema_id: The schema that new batches must have.
        schemas: Arrow schema of each schema id, the older ones too.
        lake_enabled: Whether retention must wait for the lake.
        log_ttl_ms: How long records are kept.
        definition: The JSON it was read from.
    """

    table_id: int
    path: TablePath
    schema_id: int
    schemas: dict[int, pa.Schema] = field(default_factory=dict)
    lake_enabled: bool = False
    log_ttl_ms: int = options.LOG_TTL.default
    definition: bytes = b""

    def define(self, definition: bytes, schema_id: int, folder: Path) -> None:
        """Take over a definition that the coordinator sent, and keep its schema beside the table's logs.

        Args:
            definition: The table as JSON.
            schema_id: Of its schema.
            folder: The table's; it exists.

        Raises:
            InvalidSchemaError, InvalidPropertyError: It is no definition of a table. Nothing was changed.
            UnsupportedError: It has a primary key. Nothing was changed.
            OSError: The schema could not be written.
        """
        if definition == self.definition and schema_id in self.schemas:
            return
        descriptor = read_definition(definition, str(self.path))
        lake_enabled, log_ttl_ms = descriptor.lake_enabled, options.LOG_TTL.of(descriptor.properties)
        if schema_id not in self.schemas:
            files.write_json_atomic(folder / f"schema-{schema_id}.json", descriptor.schema.to_json())
        self.schemas = {**self.schemas, schema_id: descriptor.schema.arrow()}
        self.schema_id, self.definition = schema_id, definition
        self.lake_enabled, self.log_ttl_ms = lake_enabled, log_ttl_ms


def read_definition(definition: bytes, path: str) -> TableDescriptor:
    """Return a table's definition from its JSON.

    Raises:
        InvalidSchemaError: It is none.
        UnsupportedError: It has a primary key.
    """
    try:
        descriptor = TableDescriptor.from_json(json.loads(definition))
    except ValueError as error:
        descriptor = TableDescriptor.from_json({"unreadable": str(error)})
    if descriptor.schema.primary_key:
        raise UnsupportedError(f"table {path} has a primary key: this tablet server holds log tables only")
    return descriptor


def kept_schemas(folder: Path) -> dict[int, pa.Schema]:
    """Return the schemas that were kept in a table's folder, by id. One that cannot be read is logged and left out."""
    found: dict[int, pa.Schema] = {}
    for path in folder.glob("schema-*.json"):
        match = _SCHEMA_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            found[int(match[1])] = Schema.from_json(json.loads(path.read_bytes())).arrow()
        except (FlussError, OSError, ValueError) as error:
            log.warning("%s: not a schema (%s); it is taken from the coordinator", path, error)
    return found
