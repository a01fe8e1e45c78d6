"""The lag of the lake behind a table: records, and the age of the oldest of them; now, and over its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_lab.client import BucketStatus, Connection, KnownBucket, TieringRoundRecord
from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.model import LakeOffset, TableBucket, TableInfo, TablePath
from fluss_lab.model.config.options import DATALAKE_FRESHNESS
from fluss_lab.model.offsets import newest_ms

#: Rounds take what is durable, which trails what is written by so long (``log.flush.interval``).
DURABLE_MS: Final = 1_000
#: Points of a curve that is drawn: more than a screen shows apart.
SAMPLES_MAX: Final = 180


@dataclass(frozen=True, slots=True)
class TableLag:
    """How far the lake lags behind one table.

    Attributes:
        records: Log records in the cluster that are not in the lake.
        ms: So old at most is the oldest of them, milliseconds; 0 without any.
        newest_ms: Timestamp of the newest record that the lake holds, epoch milliseconds; None before the first.
        freshness_ms: How far the lake may lag: ``table.datalake.freshness``; None when the table cannot be looked up.
        is_complete: Whether every bucket is known; one that is not is not counted, and may lag as far as it likes.
        error: Why one is not; None when `is_complete`.
    """

    records: int
    ms: int
    newest_ms: int | None
    freshness_ms: int | None
    is_complete: bool = True
    error: str | None = None

    @property
    def is_late(self) -> bool:
        """Return whether the lake lags further behind than it may, as far as both are known."""
        return self.freshness_ms is not None and self.ms > self.freshness_ms


def table_lag(connection: Connection, path: TablePath, now_ms: int, complete_ms: int | None = None) -> TableLag:
    """Return how far the lake lags behind a table now; servers that are away are not waited for.

    Args:
        connection: To the cluster.
        path: The table.
        now_ms: The time, epoch milliseconds.
        complete_ms: When a round was planned that brought everything durable into the lake, if one did.

    Raises:
        TableNotFoundError: It was dropped.
        UnavailableError: The coordinator is away.

    Cost: three small calls, and one for each server that holds buckets.
    """
    info = connection.table_info(path)
    try:
        offsets: Mapping[TableBucket, LakeOffset] = (
            connection.admin().lake_snapshot(path, table_id=info.table_id).offsets
        )
    except LakeSnapshotNotFoundError:
        offsets = {}
    return lag_of(info, connection.admin().buckets(info, patient=False), offsets, now_ms, complete_ms)


def lag_of(
    info: TableInfo,
    statuses: Sequence[BucketStatus],
    offsets: Mapping[TableBucket, LakeOffset],
    now_ms: int,
    complete_ms: int | None = None,
) -> TableLag:
    """Return how far the lake lags behind a table, from what its servers say.

    Args:
        info: The table.
        statuses: Its buckets.
        offsets: What the lake holds of them.
        now_ms: The time, epoch milliseconds.
        complete_ms: When a round was planned that brought everything durable into the lake, if one did.
    """
    buckets = [each for each in statuses if isinstance(each, KnownBucket) and not _is_doubtful(each, offsets)]
    errors = [each.error for each in statuses if each.error is not None and each not in buckets]
    behind = [each for each in buckets if _missing(each, offsets)]
    # A bucket's next record is no older than the newest one in the lake, of one without any than the table, and no older
    # than the last plan that took all.
    least_ms = max(info.created_ms, complete_ms or 0)
    tiered = [offsets.get(each.bucket) for each in behind]
    floors = [max(least_ms if each is None else each.max_timestamp_ms, least_ms) for each in tiered]
    return TableLag(
        sum(_missing(each, offsets) for each in behind),
        max((max(0, now_ms - floor) for floor in floors), default=0),
        newest_ms(offsets.values()),
        DATALAKE_FRESHNESS.of(info.descriptor.properties),
        not errors,
        str(errors[0]) if errors else None,
    )


def _is_doubtful(bucket: KnownBucket, offsets: Mapping[TableBucket, LakeOffset]) -> bool:
    """Return whether it is not known how far a bucket lags: where it begins is not, and none of it is in the lake."""
    return bucket.error is not None and bucket.bucket not in offsets


def _missing(bucket: KnownBucket, offsets: Mapping[TableBucket, LakeOffset]) -> int:
    held = offsets.get(bucket.bucket)
    return max(0, bucket.end_offset - (held.end if held is not None else bucket.start_offset))


@dataclass(frozen=True, slots=True)
class LagSample:
    """How far the lake lagged behind at one moment.

    Attributes:
        time_ms: The moment, epoch milliseconds.
        records: Log records in the cluster that were not in the lake.
        ms: So old at most was the oldest of them, milliseconds; 0 without any.
        round: The tiering epoch of the round at whose plan or end it was looked up; None: it is as it is now.
    """

    time_ms: int
    records: int
    ms: int
    round: int | None = None


def lag_samples(rounds: Sequence[TieringRoundRecord]) -> list[LagSample]:
    """Return how far the lake lagged when each round was planned, and at its end: a saw of one tooth a round.

    Args:
        rounds: As the coordinator keeps them, oldest first.
    """
    samples: list[LagSample] = []
    for index, each in enumerate(rounds):
        if each.before is not None:
            whole_ms = complete_ms(rounds[:index])
            age_ms = each.before.ms if whole_ms is None else min(each.before.ms, each.start_ms - whole_ms)
            samples.append(LagSample(each.start_ms, each.before.records, max(0, age_ms), each.epoch))
        if each.after is not None and each.end_ms is not None:
            samples.append(LagSample(each.end_ms, each.after.records, each.after.ms, each.epoch))
    return samples


def complete_ms(rounds: Sequence[TieringRoundRecord]) -> int | None:
    """Return a moment (epoch milliseconds) all records before which are in the lake; None when no round says so.

    The coordinator notes a round's begin before its tierer plans it. A round of a repair tiers what it mended, and says no lag.
    """
    whole = (each for each in reversed(rounds) if each.state == "done" and each.before is not None)
    return next((each.start_ms - DURABLE_MS for each in whole), None)
