"""A connection's cache of the cluster's metadata: tablet servers, leaders of buckets, partitions, schemas."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    InvalidError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from fluss_lab.model import PartitionInfo, Schema, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_lab.model.names import partition_name
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.message_codec import path_message

#: How many tables a cache keeps, and how long the definition of one may be: at most 16 MiB of text.
_TABLES_KEPT: Final = 256
_TEXT_LENGTH_MAX: Final = 64 << 10


class Metadata:
    """A cache, safe in any thread. What it says may be outdated: the servers refuse what is wrong.

    Args:
        parent: Of the process that this one was forked off from: which tables have been met. None: there is none.
    """

    def __init__(self, parent: Metadata | None = None) -> None:
        self._lock = threading.Lock()
        self._servers: dict[int, tuple[str, int]] = {}
        #: None: the bucket is known, but no server holds it at present.
        self._leaders: dict[TableBucket, int | None] = {}
        self._paths: dict[int, TablePath] = {} if parent is None else dict(parent._paths)
        self._partitions: dict[int, dict[str, PartitionInfo]] = {}
        #: By table id and schema id. They never change.
        self._schemas: dict[tuple[int, int], Schema] = {}
        #: Tables by all that an answer says of them. Those that were not asked for longest are forgotten.
        self._infos = lru_cache(_TABLES_KEPT)(_table_info)

    def table_info(self, path: TablePath, answer: pb.GetTableInfoResponse) -> TableInfo:
        """Return the table that an answer describes, and remember the path of its id.

        The same answer gives the same object, with all that was derived of its schema. It is shared: nobody can change it.

        Raises:
            InvalidSchemaError, UnsupportedError, ValueError: The definition is none, or of a newer version.
        """
        make: Callable[..., TableInfo] = self._infos if len(answer.table_json) <= _TEXT_LENGTH_MAX else _table_info
        info = make(
            path, answer.table_id, answer.schema_id, answer.table_json, answer.created_time, answer.modified_time
        )
        self.remember(info.table_id, path)
        return info

    def remember(self, table_id: int, path: TablePath) -> None:
        """Remember the path of a table id."""
        with self._lock:
            self._paths[table_id] = path

    def partitions(self, table_id: int) -> dict[str, PartitionInfo] | None:
        """Return the partitions as last listed; None when they never were."""
        with self._lock:
            return self._partitions.get(table_id)

    def set_partitions(self, table_id: int, response: pb.ListPartitionInfosResponse) -> dict[str, PartitionInfo]:
        """Remember and return a table's partitions."""
        found: dict[str, PartitionInfo] = {}
        for entry in response.partitions_info:
            name = partition_name(tuple(pair.value for pair in entry.partition_spec.partition_key_values))
            found[name] = PartitionInfo(entry.partition_id, name)
        with self._lock:
            self._partitions[table_id] = found
        return found

    def forget_partitions(self, table_id: int) -> None:
        """Drop a table's partitions."""
        with self._lock:
            self._partitions.pop(table_id, None)

    def schema(self, table_id: int, schema_id: int) -> Schema | None:
        """Return a table's schema of an id, if known."""
        with self._lock:
            return self._schemas.get((table_id, schema_id))

    def set_schema(self, table_id: int, schema_id: int, schema: Schema) -> None:
        """Remember a table's schema."""
        with self._lock:
            self._schemas[table_id, schema_id] = schema

    def leader(self, bucket: TableBucket) -> int | None:
        """Return the server that holds a bucket, if known."""
        with self._lock:
            return self._leaders.get(bucket)

    def server(self, server_id: int) -> tuple[str, int] | None:
        """Return host and port of a tablet server, if known."""
        with self._lock:
            return self._servers.get(server_id)

    @property
    def has_several_servers(self) -> bool:
        """Return whether more than one tablet server is known."""
        return len(self._servers) > 1

    def server_ids(self) -> list[int]:
        """Return the known tablet servers."""
        with self._lock:
            return sorted(self._servers)

    def forget_leaders(self) -> None:
        """Drop all leaders. The next lookup also refreshes the addresses of servers."""
        with self._lock:
            self._leaders.clear()

    def forget_leaders_of(self, buckets: Iterable[TableBucket]) -> None:
        """Drop the leaders of some buckets."""
        with self._lock:
            for bucket in buckets:
                self._leaders.pop(bucket, None)

    def load(self, coordinator: CoordinatorGateway, buckets: Iterable[TableBucket]) -> dict[TableBucket, int | None]:
        """Ask the coordinator who holds buckets, and where all tablet servers are.

        Returns:
            The server of each bucket of their tables and partitions; None: it is away.

        Raises:
            TableNotFoundError: A table was dropped, also when another one has its path now.
            PartitionNotFoundError: A partition was dropped.
        """
        wanted = list(buckets)
        paths = {bucket.table_id: self._path(bucket) for bucket in wanted if bucket.partition_id is None}
        partitions = sorted({bucket.partition_id for bucket in wanted if bucket.partition_id is not None})
        request = pb.MetadataRequest(
            table_path=[path_message(path) for path in paths.values()],
            partitions_id=partitions,
        )
        response = coordinator.metadata(request)
        leaders = self._learn(response)
        ids = {entry.table_id for entry in response.table_metadata}
        for table_id, path in paths.items():
            if table_id not in ids:
                raise TableNotFoundError(
                    f"table {path} (id {table_id}) was dropped; open it again if there is a new one"
                )
        given = {entry.partition_id for entry in response.partition_metadata}
        if gone := [partition for partition in partitions if partition not in given]:
            raise PartitionNotFoundError(f"partition id {gone[0]} was dropped")
        return leaders

    def _path(self, bucket: TableBucket) -> TablePath:
        with self._lock:
            path = self._paths.get(bucket.table_id)
        if path is None:
            raise BucketNotFoundError(f"bucket {bucket}: this connection has not met table id {bucket.table_id} yet")
        return path

    def _learn(self, response: pb.MetadataResponse) -> dict[TableBucket, int | None]:
        leaders: dict[TableBucket, int | None] = {}
        for table in response.table_metadata:
            for entry in table.bucket_metadata:
                leaders[TableBucket(table.table_id, None, entry.bucket_id)] = _leader(entry)
        for partition in response.partition_metadata:
            for entry in partition.bucket_metadata:
                bucket = TableBucket(partition.table_id, partition.partition_id, entry.bucket_id)
                leaders[bucket] = _leader(entry)
        with self._lock:
            self._servers = {node.node_id: (node.host, node.port) for node in response.tablet_servers}
            self._leaders.update(leaders)
        return leaders


def _table_info(
    path: TablePath, table_id: int, schema_id: int, definition: bytes, created_ms: int, modified_ms: int
) -> TableInfo:
    descriptor = TableDescriptor.from_json(json.loads(definition))
    descriptor = replace(descriptor, properties=MappingProxyType(dict(descriptor.properties)))
    return TableInfo(path, table_id, schema_id, descriptor, created_ms, modified_ms)


def _leader(entry: pb.PbBucketMetadata) -> int | None:
    return entry.leader_id if entry.HasField("leader_id") else None


def load_schema(coordinator: CoordinatorGateway, info: TableInfo, schema_id: int) -> Schema:
    """Ask the coordinator for a table's schema of another id than that of `info`.

    Raises:
        CorruptDataError: The table has no schema of that id.
        TableNotFoundError: The table was dropped, also when another one has its path now.
    """
    path = path_message(info.path)
    try:
        response = coordinator.get_table_schema(pb.GetTableSchemaRequest(table_path=path, schema_id=schema_id))
        found = Schema.from_json(json.loads(response.schema_json))
    except (InvalidError, ValueError) as error:
        raise CorruptDataError(f"{info.path}: schema id {schema_id}: {error}") from error
    # Columns are added at the end only: one of two schemas of a table is the begin of the other.
    for mine, theirs in zip(info.schema.columns, found.columns, strict=False):
        if (mine.name, mine.type) != (theirs.name, theirs.type):
            raise TableNotFoundError(
                f"table {info.path} (id {info.table_id}) was dropped; open it again if there is a new one"
            )
    return found


def check_table_id(path: TablePath, expected: int, found: int) -> None:
    """See that a path still names the table that it named before.

    Raises:
        TableNotFoundError: That table was dropped, and another one has its path now.
    """
    if found != expected:
        raise TableNotFoundError(
            f"table {path}: expected the one with id {expected}, found id {found}: it was dropped and made again"
        )
