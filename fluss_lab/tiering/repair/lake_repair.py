"""Repair of a table's tiering: the lake is accepted as it is, and registered so with the cluster.

For a lake table that another program changed, that was rolled back, or whose snapshots were expired behind our back; and for
records that left the cluster while the lake was switched off. The repair holds the table like a round. It commits a
snapshot that changes nothing (but takes out rows that must be written anew) and names every bucket's offset, then registers it with the
cluster, whose offsets may go back by that and by nothing else. Cut off between the two, it leaves the table as refused as
before: rounds do not pass a repair that the cluster does not know; running it again finishes it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.errors import CommitConflictError, FlussError, OffsetOutOfRangeError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommitterInitContext, LakeCommitter, LakeStorage, SupportsEmptyBuckets
from fluss_lab.lake.snapshot_summary import commit_properties
from fluss_lab.model import TableBucket, TableInfo, TablePath
from fluss_lab.tiering.repair.lake_repair_plan import RepairPlan, RepairPlanner
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import (
    FinishedTieringEvent,
    TieringAssignment,
    TieringSession,
    TieringSourceEnumerator,
)
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter

log = logging.getLogger(__name__)

#: Between the steps of a repair, in order. Ended at any of them, it can be run again.
FAILPOINTS: Final = ("tiering.adopt_lake.before", "tiering.adopt_lake.after", "tiering.adopt_fluss.after")
#: What is known of buckets whose logs are damaged.
Sound: TypeAlias = Mapping[TableBucket, KnownBucket] | None


def plan_repair(connection: Connection, storage: LakeStorage, path: TablePath, sound: Sound = None) -> RepairPlan:
    """Return what a repair of a table would do. Nothing is changed, and nothing held up.

    Args:
        connection: To the cluster.
        storage: The lake.
        path: The table.
        sound: What is known of buckets whose logs are damaged; None: no log may be.

    Raises:
        TableNotFoundError, LakeNotConfiguredError: There is no such table, or it is not tiered.
        FlussError: As `RepairPlanner.plan`.
    """
    table = connection.admin().table_info(path)
    with _committer(storage, table) as lake:
        return RepairPlanner(connection, storage, table, lake, sound).plan()


def adopt(
    connection: Connection, storage: LakeStorage, path: TablePath, *, accept_gaps: bool = False, sound: Sound = None
) -> RepairPlan:
    """Accept the lake as it is; tiering goes on from there, with the table's next round.

    Args:
        connection: To the cluster.
        storage: The lake.
        path: The table.
        accept_gaps: Go on without offsets that neither the lake nor the cluster holds any more. A log table then has a
            gap and is replayed from behind it; a bucket of a primary-key table is written anew from the rows that the
            cluster has, and the lake is without its rows until the next round has done so.
        sound: What is known of buckets whose logs are damaged; None: no log may be.

    Returns:
        What was done; with no reason, nothing.

    Raises:
        OffsetOutOfRangeError: Offsets are lost, and that is not accepted; the text names them. Nothing was changed.
        TieringInProgressError: A living tierer works on the table.
        CommitConflictError: Another commit to the lake came in between; look again.
        CommitOutcomeUnknownError, FencedTieringEpochError, UnavailableError: The repair was cut off; run it again.
        TableNotFoundError, LakeNotConfiguredError: There is no such table, or it is not tiered.
        FlussError: As `RepairPlanner.plan`.
    """
    plan = plan_repair(connection, storage, path, sound)
    if plan.reason is None:
        return plan
    with ExitStack() as stack:
        session = stack.enter_context(TieringSession(connection))
        interval_s = TieringOptions().renew_interval_s
        enumerator = TieringSourceEnumerator(connection, session.session_id, interval_s)
        assignment = enumerator.request(connection.admin().table_info(path).table_id)
        assert assignment is not None, "a table that is asked for by id is given, or an error raised"
        lost: list[FlussError] = []
        with enumerator.hold(assignment, lost.append):
            plan = _repair(connection, storage, assignment, lost, sound, accept_gaps=accept_gaps)
        enumerator.handle(FinishedTieringEvent(assignment, 0, 0, is_forced=True))
        return plan


def _repair(
    connection: Connection,
    storage: LakeStorage,
    assignment: TieringAssignment,
    lost: Sequence[FlussError],
    sound: Sound,
    *,
    accept_gaps: bool,
) -> RepairPlan:
    table = connection.admin().table_info(assignment.path)
    with _committer(storage, table) as lake:
        plan = RepairPlanner(connection, storage, table, lake, sound).plan()
        if plan.reason is None:
            # Not ended as a round is: one that had to fence a predecessor would have.
            raise CommitConflictError(f"table {plan.table}: the lake was mended meanwhile; there is nothing to repair")
        if plan.lost and not accept_gaps:
            raise OffsetOutOfRangeError(
                f"table {plan.table}: offsets that neither the lake nor the cluster holds any more: {plan.lost_text()}. Nothing "
                "was changed. Roll the lake forward to where it held them, or accept that they are lost (--accept-gaps)"
            )
        if lost:
            raise type(lost[0])(f"{lost[0]}; the repair ends")
        failpoint("tiering.adopt_lake.before")
        snapshot_id = _commit(storage, table, lake, plan, assignment)
        failpoint("tiering.adopt_lake.after")
    offsets = {each.bucket: each.offset for each in plan.buckets if each.offset is not None}
    starts = {each.bucket: each.start for each in plan.buckets if each.offset is not None}
    FlussTableLakeSnapshotCommitter(connection, assignment).commit(snapshot_id, offsets, starts, repair=True)
    failpoint("tiering.adopt_fluss.after")
    log.info("event=lake_adopted table=%s snapshot=%d reason=%s", plan.table, snapshot_id, plan.reason)
    return plan


def _commit(
    storage: LakeStorage,
    table: TableInfo,
    lake: LakeCommitter[Any, Any],
    plan: RepairPlan,
    assignment: TieringAssignment,
) -> int:
    """Commit the snapshot that says how far each bucket is, conditional on the one that was looked at; return its id."""
    properties = _properties(plan, assignment)
    emptied = [(each.partition, each.bucket.bucket) for each in plan.buckets if each.empties]
    if not emptied:
        return lake.commit(lake.to_committable([]), plan.newest_id, properties)
    if not isinstance(storage, SupportsEmptyBuckets):
        raise UnsupportedError(f"lake format {storage.format_name!r} cannot take rows out of single buckets")
    return storage.empty_buckets(table, emptied, plan.newest_id, properties)


def _properties(plan: RepairPlan, assignment: TieringAssignment) -> dict[str, str]:
    offsets = {each.bucket: each.offset for each in plan.buckets if each.offset is not None}
    starts = {each.bucket: each.start for each in plan.buckets if each.offset is not None}
    return commit_properties(
        uuid.uuid4().hex,
        assignment.table_id,
        assignment.tiering_epoch,
        offsets,
        {},
        starts,
        adopted=plan.reason or "",
    )


def _committer(storage: LakeStorage, table: TableInfo) -> LakeCommitter[Any, Any]:
    context = CommitterInitContext(table, uuid.uuid4().hex)
    return storage.create_lake_tiering_factory().create_lake_committer(context)
