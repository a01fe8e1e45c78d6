"""The state that maintenance keeps in the lake table: one table property.

When rows were last dropped by a compaction, so that tags do not become many; which buckets that was, by the snapshot
before it, so that their replay starts can be raised when the tag of that snapshot goes; when orphan files were looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.names import BucketKey

_LOG: Final = logging.getLogger(__name__)
#: JSON object. Kept when the Fluss table is altered: see `fluss_lab.lake.iceberg.table.table_properties.STATE_PROPERTIES`.
MAINTENANCE_PROPERTY: Final = "fluss.maintenance"


@dataclass(frozen=True, slots=True)
class Retirement:
    """A compaction that dropped rows.

    Attributes:
        sequence_number: Of the snapshot before it.
        ranges: Of which buckets: ranges like ``0-3,7`` by partition name (empty without partitions).
    """

    sequence_number: int
    ranges: Mapping[str, str]

    @property
    def buckets(self) -> set[BucketKey]:
        """Return the buckets by partition name, or None, and number."""
        return {(name or None, bucket) for name, ranges in self.ranges.items() for bucket in _numbers(ranges)}


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """What is remembered.

    Attributes:
        dropped_ms: When a compaction last dropped rows, epoch milliseconds; None: never.
        orphans_ms: When orphan files were last looked for; None: never.
        retired: The compactions that dropped rows, by the id of the snapshot before.
    """

    dropped_ms: int | None = None
    orphans_ms: int | None = None
    retired: Mapping[int, Retirement] = field(default_factory=dict)

    @staticmethod
    def of(properties: Mapping[str, str]) -> MaintenanceState:
        """Read a lake table's properties. What cannot be read is as if it had never been."""
        if (text := properties.get(MAINTENANCE_PROPERTY)) is None:
            return MaintenanceState()
        try:
            form = decode(_Form, text, f"property {MAINTENANCE_PROPERTY}", shown=True)
        except CorruptDataError as error:
            _LOG.warning("not what maintenance writes: %s", error)
            return MaintenanceState()
        retired = {snapshot_id: Retirement(*each) for snapshot_id, each in form.retired.items()}
        return MaintenanceState(form.dropped, form.orphans, retired)

    def to_properties(self) -> dict[str, str]:
        """Return the state as the table property to be set."""
        retired = {snapshot_id: (each.sequence_number, each.ranges) for snapshot_id, each in self.retired.items()}
        return {MAINTENANCE_PROPERTY: encode(_Form(retired, self.dropped_ms, self.orphans_ms)).decode()}

    def with_dropped(
        self, now_ms: int, snapshot_id: int, sequence_number: int, buckets: Iterable[BucketKey]
    ) -> MaintenanceState:
        """Return the state after a compaction that dropped rows of buckets, planned from a snapshot."""
        retirement = Retirement(sequence_number, _ranges_of(buckets))
        return replace(self, dropped_ms=now_ms, retired={**self.retired, snapshot_id: retirement})

    def without(self, snapshot_ids: Iterable[int]) -> MaintenanceState:
        """Return the state without what is said of some snapshots."""
        gone = set(snapshot_ids)
        return replace(self, retired={key: value for key, value in self.retired.items() if key not in gone})


class _Form(msgspec.Struct, omit_defaults=True):
    """The property, in JSON."""

    retired: dict[int, tuple[int, Mapping[str, str]]]
    dropped: int | None = None
    orphans: int | None = None


def _ranges_of(buckets: Iterable[BucketKey]) -> dict[str, str]:
    by_partition: dict[str, list[int]] = {}
    for partition, bucket in sorted(buckets, key=lambda key: (key[0] or "", key[1])):
        by_partition.setdefault(partition or "", []).append(bucket)
    return {name: _ranges(numbers) for name, numbers in by_partition.items()}


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ranges, both ends inclusive."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def _numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, ranges.split(",")):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers
