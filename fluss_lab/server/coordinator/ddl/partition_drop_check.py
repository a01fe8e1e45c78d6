"""The check before a partition is dropped: the lake holds every record of it, or its records may be lost.

The lake's offsets are compared with the ends of the buckets while these are sealed against writes, until the drop is durable:
no record can arrive in between. A drop that may lose records seals them too, where that can be done: so which ones it loses is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from fluss_lab.errors import CorruptDataError, FlussError, UnavailableError, UntieredRecordsError
from fluss_lab.model import TableInfo
from fluss_lab.server.coordinator.ddl.partition_records import LostRange
from fluss_lab.server.coordinator.metadata.table_catalog import BucketGroup, Partition
from fluss_lab.server.coordinator.tablets.durable_offsets import LogEnd
from fluss_lab.server.coordinator.tablets.leadership import TabletServers
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger, TieredOffset

#: Buckets that an error text names, at most.
_NAMED_MAX: Final = 5
#: How often it is tried to seal a bucket where it ends, while others write to it.
_SEALS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class AllowedDrop:
    """A partition that may be dropped.

    Attributes:
        check: Call it in the transaction of the drop: raises `UnavailableError` if a tablet server has lost its
            seal by a restart.
        lost_from_ms: The table as of this time or later, up to the drop, is no longer available; None: nothing is lost.
        lost: Returns the records that are lost. Call it there too.
    """

    check: Callable[[], None]
    lost_from_ms: int | None
    lost: Callable[[], tuple[LostRange, ...]]


class PartitionDropCheck:
    """Seals partitions against writes and compares them with the lake.

    Args:
        ledger: What the lake holds.
        tablets: Where the buckets are.
        coordinator_epoch: So that the seals of an earlier coordinator have smaller numbers.
    """

    def __init__(self, ledger: LakeLedger, tablets: TabletServers, coordinator_epoch: int) -> None:
        self._ledger = ledger
        self._tablets = tablets
        self._numbers = itertools.count(coordinator_epoch << 32)

    def is_guarded(self, info: TableInfo, partition: Partition) -> bool:
        """Return whether readers still read the lake's rows of a partition after it was dropped from the cluster."""
        return info.descriptor.lake_enabled or bool(self.tiered_offsets(info, partition))

    def tiered_offsets(self, info: TableInfo, partition: Partition) -> Mapping[int, TieredOffset]:
        """Return how far each bucket of a partition is tiered; those that never were are left out."""
        return self._ledger.partition_offsets(info.table_id, partition.info.partition_id)

    @contextmanager
    def seal(
        self, info: TableInfo, partition: Partition, *, discard: bool = False, drop_lake: bool = False
    ) -> Iterator[AllowedDrop]:
        """Seal a partition that the lake holds completely against writes; unseal it if the block raises.

        Args:
            discard: Whether it may be dropped although the lake does not hold all of it, or that is not known.
            drop_lake: Whether it is dropped from the lake too. That, and the drop of one that nothing guards, loses all of it.

        Raises:
            UntieredRecordsError: The lake does not hold all of it.
            UnavailableError: A subclass: a bucket's server does not answer where the bucket ends.
            CorruptDataError: A bucket has stopped, so its end is not known; or the lake holds more than the bucket.
        """
        tiered, number, terms = self.tiered_offsets(info, partition), next(self._numbers), self._tablets.terms()
        group = BucketGroup(info.table_id, partition.info.partition_id, partition.leaders)
        loses_all = drop_lake or not self.is_guarded(info, partition)
        may_lose = discard or loses_all
        kept = {} if loses_all else tiered
        kept_ends = [kept[bucket].end if bucket in kept else 0 for bucket in range(len(group.leaders))]
        where = f"table {info.path}, partition {partition.info.name!r}"
        found: Sequence[LogEnd | FlussError] = ()

        def check() -> None:
            if not may_lose and self._tablets.terms() != terms:
                raise UnavailableError(
                    f"{where}: a tablet server restarted while the partition was being dropped; nothing was dropped, "
                    "try again"
                )

        if partition.dropped_ms is not None:  # only the lake has it
            yield AllowedDrop(check, partition.created_ms, partial(_tiered_ranges, tiered))
            return
        try:
            found = self._tablets.seal(group, kept_ends, number)
            if not may_lose:
                _check_ends(where, kept_ends, found)
            lost = [bucket for bucket, end in enumerate(kept_ends) if not _ends_at(found[bucket], end)]
            if not (lost or loses_all):
                yield AllowedDrop(check, None, tuple)
                return
            kept_until_ms = min((kept[each].max_timestamp_ms if each in kept else -1 for each in lost), default=-1)
            lost_ranges = partial(self._lost_ranges, kept_ends, self._seal_here(group, found, kept_ends, number), terms)
            yield AllowedDrop(check, max(kept_until_ms, partition.created_ms), lost_ranges)
        except BaseException:
            # Without `may_lose`, buckets that end elsewhere were not sealed.
            sealed = any(
                _ends_at(at, end) or isinstance(at, FlussError) for end, at in zip(kept_ends, found, strict=False)
            )
            if may_lose or not found or sealed:
                self._tablets.unseal(group, number)
            raise

    def _seal_here(
        self, group: BucketGroup, found: Sequence[LogEnd | FlussError], tried: Sequence[int], number: int
    ) -> list[LogEnd | None]:
        """Seal the buckets of a group where they end.

        Args:
            found: What a seal at `tried` has found.

        Returns:
            The end of each; None of one that does not say, or that was written to all the time.
        """
        for _ in range(_SEALS_MAX):
            ends = [at.offset if isinstance(at, LogEnd) else end for at, end in zip(found, tried, strict=True)]
            if ends == list(tried):
                break
            found, tried = self._tablets.seal(group, ends, number), ends
        return [
            at if isinstance(at, LogEnd) and at.offset == end else None for at, end in zip(found, tried, strict=True)
        ]

    def _lost_ranges(
        self, starts: Sequence[int], ends: Sequence[LogEnd | None], terms: Mapping[int, int]
    ) -> tuple[LostRange, ...]:
        """Return the records between offsets of each bucket; a server that has lost its seal may have taken more."""
        if self._tablets.terms() != terms:
            ends = [None] * len(starts)
        return tuple(
            LostRange(bucket, start, None, None) if end is None else LostRange(bucket, start, *end)
            for bucket, (start, end) in enumerate(zip(starts, ends, strict=True))
            if end is None or end.offset > start
        )


def _tiered_ranges(tiered: Mapping[int, TieredOffset]) -> tuple[LostRange, ...]:
    return tuple(
        LostRange(bucket, 0, offset.end, offset.max_timestamp_ms if offset.max_timestamp_ms >= 0 else None)
        for bucket, offset in sorted(tiered.items())
        if offset.end
    )


def _ends_at(found: LogEnd | FlussError, offset: int) -> bool:
    return isinstance(found, LogEnd) and found.offset == offset


def _check_ends(where: str, lake_ends: Sequence[int], found: Sequence[LogEnd | FlussError]) -> None:
    remedy = "or drop it with discard_untiered=True, which loses what the lake does not hold"
    missing: dict[int, int] = {}
    for bucket, (lake_end, end) in enumerate(zip(lake_ends, found, strict=True)):
        if isinstance(end, FlussError):
            raise type(end)(
                f"{where}, bucket {bucket}: how many of its records the lake does not hold is not known ({end}); nothing was "
                f"dropped: repair that first, {remedy}"
            ) from end
        if end.offset < lake_end:
            raise CorruptDataError(
                f"{where}, bucket {bucket}: the lake holds offsets below {lake_end}, the cluster only those below {end.offset}; "
                f"nothing was dropped: see fluss-lab doctor, {remedy}"
            )
        if end.offset > lake_end:
            missing[bucket] = end.offset - lake_end
    if missing:
        named = ", ".join(f"{count:,} of bucket {bucket}" for bucket, count in list(missing.items())[:_NAMED_MAX])
        more = f" and {len(missing) - _NAMED_MAX} more buckets" if len(missing) > _NAMED_MAX else ""
        raise UntieredRecordsError(
            f"{where}: the lake does not hold {sum(missing.values()):,} of its records yet ({named}{more}); nothing was "
            f"dropped: tier the table first, {remedy}"
        )
