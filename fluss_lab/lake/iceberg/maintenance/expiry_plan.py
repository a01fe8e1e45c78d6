"""Old snapshots leave a lake table's metadata: which may go, and the one change of metadata by which they go.

What stays, as readers and writers count on it: of the main branch the newest snapshots, by count and by age, one after
another without a hole, and back to whatever the cluster knows and to the summary that says how far each bucket is tiered (a dropped
partition makes a snapshot that does not); of other branches what their own settings, or the same
limits, say; whatever a tag names. Nothing that is younger than an hour goes, referred to or not.

A tag of ours (see `replay_start_tags`) whose time is over goes in the same change, and with it what replay could reach only
through it: the replay starts of the buckets concerned are raised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_TAG_PREFIX
from fluss_lab.lake.iceberg.metadata.snapshot_history import ancestors, commit_times, main_line, number_of, summaries
from fluss_lab.lake.snapshot_summary import offsets_anchor
from fluss_lab.model.config.options import DATALAKE_SNAPSHOT_RETENTION, DATALAKE_SNAPSHOTS_MIN

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from fluss_lab.model import TableInfo

_LOG: Final = logging.getLogger(__name__)
#: A reader may have planned a read of a snapshot that was the newest until a moment ago, and be still at it.
READING_MS: Final = 3_600_000
#: Without an age given, snapshots are kept for a day, but not more of them than this: every commit rewrites the
#: metadata of all, and a table that is tiered every ten seconds would have 8,640. (Measured: 1,000 cost 0.1 to 0.4 s.)
SNAPSHOTS_MAX: Final = 400
#: Iceberg's own properties, for a table whose owner set them (under ``iceberg.``): they then go instead of ours.
AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
COUNT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True, slots=True)
class ExpiryLimits:
    """What may go.

    Attributes:
        now_ms: The time, epoch milliseconds.
        cutoff_ms: Snapshots committed before it.
        keep: So many of the newest of a branch stay.
        most: Beyond so many of the main branch, those go that are older than an hour; None: by age alone.
        protected: Ids of snapshots that stay, and whatever of the main branch is newer than the oldest of them.
        times: When each snapshot was committed, epoch milliseconds.
    """

    now_ms: int
    cutoff_ms: int
    keep: int
    most: int | None
    protected: frozenset[int]
    times: Mapping[int, int]

    @staticmethod
    def of(
        table: TableInfo,
        lake: Table,
        now_ms: int,
        *,
        older_than_ms: int | None,
        keep: int | None,
        protected: frozenset[int],
    ) -> ExpiryLimits:
        """Return the limits for a table: those given, else those of its properties.

        Args:
            table: The table.
            lake: Its lake table.
            now_ms: The time.
            older_than_ms: See `cutoff_ms`; whatever it is, snapshots of the last hour stay.
            keep: See `keep`.
            protected: See `protected`.
        """
        properties = table.descriptor.properties
        asked = older_than_ms is not None or DATALAKE_SNAPSHOT_RETENTION.key in properties
        if older_than_ms is None:
            own_ms = _number(lake.properties, AGE_PROPERTY)
            asked |= own_ms is not None
            older_than_ms = now_ms - (own_ms or int(DATALAKE_SNAPSHOT_RETENTION.of(properties)))
        if keep is None:
            keep = _number(lake.properties, COUNT_PROPERTY) or int(DATALAKE_SNAPSHOTS_MIN.of(properties))
        most = None if asked else max(SNAPSHOTS_MAX, keep)
        cutoff_ms = min(older_than_ms, now_ms - READING_MS)
        if (anchor := offsets_anchor(summaries(table.path, main_line(lake.metadata)))) is not None:
            protected |= {anchor}
        times = commit_times(lake.metadata, now_ms)
        return ExpiryLimits(now_ms, cutoff_ms, max(keep, 1), most, protected, times)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What goes.

    Attributes:
        snapshot_ids: Snapshots, oldest first.
        tags: Names of tags whose time is over, with the snapshots that they keep.
    """

    snapshot_ids: tuple[int, ...]
    tags: Mapping[str, int]

    def updates(self, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
        """Return the changes of table metadata, with properties that are set."""
        found: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in self.tags]
        if self.snapshot_ids:
            found.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(self.snapshot_ids)}))
        if properties:
            found.append(SetPropertiesUpdate(updates=dict(properties)))
        return tuple(found)


class AssertSameRefs(ValidatableTableRequirement):
    """No branch or tag was made or moved since the table was loaded: the snapshot that it names could be one that goes.

    For catalogs that check requirements in this process. A REST server knows none of its name; it checks by itself.
    """

    type: Literal["fluss-assert-same-refs"] = Field(default="fluss-assert-same-refs")
    refs: dict[str, SnapshotRef]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise pyiceberg's `CommitFailedException` when it is not so."""
        if base_metadata is None or base_metadata.refs != self.refs:
            raise CommitFailedException("Requirement failed: branches or tags were changed meanwhile")


def expiry_requirements(lake: Table, *, is_rest: bool) -> tuple[TableRequirement, ...]:
    """Return what must hold for an expiry planned from a table as it was loaded."""
    metadata = lake.metadata
    required: list[Any] = [
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}),
    ]
    if not is_rest:
        required.append(AssertSameRefs(refs=dict(metadata.refs)))
    return tuple(required)


def plan_expiry(lake: Table, limits: ExpiryLimits) -> ExpiryPlan:
    """Return what may go of a table as it was loaded."""
    metadata = lake.metadata
    tags = {name: ref.snapshot_id for name, ref in metadata.refs.items() if _is_over(name, ref, limits)}
    kept = set(limits.protected)
    for name, ref in metadata.refs.items():
        if name == MAIN_BRANCH:
            kept.update(_kept_snapshots(metadata, ref.snapshot_id, limits))
        elif ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            kept.update(_kept_snapshots(metadata, ref.snapshot_id, _limits_of(ref, limits)))
        elif name not in tags:
            kept.add(ref.snapshot_id)
    line = {snapshot.snapshot_id for snapshot in ancestors(metadata, metadata.current_snapshot_id)}
    gone = [
        snapshot
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in kept
        and (snapshot.snapshot_id in line or limits.times[snapshot.snapshot_id] < limits.cutoff_ms)
        and limits.times[snapshot.snapshot_id] < limits.now_ms - READING_MS
    ]
    gone.sort(key=lambda snapshot: (number_of(snapshot), snapshot.timestamp_ms))
    return ExpiryPlan(tuple(snapshot.snapshot_id for snapshot in gone), tags)


def is_expiry_due(table: TableInfo, lake: Table, now_ms: int, fewest: int) -> bool:
    """Return whether, by a table's own limits, a tag's time is over or so many snapshots may go, none being protected.

    Cost: nothing but metadata is looked at; of a table without tags whose snapshots are young, their timestamps only.
    """
    metadata = lake.metadata
    old = sum(time_ms < now_ms - READING_MS for time_ms in commit_times(metadata, now_ms).values())
    if old < fewest and len(metadata.refs) <= 1:
        return False
    limits = ExpiryLimits.of(table, lake, now_ms, older_than_ms=None, keep=None, protected=frozenset())
    plan = plan_expiry(lake, limits)
    return bool(plan.tags) or len(plan.snapshot_ids) >= max(fewest, 1)


def _is_over(name: str, ref: SnapshotRef, limits: ExpiryLimits) -> bool:
    """Return whether a tag is ours and its time is over. Those of others are theirs to remove."""
    if not name.startswith(REPLAY_TAG_PREFIX) or ref.snapshot_ref_type != SnapshotRefType.TAG:
        return False
    time_ms = limits.times.get(ref.snapshot_id)
    return ref.max_ref_age_ms is not None and time_ms is not None and limits.now_ms - time_ms > ref.max_ref_age_ms


def _kept_snapshots(metadata: TableMetadata, newest_id: int, limits: ExpiryLimits) -> Iterator[int]:
    """Yield the snapshots of a branch that stay: from its newest on, one after another."""
    line = list(ancestors(metadata, newest_id))
    oldest_protected = max((at for at, each in enumerate(line) if each.snapshot_id in limits.protected), default=-1)
    reading_ms = limits.now_ms - READING_MS
    for at, snapshot in enumerate(line):
        too_many = limits.most is not None and at >= limits.most
        cutoff_ms = reading_ms if too_many else limits.cutoff_ms
        is_old = limits.times[snapshot.snapshot_id] < cutoff_ms
        # However old it is: a read that began while it was the newest may go on.
        was_newest = at > 0 and limits.times[line[at - 1].snapshot_id] >= reading_ms
        if at >= limits.keep and at > oldest_protected and is_old and not was_newest:
            return
        yield snapshot.snapshot_id


def _limits_of(ref: SnapshotRef, limits: ExpiryLimits) -> ExpiryLimits:
    """Return the limits of another engine's branch: its own where they are set."""
    cutoff_ms = limits.cutoff_ms
    if ref.max_snapshot_age_ms is not None:
        cutoff_ms = min(limits.now_ms - ref.max_snapshot_age_ms, limits.now_ms - READING_MS)
    keep = ref.min_snapshots_to_keep or limits.keep
    return replace(limits, cutoff_ms=cutoff_ms, keep=keep, most=None, protected=frozenset())


def _number(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key, "")
    if text and not text.isdecimal():
        _LOG.warning("property %s: expected a whole number, found %r: left out", key, text)
    return int(text) if text.isdecimal() else None
