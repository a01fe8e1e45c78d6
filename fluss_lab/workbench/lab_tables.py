"""The tables of a lab: listed, found by path, made and filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.client.table_listing import table_paths
from fluss_lab.errors import (
    FlussError,
    InvalidNameError,
    InvalidSchemaError,
    NotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from fluss_lab.model import TableDescriptor, TablePath, make_descriptor
from fluss_lab.model.config.options import BUCKETS_MAX
from fluss_lab.model.values.row_input import gathered_rows, record_batches
from fluss_lab.model.values.schema_inference import schema_of
from fluss_lab.rpc import fluss_api_pb2 as pb

#: Paths that an error names.
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is made of; see `fluss_lab.Lab.create_table`."""

    schema: Any
    rows: Any
    primary_key: Iterable[str] | None
    partitioned_by: Iterable[str] | None
    buckets: int | None
    bucket_key: Iterable[str] | None
    properties: Mapping[str, object] | None
    comment: str | None


class LabTables:
    """The tables of one lab, as the cluster has them at each call. The methods of `fluss_lab.Lab` say what each promises.

    Args:
        connection: To the lab's cluster.
        opened: Called with the definition of each table that is opened or made.
    """

    def __init__(self, connection: Connection, opened: Callable[[TableDescriptor], None] = lambda _: None) -> None:
        self._connection = connection
        self._opened = opened

    def paths(self) -> list[TablePath]:
        """Return the paths of all tables, sorted."""
        return table_paths(self._connection.admin())

    def check(self, path: TablePath) -> None:
        """Raise an error that names other tables when there is none of this path."""
        try:
            info = self._connection.table_info(path)
        except TableNotFoundError as error:
            raise TableNotFoundError(f"{error}{self._instead(str(path))}") from None
        self._opened(info.descriptor)

    def has(self, path: object) -> bool:
        """Return whether there is a table of this path; of what is none, False."""
        try:
            self._connection.table_info(TablePath.parse(path if isinstance(path, TablePath) else str(path)))
        except (InvalidNameError, NotFoundError):
            return False
        return True

    def completions(self) -> list[str]:
        """Return the paths for a person who types; none when the server does not answer at once."""
        try:
            attempts = self._connection.attempts("complete a table's path", 0)
            self._connection.coordinator(attempts).describe_cluster(pb.DescribeClusterRequest())
            return [str(path) for path in self.paths()]
        except Exception:  # completion must not fail
            return []

    def create(self, path: TablePath, new: NewTable, *, if_not_exists: bool) -> pa.Table | None:
        """Make a table; return the rows to be written to it: of one that was there already, none."""
        rows = gathered_rows(new.rows)
        schema = new.schema
        if schema is None:
            if rows is None:
                raise InvalidSchemaError(f"create_table {path}: expected a schema, or rows to take it from")
            schema = schema_of(rows)
        many = isinstance(new.buckets, int) and new.buckets > BUCKETS_MAX.default
        descriptor = make_descriptor(
            schema,
            primary_key=new.primary_key,
            partitioned_by=new.partitioned_by,
            buckets=new.buckets,
            bucket_key=new.bucket_key,
            properties=new.properties,
            comment=new.comment,
            buckets_max=2**31 - 1 if many else BUCKETS_MAX.default,
        )
        first = None if rows is None else record_batches(rows, descriptor.schema)
        try:
            self._connection.admin().create_table(path, descriptor, if_not_exists and first is None)
        except TableExistsError:
            if not if_not_exists:
                raise
            first = None
        self._opened(descriptor)
        return pa.Table.from_batches(first) if first else None

    def _instead(self, path: str) -> str:
        """Return what a person may have meant."""
        try:
            known = [str(each) for each in self.paths()]
        except FlussError:
            return ""
        if not known:
            return "; the lab has no tables yet"
        if near := get_close_matches(path, known, n=1):
            return f"; is {near[0]} meant?"
        more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
        return f"; the tables are {', '.join(known[:_NAMED_MAX])}{more}"
