"""The partition that a name means in a snapshot: one that was dropped and made again has the name of the first one, and a log of its own.

Snapshots say it, by ids and by their drops, and they expire, ours by ours and by other engines' expiry, while a tag keeps one with
rows of the first partition. So the drops since the oldest snapshot that a tag of ours keeps are a property of the lake table too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from fluss_lab.lake.iceberg.metadata.snapshot_history import number_of, summaries, summary_of
from fluss_lab.lake.snapshot_summary import DROPPED_PARTITION_KEY, SnapshotSummary
from fluss_lab.model import TablePath
from fluss_lab.model.json_codec import decode, encode

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Sequence numbers of the snapshots that dropped a partition, by its name: JSON. Kept when the Fluss table is altered: see
#: `fluss_lab.lake.iceberg.table.table_properties.STATE_PROPERTIES`.
DROPS_PROPERTY: Final = "fluss.dropped-partitions"

#: Sequence numbers, ascending, by the partition's name.
Drops: TypeAlias = Mapping[str, Collection[int]]


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """What snapshots say of partitions, by name.

    Attributes:
        ids: Their ids; of those that were not dropped since.
        changed: Sequence number of the last snapshot that drops one, or is the first with another id.
    """

    ids: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read_history(
        lake: Table, path: TablePath, snapshot: Snapshot | None, now: Mapping[str, int] | None = None
    ) -> PartitionHistory:
        """Return what the snapshots up to one say, those too that expired since, as far as their drops were kept.

        Args:
            lake: The table as it was loaded.
            path: Its path.
            snapshot: The last that counts; None: none does.
            now: Ids that the cluster knows, of partitions as they are after all of these.

        Raises:
            CorruptDataError: The table's property or a summary is not what tiering writes.
        """
        last = -1 if snapshot is None else number_of(snapshot)
        found = [each for each in lake.metadata.snapshots if number_of(each) <= last]
        said = [
            (number_of(each), _partition_ids(summary))
            for each, summary in zip(found, summaries(path, found), strict=True)
        ]
        for name, numbers in kept_drops(lake).items():
            said += [(number, {name: None}) for number in numbers if number <= last]
        history = PartitionHistory()
        for number, ids in sorted(said, key=lambda each: each[0]):
            history._add(ids, number)
        history._add(now or {}, last + 1)
        return history

    def _add(self, ids: Mapping[str, int | None], number: int) -> None:
        """Take what the next snapshot says: ids, None for a partition that it drops."""
        for name, partition_id in ids.items():
            if partition_id is None or self.ids.get(name, partition_id) != partition_id:
                self.changed[name] = number
            if partition_id is None:
                self.ids.pop(name, None)
            else:
                self.ids[name] = partition_id

    def has(self, name: str | None, snapshot: Snapshot) -> bool:
        """Return whether a partition is the one that a snapshot has under its name."""
        return name is None or self.changed.get(name, -1) <= number_of(snapshot)


def _partition_ids(summary: SnapshotSummary) -> dict[str, int | None]:
    """Return the ids that a snapshot names, None for a partition that it drops."""
    ids: dict[str, int | None] = dict(summary.tiered_offsets()[1])
    return ids if summary.dropped_partition is None else {**ids, summary.dropped_partition: None}


def kept_drops(lake: Table) -> dict[str, list[int]]:
    """Return the drops that a lake table's property has.

    Raises:
        CorruptDataError: The property is not what tiering writes.
    """
    what = f"lake table {'.'.join(lake.name())}, property {DROPS_PROPERTY!r}"
    return decode(dict[str, list[int]], lake.properties.get(DROPS_PROPERTY, "{}"), what, shown=True)


def drops_property(lake: Table, tagged: Collection[int], more: Drops | None = None) -> dict[str, str]:
    """Return the property that a commit sets: the drops since the oldest of the snapshots that are tagged then.

    Args:
        lake: The table as it was loaded.
        tagged: Ids of the snapshots that tags of ours keep after the commit.
        more: Drops that the commit makes.

    Returns:
        Nothing where the table says it already, or has nothing to say.

    Raises:
        CorruptDataError: As `kept_drops`.
    """
    drops = {name: set(numbers) for name, numbers in kept_drops(lake).items()}
    for snapshot in lake.metadata.snapshots:
        if (name := summary_of(snapshot).get(DROPPED_PARTITION_KEY)) is not None:
            drops.setdefault(name, set()).add(number_of(snapshot))
    for name, numbers in (more or {}).items():
        drops.setdefault(name, set()).update(numbers)
    oldest = min((number_of(each) for each in lake.metadata.snapshots if each.snapshot_id in tagged), default=None)
    since = {
        name: later
        for name, numbers in sorted(drops.items())
        if oldest is not None and (later := sorted(number for number in numbers if number > oldest))
    }
    text = encode(since).decode()
    return {} if lake.properties.get(DROPS_PROPERTY, "{}") == text else {DROPS_PROPERTY: text}
