"""The check that rows to delete, of partitions that the cluster does not have, are not in the lake either."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.lake_partitions import lake_partitions
from fluss_lab.errors import UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DELETE_BEHAVIOR, MERGE_ENGINE

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


def check_absence(connection: ClusterClient, info: TableInfo, names: Set[str], what: str) -> None:
    """Check that there is nothing to delete in partitions that the cluster does not have: that the lake has none of them.

    Args:
        connection: To the cluster.
        info: The table, with a primary key; of one that ignores deletes nothing is checked.
        names: Of the partitions.
        what: Is done, for the message.

    Raises:
        UnsupportedError: One was dropped, and its rows are still read from the lake.
        TableNotFoundError: The table was dropped, or another one has its path now.

    Cost: as `lake_partitions`.
    """
    properties = info.descriptor.properties
    behavior = DELETE_BEHAVIOR.of(properties)
    if behavior == "ignore" or (behavior == "default" and MERGE_ENGINE.of(properties) != "default"):
        return
    if kept := lake_partitions(connection, info, names):
        raise UnsupportedError(
            f"{what}: partition {min(kept)!r} was dropped, and its rows are still read from the lake, where none of them is "
            "deleted by itself; drop the partition from the lake too (`drop_partition` with `lake=True`), with all its rows; "
            "nothing was deleted from it"
        )
