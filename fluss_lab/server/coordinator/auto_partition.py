"""Partitions by the clock: those that a table wants are made ahead of time, those past keeping are dropped.

Source: Apache Fluss ``AutoPartitionManager``. Unlike there, a day's partitions are not made at a random minute of the day:
one process makes them all. A partition whose value is no time (made before the table followed the clock) is never dropped.
"""

from __future__ import annotations

import logging

from fluss_lab.clock import Clock
from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.model import TableInfo
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.model.names import partition_values
from fluss_lab.server.coordinator.catalog import Catalog
from fluss_lab.server.coordinator.partitions import Partitions

log = logging.getLogger(__name__)


class AutoPartitions:
    """Looks after the tables whose partitions follow the clock. What cannot be done is logged, and tried again.

    Args:
        catalog: Which tables there are.
        partitions: Makes and drops.
        clock: The server's.
    """

    def __init__(self, catalog: Catalog, partitions: Partitions, clock: Clock) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._clock = clock

    def run(self) -> None:
        """Look after every table."""
        for info in self._catalog.all_tables():
            self.look_after(info)

    def look_after(self, info: TableInfo) -> None:
        """Look after one table: drop what is past keeping, then make what is wanted."""
        auto = AutoPartition.of(info.descriptor.partitioned_by, info.descriptor.properties)
        if auto is None:
            return
        now_ms = self._clock.now_ms()
        # Those that were dropped and still rest in the lake are not made again.
        known = {
            each.info.name: each.dropped_ms is None for each in self._catalog.partitions(info.table_id, dropped=True)
        }
        for name, exists in known.items():
            if exists and auto.is_past(name, now_ms):
                self._try(info, name, "drop")
        for name in auto.wanted(now_ms):
            if name not in known:
                self._try(info, name, "create")

    def _try(self, info: TableInfo, name: str, what: str) -> None:
        values = dict(zip(info.descriptor.partitioned_by, partition_values(name), strict=True))
        try:
            if what == "drop":
                self._partitions.drop(info.path, values, ignore_if_not_exists=True, table_id=info.table_id)
            else:
                self._partitions.create(info.path, values, ignore_if_exists=True, table_id=info.table_id)
        except NotFoundError:
            return  # the table was dropped in between
        except FlussError as error:
            log.warning(
                "event=auto_partition_failed what=%s table=%s partition=%s error=%s", what, info.path, name, error
            )
