"""The tables that a tablet server knows: definitions, and every schema that batches in their logs may have."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_lab import files
from fluss_lab.errors import FlussError, InvalidSchemaError, NotLeaderError, UnsupportedError
from fluss_lab.model.config import options
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.model.names import TablePath
from fluss_lab.model.schema import Schema
from fluss_lab.rpc import fluss_api_pb2 as pb

log = logging.getLogger(__name__)

_SCHEMA_FILE: Final = re.compile(r"schema-(\d{1,9})\.json")


@dataclass(slots=True)
class RegisteredTable:
    """A table with buckets here. Its attributes are replaced as a whole, never changed in place.

    Attributes:
        table_id: Its id.
        path: Its path.
        schema_id: The newest schema.
        descriptor: The table as the coordinator last defined it.
        schemas: Arrow schema of each schema id, the older ones too; batches of any of them are taken and served.
        definition: The JSON that `descriptor` was read from.
    """

    table_id: int
    path: TablePath
    schema_id: int
    descriptor: TableDescriptor
    schemas: Mapping[int, pa.Schema]
    definition: bytes = b""

    @property
    def lake_enabled(self) -> bool:
        """Return whether retention must wait for the lake."""
        return self.descriptor.lake_enabled

    @property
    def log_ttl_ms(self) -> int:
        """Return how long records are kept."""
        return options.LOG_TTL.of(self.descriptor.properties)

    @property
    def local_segments(self) -> int:
        """Return how many segments stay here, the one being written included, when remote storage has them."""
        return options.LOG_LOCAL_SEGMENTS.of(self.descriptor.properties)

    @staticmethod
    def load(request: pb.PbNotifyLeaderAndIsrReqForBucket, folder: Path) -> RegisteredTable:
        """Return a table as it is kept in its folder; `define` brings it up to date.

        Raises:
            InvalidSchemaError, InvalidPropertyError, InvalidNameError: The request's definition is none.
            NotLeaderError: It brings none: the one that did could not be taken over.
        """
        if not request.table_json:
            raise NotLeaderError(f"table id {request.table_bucket.table_id} could not be taken over; it is tried again")
        physical = request.physical_table_path
        path = TablePath(physical.database_name, physical.table_name)
        descriptor = read_definition(request.table_json)
        return RegisteredTable(request.table_bucket.table_id, path, request.schema_id, descriptor, kept_schemas(folder))

    def define(self, request: pb.PbNotifyLeaderAndIsrReqForBucket, folder: Path) -> None:
        """Take over a definition that the coordinator sent, and keep its schemas beside the table's logs.

        Args:
            request: With the table as JSON, and all schemas that it had; or without both: what was sent before holds.
            folder: The table's; it exists.

        Raises:
            InvalidSchemaError, InvalidPropertyError: It is no definition of a table. Nothing was changed.
            OSError: A schema could not be written. Nothing was changed.
        """
        definition, schema_id = request.table_json, request.schema_id
        if not definition:
            return
        sent = {each.schema_id: each.schema_json for each in request.schemas if each.schema_id not in self.schemas}
        if definition == self.definition and schema_id in self.schemas and not sent:
            return
        descriptor = read_definition(definition)
        added = {number: _read_schema(text) for number, text in sent.items()}
        if schema_id not in self.schemas and schema_id not in added:
            added[schema_id] = descriptor.schema
        for number, schema in added.items():
            files.write_json_atomic(folder / f"schema-{number}.json", schema.to_json())
        # In this order: a reader that sees the new id finds its schema.
        self.schemas = {**self.schemas, **{number: schema.arrow_schema for number, schema in added.items()}}
        self.descriptor, self.schema_id, self.definition = descriptor, schema_id, definition


def read_definition(definition: bytes) -> TableDescriptor:
    """Return a table's definition from its JSON.

    Raises:
        InvalidSchemaError: It is none.
    """
    return TableDescriptor.from_json(_read_object(definition, "a table definition"))


def _read_schema(text: bytes) -> Schema:
    return Schema.from_json(_read_object(text, "a schema"))


def _read_object(text: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"not {what} in JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidSchemaError(f"not {what} in JSON: expected an object, found {type(value).__name__}")
    return value


def kept_schemas(folder: Path) -> dict[int, pa.Schema]:
    """Return the schemas that were kept in a table's folder, by id. One that cannot be read is logged and left out.

    Raises:
        UnsupportedError: A newer version wrote one.
    """
    found: dict[int, pa.Schema] = {}
    for path in folder.glob("schema-*.json"):
        match = _SCHEMA_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            found[int(match[1])] = Schema.from_json(json.loads(path.read_bytes())).arrow_schema
        except UnsupportedError as error:
            raise UnsupportedError(f"{path}: {error}") from error
        except (FlussError, OSError, ValueError) as error:
            log.warning("%s: not a schema (%s); it is taken from the coordinator", path, error)
    return found
