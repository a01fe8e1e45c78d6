"""Key-value snapshots as a client sees them: which there are, where their files lie, and the rows in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.kv.kv_scan import KvRecords
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    InvalidPartitionError,
    InvalidSchemaError,
    KvSnapshotNotFoundError,
)
from fluss_lab.model import PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_lab.records.kv_files import StoredChunk, read_chunks
from fluss_lab.records.kv_manifest import MANIFEST_SUFFIX, SnapshotManifest, read_manifest
from fluss_lab.records.log_records import fit_to_schema
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_errors import store_failure
from fluss_lab.storage.store_location import local_place, store_of

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient
    from fluss_lab.client.cluster.remote_files import RemoteFiles

#: Rows of one batch at most: what a task holds of a snapshot at once is a few MB.
ROWS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """The latest key-value snapshot of a bucket.

    Attributes:
        snapshot_id: Its id.
        log_offset: It has all changes below this offset; the log from it on has the others.
    """

    snapshot_id: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class KvSnapshotMetadata:
    """Where the files of a key-value snapshot are.

    Attributes:
        bucket: Whose state it is.
        snapshot_id: Its id.
        log_offset: As `KvSnapshot`.
        files: Path of each file by its plain name. They go when the snapshot is no longer retained.
        remote: How they are reached, where they are in an object store.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    files: Mapping[str, str]
    remote: RemoteFiles | None = field(default=None, repr=False, compare=False)

    def place(self) -> Place:
        """Return the place of its manifest, as it is reached from here."""
        path = _manifest_path(self)
        return local_place(path) if self.remote is None else self.remote.place(path)


def latest_kv_snapshots(
    connection: ClusterClient, path: TablePath, partition: PartitionInfo | str | None = None
) -> dict[int, KvSnapshot | None]:
    """Return the latest snapshot of each bucket: see `Admin.latest_kv_snapshots`."""
    request = pb.GetLatestKvSnapshotsRequest(table_path=path_message(path))
    if partition is not None:
        request.partition_name = partition if isinstance(partition, str) else partition.name
    response = connection.coordinator().get_latest_kv_snapshots(request)
    return {
        each.bucket_id: KvSnapshot(each.snapshot_id, each.log_offset) if each.HasField("snapshot_id") else None
        for each in response.latest_snapshots
    }


def kv_snapshot_metadata(
    connection: ClusterClient, info: TableInfo, bucket: int, snapshot_id: int, partition: PartitionInfo | None = None
) -> KvSnapshotMetadata:
    """Return where the files of a snapshot are: see `Admin.kv_snapshot_metadata`."""
    if (partition is not None) != bool(info.descriptor.partitioned_by):
        expected = f"one by {', '.join(info.descriptor.partitioned_by)}" if partition is None else "none"
        raise InvalidPartitionError(f"{info.path}: expected {expected}, found partition {partition}")
    if not 0 <= bucket < info.descriptor.buckets:
        raise BucketNotFoundError(f"{info.path}: expected a bucket in [0, {info.descriptor.buckets}), found {bucket}")
    where = TableBucket(info.table_id, None if partition is None else partition.partition_id, bucket)
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=info.table_id, partition_id=where.partition_id, bucket_id=bucket, snapshot_id=snapshot_id
    )
    response = connection.coordinator().get_kv_snapshot_metadata(request)
    files = {each.local_file_name: each.remote_path for each in response.snapshot_files}
    return KvSnapshotMetadata(where, snapshot_id, response.log_offset, files, connection.remote_files)


def read_snapshot(
    metadata: KvSnapshotMetadata,
    schemas: Mapping[int, pa.Schema],
    *,
    schema_id: int | None = None,
    columns: Sequence[str] | None = None,
    rows_max: int = ROWS_MAX,
) -> Iterator[KvRecords]:
    """Yield the live rows of a bucket as a key-value snapshot has them, read from its files.

    Args:
        metadata: From `Admin.kv_snapshot_metadata`. Its paths must be readable from here.
        schemas: Arrow schema of each schema id of the table; those that the snapshot's rows have must be there.
        schema_id: The schema of the rows wanted: columns added since are null; None: the newest of `schemas`.
        columns: Names of the columns wanted, in order; None: all.
        rows_max: Rows of one batch at most.

    Yields:
        Runs of rows, at least one row each, with the log offset and timestamp of each row's record; offsets ascend
        within a run, but runs may overlap. Each live row is in exactly one.

    Raises:
        KvSnapshotNotFoundError: The snapshot's files are gone: it is not retained any more. Ask for the latest one and
            begin again.
        CorruptDataError: A file is damaged. No row of it is yielded, but rows of others may have been.
        InvalidSchemaError: A schema or column is unknown.
        StorageError: The file system refused to read.
        AuthenticationError, UnavailableError: The object store refuses, or does not answer.

    Cost: CRC and validation of each file, once, before its first row; then only the columns wanted are copied.
    """
    wanted = _wanted_schema(schemas, schema_id, columns)
    try:
        folder, manifest = _open_manifest(metadata)
        for chunk in read_chunks(folder, manifest, schemas, validate=True):
            yield from _runs(chunk, wanted, rows_max)
    except CorruptDataError as error:
        # A snapshot that expired while it was read loses its manifest before any other file.
        if store_of(place := metadata.place()).size(place) is None:
            raise _gone_error(metadata) from error
        raise
    except OSError as error:
        what = f"snapshot {metadata.snapshot_id} of {metadata.bucket} cannot be read from here"
        raise store_failure(what, error) from error


def _wanted_schema(schemas: Mapping[int, pa.Schema], schema_id: int | None, columns: Sequence[str] | None) -> pa.Schema:
    chosen = max(schemas, default=0) if schema_id is None else schema_id
    schema = schemas.get(chosen)
    if schema is None:
        raise InvalidSchemaError(f"schema {chosen} is not known; known are {sorted(schemas)}")
    if columns is None:
        return schema
    if unknown := [name for name in columns if schema.get_field_index(name) < 0]:
        raise InvalidSchemaError(f"column {unknown[0]!r} is unknown; expected {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])


def _open_manifest(metadata: KvSnapshotMetadata) -> tuple[Place, SnapshotManifest]:
    path = metadata.place()
    try:
        manifest = read_manifest(path)
    except PermissionError:
        if metadata.remote is None or not metadata.remote.renew(path):
            raise
        manifest = read_manifest(path := metadata.place())
    except FileNotFoundError as error:
        if store_of(path).is_folder(path.parent):
            raise _gone_error(metadata) from error
        raise
    if (manifest.bucket, manifest.log_offset) != (metadata.bucket, metadata.log_offset):
        raise CorruptDataError(
            f"{path}: expected a snapshot of {metadata.bucket} at log offset {metadata.log_offset}, found one of "
            f"{manifest.bucket} at {manifest.log_offset}"
        )
    return path.parent, manifest


def _manifest_path(metadata: KvSnapshotMetadata) -> str:
    found = next((path for name, path in metadata.files.items() if name.endswith(MANIFEST_SUFFIX)), None)
    if found is None:
        raise CorruptDataError(f"snapshot {metadata.snapshot_id} of {metadata.bucket}: no manifest among its files")
    return found


def _gone_error(metadata: KvSnapshotMetadata) -> KvSnapshotNotFoundError:
    return KvSnapshotNotFoundError(
        f"snapshot {metadata.snapshot_id} of {metadata.bucket} is no longer retained; fetch the latest one"
    )


def _runs(chunk: StoredChunk, wanted: pa.Schema, rows_max: int) -> Iterator[KvRecords]:
    places = np.flatnonzero(chunk.live)
    rows = chunk.content.rows
    # Only the columns wanted are taken; a column that is missing is made of nulls.
    present = rows.select([name for name in wanted.names if rows.schema.get_field_index(name) >= 0])
    for start in range(0, len(places), rows_max):
        some = places[start : start + rows_max]
        if len(some) == some[-1] - some[0] + 1:  # a whole range: nothing need be copied
            taken = present.slice(int(some[0]), len(some))
        else:
            taken = present.take(pa.array(some))
        content = fit_to_schema(taken, wanted) if taken.num_columns else _nulls(wanted, len(some))
        yield KvRecords(content, pa.array(chunk.content.offsets[some]), pa.array(chunk.content.timestamps_ms[some]))


def _nulls(wanted: pa.Schema, count: int) -> pa.RecordBatch:
    """Return rows of columns that the chunk has none of."""
    return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in wanted], schema=wanted)
