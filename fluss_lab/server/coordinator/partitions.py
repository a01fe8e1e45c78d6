"""Partitions come and go: by hand, by writers that meet a new value, and by the clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import InvalidPartitionError, PartitionExistsError, PartitionNotFoundError, TableNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.model.names import partition_name, partition_values
from fluss_lab.model.options import PARTITIONS_MAX
from fluss_lab.server.coordinator.catalog import Catalog, Partition
from fluss_lab.server.coordinator.lake_side import LakeSide
from fluss_lab.server.coordinator.lakes import LakeLedger
from fluss_lab.server.coordinator.store import MetadataStore
from fluss_lab.server.coordinator.tablets import TabletServers

log = logging.getLogger(__name__)

#: Ids begin at 1, so that a 0 in a message or a folder name is seen to be a mistake.
FIRST_ID: Final = 1


class Partitions:
    """Creates, drops and lists partitions. Changes run one after another, and with those of tables.

    Args:
        store: The metadata.
        catalog: What exists.
        ledger: What the lake holds.
        tablets: Who is told.
        lake: The lake's side of drops.
        changing: Held during every change of what exists.
        clock: The server's.
        partitions_max: Most partitions of a table.
    """

    def __init__(
        self,
        store: MetadataStore,
        catalog: Catalog,
        ledger: LakeLedger,
        tablets: TabletServers,
        lake: LakeSide,
        *,
        changing: threading.Lock,
        clock: Clock,
        partitions_max: int,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._ledger = ledger
        self._tablets = tablets
        self._lake = lake
        self._changing = changing
        self._clock = clock
        self._partitions_max = partitions_max

    def create(
        self, path: TablePath, values: Mapping[str, str], *, ignore_if_exists: bool, table_id: int | None = None
    ) -> None:
        """Create a partition; with `table_id` only of the table of that id.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions or too many, the values cannot be, or the table is
                partitioned by the clock and the value is no time, or past keeping.
            PartitionExistsError: It exists, or one of that name was dropped and is still read from the lake.
            ServerUnavailableError: No tablet server is there.
        """
        with self._changing:
            info = self._table(path, table_id)
            name = name_of_partition(info, values)
            found = self._existing(info, name)
            if found is not None and found.dropped_ms is None and ignore_if_exists:
                return
            if found is not None:
                raise _partition_exists(path, name, was_dropped=found.dropped_ms is not None)
            if (auto := AutoPartition.of(info.descriptor.partitioned_by, info.descriptor.properties)) is not None:
                auto.check(name, self._clock.now_ms())
            if (count := len(self._catalog.partitions(info.table_id))) >= self._partitions_max:
                raise InvalidPartitionError(
                    f"table {path} has {count} partitions, the most there may be ({PARTITIONS_MAX.key}): drop some first"
                )
            leaders = self._tablets.assign(info.descriptor.buckets)
            partition = PartitionInfo(self._store.next_id("partition", FIRST_ID), name)
            self._catalog.add_partition(Partition(partition, info.table_id, leaders), self._clock.now_ms())
            self._tablets.note_table(info.table_id)
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=partition_created table=%s partition=%s id=%d", path, name, partition.partition_id)

    def _table(self, path: TablePath, table_id: int | None) -> TableInfo:
        info = self._catalog.table(path)
        if table_id not in {None, info.table_id}:
            raise TableNotFoundError(
                f"table {path} with id {table_id} does not exist; there is one with id {info.table_id}"
            )
        return info

    def _existing(self, info: TableInfo, name: str) -> Partition | None:
        """Return the partition of a name, dropped ones too, after what was begun with it in the lake is finished."""
        found = self._catalog.find_partition(info.table_id, name)
        if found is None or found.dropped_ms is None:
            return found
        if all(drop.partition != found.info for drop in self._ledger.partition_drops()):
            return found
        self._lake.settle(info.path)
        return self._catalog.find_partition(info.table_id, name)

    def drop(
        self,
        path: TablePath,
        values: Mapping[str, str],
        *,
        ignore_if_not_exists: bool,
        drop_lake: bool = False,
        table_id: int | None = None,
    ) -> None:
        """Drop a partition. What the lake holds of it stays readable there, or with `drop_lake` is deleted too.

        With `drop_lake` a partition that was dropped before is deleted from the lake, and its name is free again. With
        `table_id` only one of the table of that id is dropped.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions, or the values cannot be.
            PartitionNotFoundError: It does not exist.
            FlussError: The partition is gone, but the lake refused; that is tried again with the next change.
        """
        with self._changing:
            info = self._table(path, table_id)
            name = name_of_partition(info, values)
            found = self._catalog.find_partition(info.table_id, name)
            # A round that is under way may still bring rows of it to the lake, whatever the lake holds now.
            in_lake = self._ledger.state(info.table_id) is not None
            if found is None or (found.dropped_ms is not None and not (drop_lake and in_lake)):
                if ignore_if_not_exists:
                    return
                raise PartitionNotFoundError(f"table {path} has no partition {name!r}")
            with self._store.write():
                if found.dropped_ms is None:
                    self._catalog.remove_partition(found, self._clock.now_ms(), keep_row=in_lake)
                if drop_lake and in_lake:
                    self._lake.note_partition_drop(info, found.info)
            self._tablets.note_drop()
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=partition_dropped table=%s partition=%s id=%d", path, name, found.info.partition_id)
            if drop_lake and in_lake:
                self._lake.settle(path)

    def listed(self, path: TablePath, wanted: Mapping[str, str]) -> tuple[TableInfo, list[PartitionInfo]]:
        """Return a table and its partitions, by id; those that agree with a partial spec.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no such partition columns.
        """
        info = self._catalog.table(path)
        columns = info.descriptor.partitioned_by
        if unknown := sorted(set(wanted) - set(columns)):
            name_of_partition(info, {unknown[0]: ""})  # says what is expected
        found = [each.info for each in self._catalog.partitions(info.table_id)]
        return info, [
            each
            for each in found
            if wanted.items() <= dict(zip(columns, partition_values(each.name), strict=True)).items()
        ]


def name_of_partition(info: TableInfo, values: Mapping[str, str]) -> str:
    """Return the name of the partition of a table with these values.

    Raises:
        InvalidPartitionError: The table has no partitions, the values are not of its partition columns, or cannot be.
    """
    columns = info.descriptor.partitioned_by
    if not columns:
        raise InvalidPartitionError(f"table {info.path} is not partitioned")
    if sorted(values) != sorted(columns):
        raise InvalidPartitionError(
            f"partition of table {info.path}: expected values of {list(columns)}, found {sorted(values)}"
        )
    return partition_name(tuple(values[column] for column in columns))


def _partition_exists(path: TablePath, name: str, *, was_dropped: bool) -> PartitionExistsError:
    if not was_dropped:
        return PartitionExistsError(f"table {path} has a partition {name!r}")
    return PartitionExistsError(
        f"table {path} had a partition {name!r}, whose rows are still read from the lake; a new one of that name would mix "
        "with them: choose another value, or drop the partition from the lake too (drop_partition with lake=True)"
    )
