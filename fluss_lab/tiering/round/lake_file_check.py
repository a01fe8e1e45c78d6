"""The check of a lake table's files: those of the snapshot that reads begin with, before a round or a read runs into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


def check_newest_files(connection: ClusterClient, storage: LakeStorage, table: TableInfo) -> None:
    """Check the metadata and files of the newest snapshot that the cluster knows; of a table that was never tiered, nothing.

    Raises:
        LakeSnapshotNotFoundError: The lake does not have the snapshot (any more).
        CorruptDataError: A file is missing or damaged.
        FlussError: The cluster or the lake does not answer.

    Cost: what planning a read costs, and 30 microseconds a file.
    """
    try:
        known = lake_snapshot(connection, table.path, table_id=table.table_id)
    except LakeSnapshotNotFoundError:
        return
    source = storage.create_lake_source(table)
    source.check_files(source.plan(known.snapshot_id))
