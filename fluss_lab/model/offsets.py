"""Offsets, and what is known of a table's lake snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fluss_lab.errors import InvalidTimestampError
from fluss_lab.model.names import TableBucket
from fluss_lab.model.times import whole_number
from fluss_lab.model.values.casts import value_text

#: Offset types of ListOffsets on the wire.
EARLIEST: Final = 0
LATEST: Final = 1
TIMESTAMP: Final = 2


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset of a bucket is asked: the earliest, the latest, or the first at or after a time."""

    kind: int
    timestamp_ms: int = -1

    @staticmethod
    def earliest() -> OffsetSpec:
        """Return the spec of the first offset that is held anywhere: cluster or lake."""
        return OffsetSpec(EARLIEST)

    @staticmethod
    def latest() -> OffsetSpec:
        """Return the spec of the high watermark: the offset after the last readable record."""
        return OffsetSpec(LATEST)

    @staticmethod
    def timestamp(timestamp_ms: int) -> OffsetSpec:
        """Return the spec of the first offset whose record's timestamp is at or after a time, in epoch milliseconds.

        Raises:
            InvalidTimestampError: It is no whole number, or one that no time has.
        """
        number = whole_number(timestamp_ms)
        if number is None or not 0 <= number < 1 << 63:
            raise InvalidTimestampError(
                f"offset spec: expected a time of at least 0 in epoch milliseconds, found {value_text(timestamp_ms)}"
            )
        return OffsetSpec(TIMESTAMP, number)


@dataclass(frozen=True, slots=True)
class LakeOffset:
    """How far one bucket is tiered: ``[start, end)`` is in the lake.

    Attributes:
        end: Log end offset in the lake, exclusive.
        max_timestamp_ms: Timestamp of the record before `end`; -1 when unknown or when there is none.
        partition: Name of the partition, for buckets of partitioned tables.
    """

    end: int
    max_timestamp_ms: int = -1
    partition: str | None = None


def newest_ms(offsets: Iterable[LakeOffset]) -> int | None:
    """Return the timestamp of the newest record before the ends of buckets; None when none is known."""
    found = max((each.max_timestamp_ms for each in offsets), default=-1)
    return found if found >= 0 else None


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A lake snapshot as Fluss knows it: its id and how far each bucket is tiered in it.

    Attributes:
        snapshot_id: Its id.
        offsets: How far each bucket is tiered.
        starts: First offset that the lake can replay, of each bucket where it is known; of others, 0.
    """

    snapshot_id: int
    offsets: Mapping[TableBucket, LakeOffset]
    starts: Mapping[TableBucket, int] = field(default_factory=dict)
