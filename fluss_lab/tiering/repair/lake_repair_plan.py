"""The plan of a repair: where cluster and lake do not fit together, and how they can again.

The lake is accepted as it is. The newest snapshot of ours in its history says how far each bucket is tiered; the cluster
must still hold all that comes after. Where it does not, offsets are lost, and only a repair that accepts that goes on without
them: a log table with a gap, a primary-key table by writing the bucket anew from what the cluster has of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import (
    ForeignCommitError,
    LakeAheadError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import CommittedLakeSnapshot, LakeCommitter, LakeStorage, SupportsEmptyBuckets, SupportsMaintenance
from fluss_lab.lake.snapshot_summary import (
    BUCKETS_NAMED_MAX,
    LakeOffsets,
    committed_offsets,
    committed_starts,
    merge_offsets,
)
from fluss_lab.model import LakeOffset, LakeSnapshot, TableBucket, TableInfo, TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.tiering.repair.row_check import RowCheck, RowDifference
from fluss_lab.tiering.round.split_generator import anew_text

#: What is wrong where the lake is as it should be, but cannot be gone on with.
LEFT_UNTIERED: Final = "records left the cluster before they were tiered"
_COLUMNS: Final = ("partition", "bucket", "cluster knows", "tiered from now on", "replay from", "lost")


@dataclass(frozen=True, slots=True)
class BucketRepair:
    """What a repair makes of one bucket.

    Attributes:
        bucket: Which.
        partition: Name of its partition, or None.
        known_end: How far the cluster believes it to be tiered; None: not at all.
        offset: How far it is tiered from now on; None: it begins anew.
        start: First offset that the lake can replay from now on; of a bucket that is written anew that of its next
            key-value snapshot, this one at the earliest. Of a log table, what the lake has from before `lost` can be
            read by offsets all the same.
        lost: Offsets ``[from, to)`` that neither the lake nor the cluster holds as records any more; None without.
        empties: Whether its rows are taken out of the lake first, for the next round to bring them from a key-value
            snapshot.
        cuts_history: Whether `start` is later than before, since others took records out of the lake.
    """

    bucket: TableBucket
    partition: str | None
    known_end: int | None
    offset: LakeOffset | None
    start: int = 0
    lost: tuple[int, int] | None = None
    empties: bool = False
    cuts_history: bool = False


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair of one table would do, or did.

    Attributes:
        table: Its path.
        reason: What is wrong; None: nothing, and nothing is done.
        known_id: The lake snapshot that the cluster knows.
        newest_id: The newest one in the lake, which is accepted.
        buckets: What becomes of each bucket.
    """

    table: TablePath
    reason: str | None
    known_id: int | None
    newest_id: int | None
    buckets: tuple[BucketRepair, ...] = field(default=())

    @property
    def changed(self) -> tuple[BucketRepair, ...]:
        """Return the buckets that are not as the cluster knows them."""
        return tuple(
            each
            for each in self.buckets
            if each.lost is not None
            or each.cuts_history
            or each.known_end != (None if each.offset is None else each.offset.end)
        )

    @property
    def lost(self) -> tuple[BucketRepair, ...]:
        """Return the buckets with offsets that are lost."""
        return tuple(each for each in self.buckets if each.lost is not None)

    def lost_text(self) -> str:
        """Return which offsets are lost, in words."""
        named = [f"{_name(each)} [{each.lost[0]}, {each.lost[1]})" for each in self.buckets if each.lost is not None]
        more = f" and {len(named) - 10} more" if len(named) > 10 else ""
        return ", ".join(named[:10]) + more

    def rows(self) -> list[tuple[object, ...]]:
        """Return what is shown of each bucket that changes."""
        return [
            (
                each.partition, each.bucket.bucket, each.known_end,
                "anew" if each.offset is None else each.offset.end, each.start,
                None if each.lost is None else f"[{each.lost[0]}, {each.lost[1]})",
            )
            for each in self.changed
        ]  # fmt: skip

    def __repr__(self) -> str:
        if self.reason is None:
            return f"table {self.table}: lake and cluster fit together; there is nothing to repair"
        lines = [
            f"table {self.table}: {self.reason}",
            f"the lake's snapshot {self.newest_id} is accepted as it is (the cluster knows {self.known_id})",
        ]
        if len(self.changed) < len(self.buckets):
            lines.append(f"  {len(self.buckets) - len(self.changed)} bucket(s) stay as they are")
        for each in self.changed:
            tiered = "begins anew" if each.offset is None else f"is tiered up to {each.offset.end}"
            known = "" if each.known_end is None else f" (the cluster believed {each.known_end})"
            lost = "" if each.lost is None else f"; offsets [{each.lost[0]}, {each.lost[1]}) are lost"
            if each.lost is not None and each.offset is not None and each.lost[0]:
                lost += f", those below {each.lost[0]} stay readable"
            later = " or later" if each.empties else ""
            emptied = "; its rows leave the lake until the next round has brought them again" if each.empties else ""
            lines.append(
                f"  {_name(each)} {tiered}{known}, and can be replayed from {each.start}{later}{lost}{emptied}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = self.rows()
        return card(
            "RepairPlan",
            self.table,
            [
                ("", None if self.reason else "lake and cluster fit together: there is nothing to repair"),
                ("accepts snapshot", None if self.newest_id is None else str(self.newest_id)),
                ("the cluster knows", None if self.known_id is None else str(self.known_id)),
                ("buckets that change", len(rows)),
                ("buckets with lost offsets", len(self.lost)),
            ],
            notes=[self.reason, f"lost: {self.lost_text()}" if self.lost else None],
            grid=Grid(_COLUMNS, rows[:CARD_ROWS_MAX], right=_COLUMNS[2:], kept=("lost",)) if rows else None,
            total=len(rows),
            noun="bucket",
            calls=[".changed"] if len(rows) > CARD_ROWS_MAX else [],
        )


def _name(each: BucketRepair) -> str:
    return f"bucket {each.bucket.bucket}" + ("" if each.partition is None else f" of partition {each.partition}")


class RepairPlanner:
    """Finds out what is wrong with one table, and what a repair would do. It changes nothing.

    Args:
        connection: To the cluster.
        storage: The lake.
        table: The table, as it is now.
        lake: Its committer.
        sound: What is known of buckets whose logs are damaged, which is believed of them.
    """

    def __init__(
        self,
        connection: Connection,
        storage: LakeStorage,
        table: TableInfo,
        lake: LakeCommitter[Any, Any],
        sound: Mapping[TableBucket, KnownBucket] | None = None,
    ) -> None:
        if not table.descriptor.lake_enabled:
            raise LakeNotConfiguredError(f"table {table.path} is not tiered: set table.datalake.enabled first")
        self._connection = connection
        self._storage = storage
        self._table = table
        self._lake = lake
        self._sound = sound or {}
        self._ids: dict[str, int] = {}

    def plan(self) -> RepairPlan:
        """Return what a repair would do.

        Raises:
            LakeAheadError: The lake holds more than the cluster ever wrote: no repair of the lake's side helps.
            LakeSnapshotNotFoundError: The lake does not say how far it was tiered.
            ForeignCommitError: Another program wrote rows to the lake with offsets that other rows have, or will have, or that
                no record has; or it deleted, changed or added rows of a primary-key table that the cluster holds.
            UnsupportedError: The lake cannot take rows out of single buckets, and it would have to.
            TableNotFoundError, UnavailableError: The lake table is gone, or cluster or lake does not answer.
            FlussError: The cluster does not know how far a bucket goes or where it begins: the server's own error.
        """
        newest_id = self._lake.current_snapshot_id()
        known = self._known_snapshot()
        self._ids = self._partition_ids(known)
        reason, offsets, starts = self._accept(known, newest_id)
        # What is not known of a bucket is not lost: no repair is planned around it.
        found = self._connection.admin().buckets(self._table)
        statuses = {status.bucket: self._sound.get(status.bucket) or status.require() for status in found}
        buckets = sorted({*statuses, *offsets, *known.offsets}, key=TableBucket.sort_key)
        repairs = [
            self._fit(bucket, statuses.get(bucket), offsets.get(bucket), starts.get(bucket, 0), known)
            for bucket in buckets
        ]
        if reason is None and not any(each.lost for each in repairs):
            return RepairPlan(self._table.path, None, _id(known), newest_id)
        is_changed = reason is not None
        self._check_can_empty(repairs)
        self._check_offsets(repairs)
        if is_changed and newest_id is not None and not self._table.is_log_table:
            repairs = self._with_same_rows(repairs, set(statuses), known.snapshot_id, newest_id)
        return RepairPlan(self._table.path, reason or LEFT_UNTIERED, _id(known), newest_id, tuple(repairs))

    # -- how far the lake is -------------------------------------------------------------------------------------------

    def _known_snapshot(self) -> LakeSnapshot:
        try:
            return self._connection.admin().lake_snapshot(self._table.path, table_id=self._table.table_id)
        except LakeSnapshotNotFoundError:
            return LakeSnapshot(_NO_SNAPSHOT, {})

    def _partition_ids(self, known: LakeSnapshot) -> dict[str, int]:
        ids = {
            offset.partition: bucket.partition_id
            for bucket, offset in known.offsets.items()
            if offset.partition is not None and bucket.partition_id is not None
        }
        if not self._table.descriptor.partitioned_by:
            return ids
        return ids | {each.name: each.partition_id for each in self._connection.admin().partitions(self._table.path)}

    def _accept(
        self, known: LakeSnapshot, newest_id: int | None
    ) -> tuple[str | None, LakeOffsets, Mapping[TableBucket, int]]:
        """Return what is wrong with the lake, and how far each bucket is tiered in it and can be replayed."""
        try:
            missing = self._lake.missing_lake_snapshot(_id(known))
        except ForeignCommitError as error:
            return str(error), *self._merge(known, self._lake.newest_lake_snapshot())
        except LakeSnapshotNotFoundError as error:
            return str(error), *self._without_known(known, newest_id)
        return None, *self._merge(known, missing)

    def _merge(
        self, known: LakeSnapshot, newer: CommittedLakeSnapshot | None
    ) -> tuple[LakeOffsets, Mapping[TableBucket, int]]:
        if newer is None:
            return known.offsets, known.starts
        found = self._offsets_of(newer)
        named = committed_starts(newer, found)
        starts = {bucket: max(start, known.starts.get(bucket, 0)) for bucket, start in named.items()}
        return merge_offsets(known.offsets, found), {**known.starts, **starts}

    def _without_known(
        self, known: LakeSnapshot, newest_id: int | None
    ) -> tuple[LakeOffsets, Mapping[TableBucket, int]]:
        """Return the offsets of a lake from whose history the snapshot that the cluster knows is gone."""
        ours = self._lake.newest_lake_snapshot()
        if ours is None:
            return ({}, {}) if newest_id is None else self._offsets_in_files(known)
        try:
            # What the cluster keeps of that snapshot has every bucket.
            remembered = self._connection.admin().lake_snapshot(
                self._table.path, ours.snapshot_id, table_id=self._table.table_id
            )
        except LakeSnapshotNotFoundError:
            found = self._offsets_of(ours)
            says_all = ours.is_complete and len(known.offsets) <= BUCKETS_NAMED_MAX
            if not says_all and (unnamed := set(known.offsets) - set(found)):
                raise LakeSnapshotNotFoundError(
                    f"table {self._table.path}: snapshot {ours.snapshot_id}, the newest of ours in the lake, does not say how "
                    f"far {len(unnamed)} of the table's buckets are tiered, and those before it are gone: roll the table "
                    "forward or back to a snapshot that the cluster knows"
                ) from None
            return found, committed_starts(ours, found)
        return remembered.offsets, remembered.starts

    def _offsets_in_files(self, known: LakeSnapshot) -> tuple[LakeOffsets, Mapping[TableBucket, int]]:
        """Return what the cluster knows, held against the files: no snapshot of ours is left to say it.

        Nor is any to say what others' compactions retired since: of a primary-key table `_with_same_rows` looks whether the files
        have every record.
        """
        if not isinstance(self._storage, SupportsMaintenance):
            raise LakeSnapshotNotFoundError(
                f"table {self._table.path}: no snapshot of ours is left in the lake to say how far it is tiered"
            )
        ends: dict[BucketKey, int] = {}
        with self._storage.create_lake_maintenance(self._table) as maintenance:
            for file in maintenance.files():
                if file.max_offset is not None:
                    key = (file.partition, file.bucket)
                    ends[key] = max(ends.get(key, 0), file.max_offset + 1)
        for bucket, offset in known.offsets.items():
            found = ends.get((offset.partition, bucket.bucket), 0)
            if found != offset.end and not (self._table.is_log_table and found < offset.end):
                raise LakeSnapshotNotFoundError(
                    f"table {self._table.path}, bucket {bucket.bucket}: no snapshot of ours is left in the lake to say how far "
                    f"it is tiered; the cluster knows offsets below {offset.end}, the lake's files have those below {found}: "
                    "roll the table back to a snapshot that has ours in its history, or create it anew"
                )
        # Of a log table every record is a row in a file: what is not there is tiered again.
        offsets = {
            bucket: offset if (found := ends.get((offset.partition, bucket.bucket), 0)) == offset.end
            else LakeOffset(found, -1, offset.partition)
            for bucket, offset in known.offsets.items()
        }  # fmt: skip
        return offsets, known.starts

    def _offsets_of(self, snapshot: CommittedLakeSnapshot) -> dict[TableBucket, LakeOffset]:
        return committed_offsets(snapshot, self._table.table_id, self._ids)

    # -- whether the cluster holds the rest ----------------------------------------------------------------------------

    def _fit(
        self,
        bucket: TableBucket,
        status: KnownBucket | None,
        offset: LakeOffset | None,
        start: int,
        known: LakeSnapshot,
    ) -> BucketRepair:
        before = known.offsets.get(bucket)
        named = next((each.partition for each in (before, offset, status) if each is not None), None)
        end = 0 if offset is None else offset.end
        # What was reported as gone does not come back with an older snapshot.
        first = min(max(start, known.starts.get(bucket, 0)), end)
        kept = BucketRepair(bucket, named, None if before is None else before.end, offset, first)
        if status is None:
            # The cluster dropped its partition: the lake has all that there will be.
            return kept if before is None or before.end <= end else replace(kept, lost=(end, before.end))
        self._check_not_ahead(kept, end, status)
        if offset is None:
            end = 0 if before is None else known.starts.get(bucket, 0)
        if status.start_offset <= end or (offset is None and before is None):
            return kept
        kept = replace(kept, lost=(end, status.start_offset))
        if offset is None:
            return kept
        if not self._table.is_log_table:
            return replace(kept, offset=None, start=status.start_offset, empties=True)
        onward = LakeOffset(status.start_offset, offset.max_timestamp_ms, named)
        return replace(kept, offset=onward, start=status.start_offset)

    def _check_not_ahead(self, repair: BucketRepair, end: int, status: KnownBucket) -> None:
        if end > status.end_offset:
            raise LakeAheadError(
                f"table {self._table.path}, {_name(repair)}: the lake holds offsets below {end}, the cluster only those below "
                f"{status.end_offset}; the cluster's folder is older than the lake (restored from a copy?). Accepting the "
                f"lake does not help: restore the newer folder, or {anew_text(self._table.path)}"
            )

    def _check_offsets(self, repairs: Sequence[BucketRepair]) -> None:
        """Refuse rows of others whose offsets are those of other rows."""
        if not isinstance(self._storage, SupportsMaintenance):
            return
        ends = {
            (each.partition, each.bucket.bucket): 0 if each.offset is None else each.offset.end
            for each in repairs
            if not each.empties
        }
        with self._storage.create_lake_maintenance(self._table) as maintenance:
            found = maintenance.taken_offsets(ends)
        if found:
            raise ForeignCommitError(
                f"table {self._table.path}: the lake cannot be accepted as it is: {'; '.join(map(str, found[:10]))}. An offset "
                "belongs to one record: remove the rows that another program wrote (roll the lake table back, or delete them "
                "there), and append them to the table instead"
            )

    def _with_same_rows(
        self, repairs: Sequence[BucketRepair], held: Collection[TableBucket], known_id: int, newest_id: int
    ) -> list[BucketRepair]:
        """Return the repairs of a primary-key table, once its rows in the lake are found to be those of the cluster.

        Raises:
            ForeignCommitError: They are not.
        """
        check = RowCheck(self._connection, self._storage, self._table, known_id, newest_id)
        found: list[BucketRepair] = []
        wrong: list[RowDifference] = []
        for each in repairs:
            key = (each.partition, each.bucket.bucket)
            if each.offset is None or not check.is_changed(key):
                found.append(each)
                continue
            end = each.offset.end
            if (is_held := each.bucket in held) and (difference := check.difference(each.bucket, each.partition, end)):
                wrong.append(difference)
            # What only the lake has, others may have changed: nothing says what it was before.
            is_whole = is_held and (bool(wrong) or check.can_replay(key, each.start, end))
            found.append(each if is_whole or each.start == end else replace(each, start=end, cuts_history=True))
        if wrong:
            known = "" if known_id == _NO_SNAPSHOT else f" (the cluster knows snapshot {known_id})"
            raise ForeignCommitError(
                f"table {self._table.path}: the lake cannot be accepted as it is: {'; '.join(map(str, wrong[:10]))}. A primary-key "
                f"table's lookups and changelog go by what was written to it: roll the lake table back{known}, and delete or "
                "change rows by the table instead"
            )
        return found

    def _check_can_empty(self, repairs: Sequence[BucketRepair]) -> None:
        if any(each.empties for each in repairs) and not isinstance(self._storage, SupportsEmptyBuckets):
            raise UnsupportedError(
                f"table {self._table.path}: records of a primary-key table left the cluster before they were tiered, and the "
                f"lake format {self._storage.format_name!r} cannot begin single buckets anew: create the table anew"
            )


#: Stands for the snapshot of a table that was never tiered; no lake has it.
_NO_SNAPSHOT: Final = -1


def _id(known: LakeSnapshot) -> int | None:
    return None if known.snapshot_id == _NO_SNAPSHOT else known.snapshot_id
