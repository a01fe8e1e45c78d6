"""Partitions that only the lake has: dropped from the cluster and kept there, so that scans go on to have their rows."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


def lake_partitions(connection: ClusterClient, info: TableInfo, names: Set[str]) -> set[str]:
    """Return those of some partitions that the cluster does not have, and the lake has rows of.

    Args:
        connection: To the cluster.
        info: The table.
        names: Of partitions that the cluster was found not to have.

    Raises:
        TableNotFoundError: The table was dropped, or another one has its path now.
        UnavailableError: The coordinator is away.

    Cost: one call where there are names, one more where one of them is found.
    """
    if not names:
        return set()
    try:
        offsets = lake_snapshot(connection, info.path, table_id=info.table_id).offsets.values()
    except LakeSnapshotNotFoundError:
        return set()
    found = {each.partition for each in offsets if each.partition in names and each.end}
    # One of them may have been made, and tiered, since they were looked for.
    return {name for name in found if name is not None} - connection.partitions(info).keys() if found else set()
