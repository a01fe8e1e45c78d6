"""The automatic partitions of tables: created ahead of time by the clock, dropped when their retention has ended.

Source: Apache Fluss ``AutoPartitionManager``. Unlike there, a day's partitions are not made at a random minute of the day:
one process creates them all. A partition whose value is not a time (created before automatic partitioning) is never dropped.
One that the lake does not hold completely is kept until it does. Dropped ones do not return when the clock is set back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.model import TableInfo
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.model.names import partition_values
from fluss_lab.model.times import format_moment
from fluss_lab.server.coordinator.ddl.partition_ddl import PartitionDdl
from fluss_lab.server.coordinator.ddl.partition_records import AutoPartitionMark, AutoPartitionMarks, KeptPartition
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog

log = logging.getLogger(__name__)

#: How often a warning repeats that a table keeps partitions past their retention.
_WARNED_EVERY_MS: Final = 3_600_000


class AutoPartitioner:
    """Creates and drops automatic partitions. What fails is logged and retried.

    Args:
        partitions: Creates and drops partitions.
        marks: The progress of each table.
        clock: The server's.
    """

    def __init__(
        self, catalog: TableCatalog, partitions: PartitionDdl, marks: AutoPartitionMarks, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._marks = marks
        self._clock = clock
        self._kept: dict[int, tuple[KeptPartition, ...]] = {}
        self._warned_ms: dict[int, int] = {}
        self._behind: set[int] = set()

    def run(self) -> None:
        """Create and drop the partitions of every table that are due."""
        if self._partitions.are_fixed:
            return
        infos = self._catalog.all_tables()
        for table_id in self._kept.keys() - {info.table_id for info in infos}:
            self._note_kept(table_id, ())
        for info in infos:
            self.maintain(info)

    def kept_partitions(self, table_id: int | None = None) -> list[KeptPartition]:
        """Return the partitions of one table, or of all, that are kept past their retention; as of the last run."""
        return [each for key, found in sorted(self._kept.items()) if table_id in {None, key} for each in found]

    def maintain(self, info: TableInfo) -> None:
        """Drop one table's partitions past their retention, then create those that are due.

        Whatever fails is logged: the other tables have their turn, and whoever altered this one has altered it.
        """
        try:
            self._maintain(info)
        except Exception as error:
            log.warning("event=auto_partition_failed what=look table=%s error=%s", info.path, error)

    def _maintain(self, info: TableInfo) -> None:
        auto = AutoPartition.of(info.descriptor.partitioned_by, info.descriptor.properties)
        if auto is None:
            self._note_kept(info.table_id, ())
            return
        now_ms = self._clock.now_ms()
        # Partitions that were dropped and are still in the lake are not created again.
        known = {
            each.info.name: each.dropped_ms is None for each in self._catalog.partitions(info.table_id, dropped=True)
        }
        past = [name for name, exists in known.items() if exists and auto.is_past(name, now_ms)]
        kept = [found for name in past if (found := self._drop(info, auto, name, now_ms)) is not None]
        self._note_kept(info.table_id, kept)
        if wanted := [name for name in self._wanted_names(info, auto, now_ms) if name not in known]:
            self._create(info, wanted)

    def _wanted_names(self, info: TableInfo, auto: AutoPartition, now_ms: int) -> list[str]:
        """Return the partitions that should exist, without those before the newest one that was ever due."""
        wanted = auto.wanted_partitions(now_ms)
        if not wanted:
            return []
        mark = self._marks.raise_to(info.table_id, AutoPartitionMark(present=wanted[0]))
        if wanted[0] == mark.present:
            self._behind.discard(info.table_id)
        elif info.table_id not in self._behind:
            self._behind.add(info.table_id)
            log.warning(
                "event=clock_set_back table=%s partition=%s newest=%s: earlier partitions are not created again",
                info.path, wanted[0], mark.present,
            )  # fmt: skip
        return [name for name in wanted if name >= mark.present]

    def _drop(self, info: TableInfo, auto: AutoPartition, name: str, now_ms: int) -> KeptPartition | None:
        """Drop a partition past its retention; return it if it must be kept."""
        values = dict(zip(info.descriptor.partitioned_by, partition_values(name), strict=True))
        try:
            self._partitions.drop(
                info.path, values, ignore_if_not_exists=True, table_id=info.table_id, past=auto.time_of(name)
            )
        except NotFoundError:
            return None  # the table was dropped in between
        except FlussError as error:
            return KeptPartition(info.table_id, info.path, name, auto.past_since(name, now_ms), str(error))
        return None

    def _create(self, info: TableInfo, names: Iterable[str]) -> None:
        """Create partitions up to the limit, the earliest first."""
        for name in names:
            values = dict(zip(info.descriptor.partitioned_by, partition_values(name), strict=True))
            try:
                self._partitions.create(info.path, [values], ignore_if_exists=True, table_id=info.table_id)
            except NotFoundError:
                return  # the table was dropped in between
            except FlussError as error:
                log.warning(
                    "event=auto_partition_failed what=create table=%s partition=%s error=%s", info.path, name, error
                )

    def _note_kept(self, table_id: int, kept: Iterable[KeptPartition]) -> None:
        found = tuple(sorted(kept, key=lambda each: (each.since_ms, each.name)))
        if not found:
            self._kept.pop(table_id, None)
            self._warned_ms.pop(table_id, None)
            return
        self._kept[table_id] = found
        now_ms, last_ms = self._clock.monotonic_ms(), self._warned_ms.get(table_id)
        if last_ms is None or now_ms - last_ms >= _WARNED_EVERY_MS:
            self._warned_ms[table_id] = now_ms
            first = found[0]
            log.warning(
                "event=partitions_kept table=%s count=%d first=%s since=%s reason=%s",
                first.path, len(found), first.name, format_moment(first.since_ms), first.reason,
            )  # fmt: skip
