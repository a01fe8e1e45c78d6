"""The partitions that rows are written to: looked up, and created with the first row where a writer may."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from fluss_lab.client.admin import Admin
from fluss_lab.client.write.delete_check import check_absence
from fluss_lab.errors import PartitionExistsError, PartitionNotFoundError
from fluss_lab.model import PartitionInfo, TableInfo
from fluss_lab.model.config.options import WRITER_DYNAMIC_PARTITIONS
from fluss_lab.model.names import partition_values

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


class DynamicPartitions:
    """The partitions of one table, for a writer (Fluss: dynamic partition creation).

    Args:
        connection: To the cluster; its options decide whether partitions are created.
        info: The table.
        what: Is done, for messages.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, what: str) -> None:
        self._connection, self._info, self._what = connection, info, what
        self._may_create = WRITER_DYNAMIC_PARTITIONS.of(connection.options)

    def resolve(self, names: Set[str], *, create: bool) -> dict[str, PartitionInfo]:
        """Return the table's partitions by name, with `create` those named among them.

        Args:
            names: Of the partitions that rows are of.
            create: Whether the rows need a partition; without, those in partitions that do not exist are nowhere.

        Raises:
            PartitionNotFoundError: One does not exist, and creating it is switched off; or it was dropped meanwhile.
            PartitionExistsError: A dropped one of its name rests in the lake.
            UnsupportedError: As `check_absence`.
        """
        known = self._connection.partitions(self._info, refresh=False)
        if not names <= known.keys():
            known = self._connection.partitions(self._info)
        missing = sorted(names - known.keys())
        if not create:
            check_absence(self._connection, self._info, set(missing), f"delete in {self._info.path}")
        if not missing or not create:
            return known
        if not self._may_create:
            raise PartitionNotFoundError(
                f"{self._what}: partition {missing[0]!r} does not exist; create it first, or set "
                f"{WRITER_DYNAMIC_PARTITIONS.key}=true; nothing was sent"
            )
        self._create(missing)
        known = self._connection.partitions(self._info)
        if gone := sorted(names - known.keys()):
            raise PartitionNotFoundError(
                f"{self._what}: partition {gone[0]!r} was dropped as soon as it was made; nothing was sent, do it again"
            )
        return known

    def _create(self, names: Sequence[str]) -> None:
        columns = self._info.descriptor.partitioned_by
        specs = [dict(zip(columns, partition_values(name), strict=True)) for name in names]
        try:
            Admin(self._connection).create_partitions(self._info.path, specs, if_not_exists=True)
        except PartitionExistsError as error:
            raise PartitionExistsError(f"{self._what}: {error}; nothing was sent") from error
