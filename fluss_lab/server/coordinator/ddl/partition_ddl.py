"""The creation and drop of partitions: by hand, by writers that meet a new value, and by the clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import InvalidPartitionError, PartitionExistsError, PartitionNotFoundError, TableNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.model.config.options import AUTO_PARTITION_RETENTION, PARTITIONS_MAX
from fluss_lab.model.names import partition_name, partition_values
from fluss_lab.server.coordinator.ddl.lake_table_ddl import LakeTableDdl
from fluss_lab.server.coordinator.ddl.partition_drop_check import PartitionDropCheck
from fluss_lab.server.coordinator.ddl.partition_records import (
    AutoPartitionMark,
    AutoPartitionMarks,
    LossyDrops,
    PartitionLoss,
    PartitionLosses,
)
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import Partition, TableCatalog
from fluss_lab.server.coordinator.tablets.leadership import TabletServers
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger

log = logging.getLogger(__name__)

#: Ids begin at 1, so that a 0 in a message or a folder name is recognizably a mistake.
FIRST_ID: Final = 1


class PartitionDdl:
    """Creates, drops and lists partitions. Changes are serialized, with those of tables too.

    Args:
        catalog: What exists.
        ledger: What the lake holds.
        tablets: The tablet servers, notified of every change.
        lake: Deletes partitions from the lake.
        drop_check: Decides whether a partition may be dropped.
        changing: Held during every change of what exists.
        clock: The server's.
        partitions_max: Most partitions of a table.
    """

    def __init__(
        self,
        store: MetadataStore,
        catalog: TableCatalog,
        ledger: LakeLedger,
        tablets: TabletServers,
        lake: LakeTableDdl,
        drop_check: PartitionDropCheck,
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
        self._drop_check = drop_check
        self._losses = PartitionLosses(store)
        self._marks = AutoPartitionMarks(store)
        self._changing = changing
        self._clock = clock
        self._partitions_max = partitions_max

    def create(
        self,
        path: TablePath,
        specs: Sequence[Mapping[str, str]],
        *,
        ignore_if_exists: bool,
        table_id: int | None = None,
    ) -> None:
        """Create partitions, all or none; with `table_id` only of the table of that id.

        Args:
            specs: The values of each.
            ignore_if_exists: Whether those that exist are skipped.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions or too many, the values are invalid, or the table has
                automatic partitions and the value is not a time, or past its retention.
            PartitionExistsError: One exists, or one of that name was dropped and is still read from the lake.
            ServerUnavailableError: No tablet server is registered.
        """
        with self._changing:
            info = self._table(path, table_id)
            names = self._new_names(info, specs, ignore_if_exists=ignore_if_exists)
            if not names:
                return
            self._store.reserve.check(f"no partition of table {path} was created")
            if (count := self._catalog.count_partitions(info.table_id)) + len(names) > self._partitions_max:
                raise InvalidPartitionError(
                    f"table {path} has {count} partitions, and {len(names)} more were to be created; the most there may be "
                    f"are {self._partitions_max}: drop some first, or raise the cluster option {PARTITIONS_MAX.key}"
                )
            leaders, now_ms, ids = self._tablets.assign(info.descriptor.buckets, len(names)), self._clock.now_ms(), []
            with self._store.write():
                for name, held in zip(names, leaders, strict=True):
                    ids.append(self._store.next_id("partition", FIRST_ID))
                    self._catalog.add_partition(Partition(PartitionInfo(ids[-1], name), info.table_id, held), now_ms)
            self._tablets.note_partitions(info.table_id, ids)
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=partition_created table=%s partition=%s id=%d count=%d", path, names[0], ids[0], len(ids))

    def _new_names(self, info: TableInfo, specs: Sequence[Mapping[str, str]], *, ignore_if_exists: bool) -> list[str]:
        """Return the names of the partitions to create, after checking each."""
        auto, mark, now_ms = (
            AutoPartition.of(info.descriptor.partitioned_by, info.descriptor.properties),
            self._marks.get(info.table_id),
            self._clock.now_ms(),
        )
        names: dict[str, None] = {}
        for spec in specs:
            name = name_of_partition(info, spec)
            found = self._existing(info, name)
            if found is not None and found.dropped_ms is None and ignore_if_exists:
                continue
            if found is not None or name in names:
                raise _partition_exists(info.path, name, was_dropped=found is not None and found.dropped_ms is not None)
            if auto is not None:
                auto.check(name, now_ms)
                _check_mark(info.path, auto, name, mark)
            names[name] = None
        return list(names)

    def _table(self, path: TablePath, table_id: int | None) -> TableInfo:
        info = self._catalog.table(path)
        if table_id not in {None, info.table_id}:
            raise TableNotFoundError(
                f"table {path} with id {table_id} does not exist; there is one with id {info.table_id}"
            )
        return info

    def _existing(self, info: TableInfo, name: str) -> Partition | None:
        """Return the partition of a name, dropped ones too, after finishing its pending deletion in the lake."""
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
        discard_untiered: bool = False,
        table_id: int | None = None,
        past: str = "",
    ) -> None:
        """Drop a partition. What the lake holds of it stays readable there, or with `drop_lake` is deleted too.

        With `drop_lake` a partition that was dropped before is deleted from the lake, and its name is free again.

        Args:
            values: Of the partition.
            ignore_if_not_exists: Whether a missing one is no error.
            drop_lake: Whether to delete it from the lake too.
            discard_untiered: Whether records that the lake does not hold may be lost: readers then go on with what the
                lake holds, of a primary-key table the rows as they were then.
            table_id: Only a partition of the table of that id is dropped.
            past: Its time value, if it is dropped by retention: it is not created again. Where the table's retention was
                altered since, so that it stays, nothing happens.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions, or the values are invalid.
            PartitionNotFoundError: It does not exist.
            UntieredRecordsError: The lake does not hold all of it.
            UnavailableError, CorruptDataError: How much of it the lake does not hold is not known.
            FlussError: The partition is gone, but the lake refused; the next change retries that.
        """
        with self._changing:
            info = self._table(path, table_id)
            name = name_of_partition(info, values)
            if past and not _is_past(info, name, self._clock.now_ms()):
                return
            found = self._catalog.find_partition(info.table_id, name)
            # A running round may still commit rows of it to the lake, whatever the lake holds now.
            in_lake = self._ledger.state(info.table_id) is not None
            if found is None or (found.dropped_ms is not None and not (drop_lake and in_lake)):
                if ignore_if_not_exists:
                    return
                raise PartitionNotFoundError(f"table {path} has no partition {name!r}")

            def remove() -> None:
                with self._drop_transaction(info, found, drop_lake=drop_lake, discard=discard_untiered):
                    if found.dropped_ms is None:
                        self._catalog.remove_partition(found, self._clock.now_ms(), keep_row=in_lake)
                    if drop_lake and in_lake:
                        self._lake.note_partition_drop(info, found.info)
                    if past:
                        self._marks.raise_to(info.table_id, AutoPartitionMark(dropped=past))

            self._store.reserve.lend(remove)
            self._tablets.note_drop()
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=partition_dropped table=%s partition=%s id=%d", path, name, found.info.partition_id)
            if drop_lake and in_lake:
                self._lake.settle(path)

    @contextmanager
    def _drop_transaction(self, info: TableInfo, found: Partition, *, drop_lake: bool, discard: bool) -> Iterator[None]:
        """Run the block in a transaction that drops a partition, if allowed; note the records lost with it."""
        until_ms = self._clock.now_ms()
        with self._drop_check.seal(info, found, discard=discard, drop_lake=drop_lake) as allowed:
            failpoint("coordinator.drop.closed")
            with self._store.write():
                allowed.check()
                if allowed.lost_from_ms is not None:
                    loss = PartitionLoss(info.table_id, found.info, allowed.lost_from_ms, until_ms)
                    self._losses.note(loss)
                    if lost := allowed.lost():
                        self._losses.note_drop(loss, lost)
                yield

    @property
    def are_fixed(self) -> bool:
        """Return whether partitions cannot change: the lab is read-only."""
        return self._store.reserve.is_read_only

    def losses_at(self, path: TablePath, time_ms: int) -> list[PartitionLoss]:
        """Return the dropped partitions of which the table as of a time had rows that are no longer available."""
        return self._losses.losses(self._catalog.table(path).table_id, time_ms)

    def lossy_drops(self, table_id: int, first: int, after_ms: int) -> LossyDrops:
        """Return a table's drops by which records were lost: those of a number and above (of 0 none), after a time."""
        return self._losses.drops(table_id, first, after_ms)

    def list_partitions(self, path: TablePath, wanted: Mapping[str, str]) -> tuple[TableInfo, list[PartitionInfo]]:
        """Return a table and its partitions, by id; those that match a partial spec.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no such partition columns.
        """
        info = self._catalog.table(path)
        columns = info.descriptor.partitioned_by
        if unknown := sorted(set(wanted) - set(columns)):
            name_of_partition(info, {unknown[0]: ""})  # raises with what is expected
        found = [each.info for each in self._catalog.partitions(info.table_id)]
        return info, [
            each
            for each in found
            if wanted.items() <= dict(zip(columns, partition_values(each.name), strict=True)).items()
        ]


def name_of_partition(info: TableInfo, values: Mapping[str, str]) -> str:
    """Return the name of the partition of a table with these values.

    Raises:
        InvalidPartitionError: The table has no partitions, the values are not of its partition columns, or are invalid.
    """
    columns = info.descriptor.partitioned_by
    if not columns:
        raise InvalidPartitionError(f"table {info.path} is not partitioned")
    if sorted(values) != sorted(columns):
        raise InvalidPartitionError(
            f"partition of table {info.path}: expected values of {list(columns)}, found {sorted(values)}"
        )
    return partition_name(tuple(values[column] for column in columns))


def _is_past(info: TableInfo, name: str, now_ms: int) -> bool:
    auto = AutoPartition.of(info.descriptor.partitioned_by, info.descriptor.properties)
    return auto is not None and auto.is_past(name, now_ms)


def _check_mark(path: TablePath, auto: AutoPartition, name: str, mark: AutoPartitionMark) -> None:
    value = auto.time_of(name)
    if value <= mark.dropped:
        raise InvalidPartitionError(
            f"partition {name!r} of table {path}: {auto.key} {value!r} was dropped by retention before, and the server's "
            f"clock was set back since: partitions after {mark.dropped!r} can be created; set the clock right, or change "
            f"{AUTO_PARTITION_RETENTION.key} to begin anew"
        )


def _partition_exists(path: TablePath, name: str, *, was_dropped: bool) -> PartitionExistsError:
    if not was_dropped:
        return PartitionExistsError(f"table {path} has a partition {name!r}")
    return PartitionExistsError(
        f"table {path} had a partition {name!r}, whose rows are still read from the lake; a new one of that name would mix "
        "with them: choose another value, or drop the partition from the lake too (drop_partition with lake=True)"
    )
