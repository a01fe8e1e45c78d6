"""Partitions that were dropped from the cluster and kept in the lake: what writers must know of them to delete rows."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.errors import LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DELETE_BEHAVIOR, MERGE_ENGINE

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


def check_absence(connection: ClusterClient, info: TableInfo, names: Set[str], what: str) -> None:
    """Check that there is nothing to delete in partitions that the cluster does not have: that the lake keeps none of them.

    Args:
        connection: To the cluster.
        info: The table, with a primary key; of one that ignores deletes nothing is checked.
        names: Of the partitions.
        what: Is done, for the message.

    Raises:
        UnsupportedError: One was dropped, and its rows are still read from the lake.
        TableNotFoundError: The table was dropped, or another one has its path now.

    Cost: one call where there are names, one more where it is refused.
    """
    properties = info.descriptor.properties
    behavior = DELETE_BEHAVIOR.of(properties)
    if not names or behavior == "ignore" or (behavior == "default" and MERGE_ENGINE.of(properties) != "default"):
        return
    try:
        offsets = lake_snapshot(connection, info.path, table_id=info.table_id).offsets.values()
    except LakeSnapshotNotFoundError:
        return
    kept = names & {each.partition for each in offsets if each.end}
    # One of them may have been made, and tiered, since they were looked for.
    if kept and (kept := kept - connection.partitions(info).keys()):
        raise UnsupportedError(
            f"{what}: partition {min(kept)!r} was dropped, and its rows are still read from the lake, where none of them is "
            "deleted by itself; drop the partition from the lake too (`drop_partition` with `lake=True`), with all its rows; "
            "nothing was deleted from it"
        )
