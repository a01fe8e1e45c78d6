"""Repair of damaged logs: what cannot be read is given up; sound records are lost only where that is accepted.

Range by range, of each bucket the first: sound records before it that only the log holds are tiered; then the log is made
to begin behind it, of a primary-key table with the lake's rows where it needs them; then the offsets that are lost are
registered in the lake, so that tiering goes on. Cut off anywhere, it leaves a table that is refused as before, or is done with the
range; running it again finishes it, or says what does.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.client.cluster.log_damage import DamagedBucket, RowsSent, give_up_range, send_rows
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommitterInitContext, LakeStorage
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import TableBucket, TableInfo, TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.records.kv_files import stored_schema
from fluss_lab.tiering.repair.damage_repair_plan import DamagePlan, plan_of, was_given_up
from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair
from fluss_lab.tiering.repair.lake_repair_plan import LEFT_UNTIERED
from fluss_lab.tiering.repair.row_check import rows_in_lake
from fluss_lab.tiering.round.commit_recovery import CommitRecovery
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import (
    FinishedTieringEvent,
    TieringSession,
    TieringSourceEnumerator,
    assigned_table,
)
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TieringExecutor

log = logging.getLogger(__name__)

#: Between the steps, in order. Ended at any of them, it can be run again.
FAILPOINTS: Final = (
    "tiering.give_up.before", "tiering.give_up.sent", "tiering.give_up.after", "tiering.give_up.adopted",
)  # fmt: skip
#: Steps that a damaged range takes at most: a part of it may be in remote storage.
_STEPS_MAX: Final = 2
#: No server holds what is only known of a log's sound part.
_NO_LEADER: Final = -1

#: Bytes of rows that are sent in one piece, about.
PART_BYTES: Final = 4 << 20


def plan_damage_repair(connection: Connection, path: TablePath) -> DamagePlan:
    """Return what giving up the damaged ranges of a table's logs would do. Nothing is changed, and nothing held up.

    A bucket that is found damaged takes no more records.

    Args:
        connection: To the cluster.
        path: The table.

    Raises:
        TableNotFoundError: There is no such table.
        FlussError: Of a bucket that is not known, or whose remote storage is away: the server's own error.
    """
    info = connection.admin().table_info(path)
    return plan_of(connection, info, connection.admin().damaged_buckets(info))


def give_up_damage(
    connection: Connection,
    path: TablePath,
    storage: Callable[[], LakeStorage],
    executor: Callable[[LakeStorage], TieringExecutor],
    *,
    discard_before: bool = False,
) -> DamagePlan:
    """Give up the damaged ranges of a table's logs.

    Args:
        connection: To the cluster.
        path: The table.
        storage: Gives the lake; called only for a table that is tiered.
        executor: Gives what tiers the sound records before the damage; called only where there are any.
        discard_before: Sound records before it that are held nowhere else may be lost too; and the changelog of a primary-key
            table that the lake holds, where it would have a gap.

    Returns:
        What was done.

    Raises:
        InvalidRequestError: Nothing is damaged.
        UntieredRecordsError, UnsupportedError: As `DamagePlan.check`. Nothing was changed.
        TieringInProgressError: A living tierer works on the table.
        OffsetOutOfRangeError: Something else is wrong with the lake too: records were lost before by something else than
            damage, or it was changed. The text names the command that accepts that.
        FlussError: It was cut off; run it again.
    """
    first = plan_damage_repair(connection, path)
    if first.is_empty:
        raise InvalidRequestError(f"repair: {first!r}")
    repair = _DamageRepair(connection, path, storage, executor, discard_before=discard_before)
    for _ in range(_STEPS_MAX * len(first.ranges) + 1):
        if repair.step():
            return first
    raise CorruptDataError(
        f"table {path}: more is damaged than was at first; look after the disk, and run the repair again"
    )


class _DamageRepair:
    """One repair."""

    def __init__(
        self,
        connection: Connection,
        path: TablePath,
        storage: Callable[[], LakeStorage],
        executor: Callable[[LakeStorage], TieringExecutor],
        *,
        discard_before: bool,
    ) -> None:
        self._connection, self._path = connection, path
        self._storage, self._executor = storage, executor
        self._discard_before = discard_before
        self._info = connection.admin().table_info(path)

    def step(self) -> bool:
        """Give up the first damaged range of each bucket; return whether nothing was left to do."""
        self._adopt_gaps(buckets := self._buckets())
        damaged = [each for each in buckets if each.ranges]
        if not damaged:
            return True
        plan = plan_of(self._connection, self._info, buckets)
        plan.check(discard_before=self._discard_before)
        first = {each.bucket: each for each in reversed(plan.ranges)}
        # Where remote storage holds a part of the damage, what lies before is asked there once the log begins behind that.
        stops = {bucket: each.to_tier[1] for bucket, each in first.items() if each.to_tier and each.in_remote is None}
        self._tier(stops, damaged)
        if self._info.descriptor.lake_enabled:
            with self._hold() as check:
                self._give_up(damaged, check)
        else:
            self._give_up(damaged, lambda: None)
        return False

    def _buckets(self) -> list[DamagedBucket]:
        return self._connection.admin().damaged_buckets(self._info)

    # -- what is sound -------------------------------------------------------------------------------------------------

    def _tier(self, stops: Mapping[TableBucket, int], damaged: Sequence[DamagedBucket]) -> None:
        """Tier buckets up to their damage, and return when their servers know of it."""
        if not stops:
            return
        storage = self._storage()
        executor = self._executor(storage)
        sound = {each.bucket: _sound(each, stops[each.bucket]) for each in damaged if each.bucket in stops}
        is_limited = True
        while is_limited:
            report = run_round(
                self._connection, storage, executor, table_id=self._info.table_id, sound=sound
            )  # fmt: skip
            is_limited = report is not None and report.is_limited
        attempts = self._connection.attempts("tiering what is sound")
        while late := [each for each in self._buckets() if (each.lake_end or 0) < stops.get(each.bucket, 0)]:
            attempts.wait_after(
                UnavailableError(f"bucket {late[0].bucket}: its server does not know yet what the lake holds"),
                "the server",
            )

    # -- what is not ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _hold(self) -> Iterator[Callable[[], None]]:
        """Hold the table like a round, and give what raises when it is lost. Who held it before commits nothing more."""
        options = TieringOptions()
        with TieringSession(self._connection) as session:
            enumerator = TieringSourceEnumerator(self._connection, session.session_id, options.renew_interval_s)
            assignment = enumerator.request(self._info.table_id)
            assert assignment is not None, "a table that is asked for by id is given, or an error raised"
            lost: list[FlussError] = []

            def check() -> None:
                if lost:
                    raise type(lost[0])(f"{lost[0]}; the repair ends")

            with enumerator.hold(assignment, lost.append):
                table = assigned_table(self._connection, assignment)
                factory = self._storage().create_lake_tiering_factory()
                with factory.create_lake_committer(CommitterInitContext(table, uuid.uuid4().hex)) as lake:
                    CommitRecovery(self._connection, enumerator, assignment).catch_up(table, lake)
                yield check
            enumerator.handle(FinishedTieringEvent(assignment, 0, 0, is_forced=True))

    def _give_up(self, damaged: Sequence[DamagedBucket], check: Callable[[], None]) -> None:
        for each in damaged:
            check()
            first = each.ranges[0]
            failpoint("tiering.give_up.before")
            sent = self._send_rows(each) if each.needs_lake_rows else None
            failpoint("tiering.give_up.sent")
            start = give_up_range(
                self._connection, self._info, each.bucket, first.start, first.stop, discard_before=self._discard_before,
                sent=sent,
            )  # fmt: skip
            failpoint("tiering.give_up.after")
            if first.start == first.stop:
                log.warning("event=rows_sent table=%s bucket=%s log_start=%d", self._path, each.bucket, start)
                continue
            log.warning("event=damage_given_up table=%s bucket=%s start=%d stop=%d log_start=%d file=%s", self._path,
                        each.bucket, first.start, first.stop, start, first.file)  # fmt: skip

    def _send_rows(self, each: DamagedBucket) -> RowsSent:
        """Send the rows that the lake has of a bucket to its server."""
        assert each.lake_rows is not None, "of a bucket that needs them"
        table = self._connection.admin().table_info(self._path)
        snapshot = self._connection.admin().lake_snapshot(self._path, table_id=self._info.table_id)
        place = (each.partition, each.bucket.bucket)
        parts = lake_bucket_rows(self._storage(), table, snapshot.snapshot_id, place, each.lake_rows)
        return send_rows(self._connection, table, each.bucket, each.lake_rows, parts)

    def _adopt_gaps(self, buckets: Sequence[DamagedBucket]) -> None:
        """Have tiering go on without what was given up.

        Raises:
            OffsetOutOfRangeError: Something else was lost too.
        """
        plan = plan_of(self._connection, self._info, buckets)
        if not plan.unfinished:
            return
        storage = self._storage()
        known = {each.bucket: each for each in buckets}
        # How far a damaged log goes is not known; that the lake is not ahead of it is.
        sound = {each.bucket: _sound(each, each.end) for each in buckets if each.ranges}
        lake = plan_repair(self._connection, storage, self._path, sound)
        others = [each for each in lake.lost if each.lost and not was_given_up(each.lost, known[each.bucket])]
        if others or lake.reason != LEFT_UNTIERED:
            lost = f": {lake.lost_text()}" if lake.lost else ""
            word = " --accept-gaps" if lake.lost else ""
            raise OffsetOutOfRangeError(
                f"table {self._path}: what cannot be read was given up, but tiering cannot go on by itself: {lake.reason}{lost}. To "
                f"accept that, run 'fluss-lab repair {self._path} --adopt{word}', and this again if more is damaged"
            )
        adopt(self._connection, storage, self._path, accept_gaps=True, sound=sound)
        failpoint("tiering.give_up.adopted")


def _sound(each: DamagedBucket, stop: int) -> KnownBucket:
    """Return what is known of a damaged bucket, as if its log ended at an offset."""
    return KnownBucket(
        bucket=each.bucket,
        partition=each.partition,
        leader=_NO_LEADER,
        start=each.start,
        local_start_offset=each.local_start,
        end_offset=stop,
        high_watermark=stop,
        durable_offset=stop,
        size_bytes=each.size_bytes,
        segments=0,
        max_timestamp_ms=None,
        lake_end_offset=each.lake_end,
        lake_snapshot_id=None,
    )


def lake_bucket_rows(
    storage: LakeStorage, table: TableInfo, snapshot_id: int, place: BucketKey, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bucket that were live at an offset of its log, ascending by their own.

    Args:
        storage: The lake.
        table: The table.
        snapshot_id: A snapshot that holds the bucket's log up to `stop` at least.
        place: Partition name and bucket.
        stop: The offset.

    Raises:
        LakeSnapshotNotFoundError: There is no such snapshot (any more).
        CorruptDataError: A file of the lake is damaged, or two rows have the same offset.

    Cost: memory for all rows of the bucket, as its server needs for them too.
    """
    user = table.descriptor.schema.arrow_schema
    names = [*user.names, OFFSET_COLUMN, TIMESTAMP_COLUMN]
    found = rows_in_lake(storage.create_lake_source(table), table, snapshot_id, place, stop, names)
    times = found.column(TIMESTAMP_COLUMN).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    found = found.set_column(len(names) - 1, TIMESTAMP_COLUMN, times).cast(stored_schema(user))
    for batch in found.to_batches():
        yield from _pieces(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield halves of halves of a batch, until each is small enough or one row."""
    if batch.num_rows > 1 and batch.nbytes > PART_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch
