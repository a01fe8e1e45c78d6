"""The summary of a lake snapshot that tiering commits: written, read and merged here, for every lake format.

A round, a repair, a compaction of ours and the drop of a partition each commit a snapshot with properties under the keys
below. A format keeps them as they are, returns them, and leaves their meaning to this module: whose a snapshot is, how far
it holds each bucket, from where each bucket can be replayed, and what a later snapshot changes in that.

Every snapshot carries its summary for as long as it is kept, so a summary may be *thin*: it names the buckets that
advanced, and under `SINCE_KEY` the snapshot of ours that named all. 256 buckets are 25 kB a snapshot, which every Iceberg
commit writes again: 150 one-row rounds made 405 MB of metadata files. All buckets are named again every `COMPLETE_EVERY`
snapshots of ours, after a bucket is gone, after a repair, and when the history was cut behind the one that named all.
Expiry retains that one (`offsets_anchor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from fluss_lab.errors import CorruptDataError, ForeignCommitError
from fluss_lab.lake.bucket_entries import BucketEntry, read_entries, write_entries
from fluss_lab.model import LakeOffset, PartitionInfo, TableBucket
from fluss_lab.model.names import BucketKey

#: Who commits.
COMMIT_USER_KEY: Final = "commit-user"
COMMIT_USER: Final = "__fluss_lake_tiering"
#: How far each bucket is tiered: in the form of `fluss_lab.lake.bucket_entries`.
BUCKET_OFFSET_KEY: Final = "fluss-bucket-offset"
#: Of a thin summary: id of the snapshot of ours, before it, that named all buckets.
SINCE_KEY: Final = "fluss-bucket-offset-since"
#: Unique to a commit: by it a commit is recognised that happened although it was reported as failed.
COMMIT_ID_KEY: Final = "fluss-commit-id"
TIERING_EPOCH_KEY: Final = "fluss-tiering-epoch"
TABLE_ID_KEY: Final = "fluss-table-id"
#: First offset from which the lake can replay each bucket: in the form of `BUCKET_OFFSET_KEY`; buckets not named: 0.
REPLAY_START_KEY: Final = "fluss-replay-start"
#: Of the snapshot by which a repair accepts the lake as it is: why. It names all buckets, and what older snapshots say of
#: them counts no more; until the cluster knows the snapshot, nobody tiers.
ADOPTED_KEY: Final = "fluss-adopted"
#: Of the snapshot that deletes the rows of a dropped partition: its name.
DROPPED_PARTITION_KEY: Final = "fluss-dropped-partition"

#: A round names all buckets up to so many, beyond that those that advanced: 365 partitions x 16 buckets would be 619 kB
#: in every snapshot, and table metadata holds all of them.
BUCKETS_NAMED_MAX: Final = 256
#: Of so many buckets a format names all every time.
NAMED_ALWAYS: Final = 16
#: Snapshots of ours after which all are named again.
COMPLETE_EVERY: Final = 50
#: What of a repair's reason is kept.
_REASON_LENGTH_MAX: Final = 500

LakeOffsets: TypeAlias = Mapping[TableBucket, LakeOffset]
#: Partition id; partition name and bucket.
_EntryKey: TypeAlias = tuple[int | None, BucketKey]


@dataclass(frozen=True, slots=True)
class CommittedLakeSnapshot:
    """A snapshot of ours: what its summary says.

    Attributes:
        snapshot_id: Its id.
        offsets: How far the lake holds each bucket.
        properties: All that it was committed with; as replay starts, those of the snapshots before it too that count.
        partition_ids: The id of each partition that `offsets` speaks of: one of the same name made later has another.
        is_complete: Whether the lake's history, as far as it was not expired, names every bucket that was tiered.
    """

    snapshot_id: int
    offsets: Mapping[BucketKey, LakeOffset]
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_ids: Mapping[str, int] = field(default_factory=dict)
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """From where a bucket can be replayed.

    Attributes:
        offset: The first offset.
        partition_id: Of the bucket's partition; None without partitions, or where a format does not keep it.
    """

    offset: int
    partition_id: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """The properties of one snapshot of a lake table, whoever committed it.

    Attributes:
        table: Path of the table, as errors name it.
        snapshot_id: The snapshot.
        properties: What it was committed with.
    """

    table: str
    snapshot_id: int
    properties: Mapping[str, str]

    def __str__(self) -> str:
        return f"lake table {self.table}, snapshot {self.snapshot_id}"

    @property
    def is_ours(self) -> bool:
        """Return whether tiering committed the snapshot."""
        return self.properties.get(COMMIT_USER_KEY) == COMMIT_USER

    @property
    def is_adoption(self) -> bool:
        """Return whether a repair committed the snapshot, to accept the lake as it is."""
        return ADOPTED_KEY in self.properties

    @property
    def is_thin(self) -> bool:
        """Return whether the snapshot names only the buckets that advanced since an older one."""
        return SINCE_KEY in self.properties

    @property
    def is_complete(self) -> bool:
        """Return whether the snapshot is ours and says of all buckets how far they are tiered."""
        return self.is_ours and BUCKET_OFFSET_KEY in self.properties and not self.is_thin

    def tiered_offsets(self) -> tuple[dict[BucketKey, LakeOffset], dict[str, int]]:
        """Return how far the buckets that the summary names are tiered, and the ids of their partitions.

        Raises:
            CorruptDataError: The property is not what tiering writes.
        """
        text = self.properties.get(BUCKET_OFFSET_KEY, "[]")
        offsets: dict[BucketKey, LakeOffset] = {}
        ids: dict[str, int] = {}
        for each in read_entries(text, f"{self}, property {BUCKET_OFFSET_KEY!r}"):
            offsets[each.key] = each.to_offset()
            if each.partition_name is not None and each.partition_id:
                ids[each.partition_name] = each.partition_id
        return offsets, ids

    def replay_starts(self) -> dict[BucketKey, ReplayStart]:
        """Return from where the buckets that the summary names can be replayed; those of 0 it need not name.

        Raises:
            CorruptDataError: The property is not what tiering writes.
        """
        return read_starts(self.properties.get(REPLAY_START_KEY, "[]"), f"{self}, property {REPLAY_START_KEY!r}")

    @property
    def dropped_partition(self) -> str | None:
        """Return the name of the partition whose rows the snapshot deletes; None for any other snapshot."""
        return self.properties.get(DROPPED_PARTITION_KEY)


# -- what a commit carries ---------------------------------------------------------------------------------------------


def commit_properties(
    commit_id: str,
    table_id: int,
    tiering_epoch: int,
    offsets: LakeOffsets,
    known: LakeOffsets,
    starts: Mapping[TableBucket, int] | None = None,
    adopted: str | None = None,
) -> dict[str, str]:
    """Return the summary of a snapshot that a tierer commits: of a round, a compaction or a repair.

    Args:
        commit_id: Unique to the commit.
        table_id: Of the table.
        tiering_epoch: Under which the tierer holds the table.
        offsets: Every bucket's offset with this snapshot.
        known: What the cluster knows already; nothing for a repair, so that all buckets are named. See `offsets_property`.
        starts: From where buckets can be replayed that the cluster does not know; those of 0 need not be named.
        adopted: Why a repair accepts the lake as it is; None for anything but a repair.
    """
    properties = {
        COMMIT_USER_KEY: COMMIT_USER,
        BUCKET_OFFSET_KEY: offsets_property(offsets, known),
        COMMIT_ID_KEY: commit_id,
        TIERING_EPOCH_KEY: str(tiering_epoch),
        TABLE_ID_KEY: str(table_id),
    }
    if adopted is not None:
        properties[ADOPTED_KEY] = adopted[:_REASON_LENGTH_MAX]
    named = {
        (offsets[bucket].partition, bucket.bucket): ReplayStart(start, bucket.partition_id)
        for bucket, start in (starts or {}).items()
        if start > 0
    }
    return properties | ({REPLAY_START_KEY: write_starts(named)} if named else {})


def drop_properties(table_id: int, partition: PartitionInfo) -> dict[str, str]:
    """Return the summary of the snapshot that deletes a dropped partition's rows; its commit id is the partition's."""
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        COMMIT_ID_KEY: f"drop-partition-{partition.partition_id}",
        TABLE_ID_KEY: str(table_id),
        DROPPED_PARTITION_KEY: partition.name,
    }


def offsets_property(merged: LakeOffsets, known: LakeOffsets) -> str:
    """Return the value of `BUCKET_OFFSET_KEY` for a snapshot.

    Args:
        merged: Every bucket's offset with this snapshot.
        known: What the cluster knows already. Where not all buckets are named, those that differ from it are, so
            that recovery can always merge the snapshot's buckets over what the cluster knows.
    """
    named = merged if len(merged) <= BUCKETS_NAMED_MAX else advanced_buckets(merged, known)
    return write_entries(
        BucketEntry(
            partition_id=bucket.partition_id,
            partition_name=(offset := named[bucket]).partition,
            bucket=bucket.bucket,
            offset=offset.end,
            max_timestamp=offset.max_timestamp_ms,
        )
        for bucket in sorted(named, key=TableBucket.sort_key)
    )


def thin_summary(newest_first: Iterable[SnapshotSummary], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the snapshot that comes next, without the buckets that it need not name.

    Args:
        newest_first: The table's snapshots, which the next one follows; read as far back as needed.
        properties: As tiering gives them.
    """
    given = _named_entries(properties)
    if len(given) <= NAMED_ALWAYS or ADOPTED_KEY in properties:
        return dict(properties)
    since = _since_complete(newest_first)
    if not since or len(since) >= COMPLETE_EVERY:
        return dict(properties)
    known: dict[_EntryKey, BucketEntry] = {}
    for summary in reversed(since):
        known |= _named_entries(summary.properties)
    if known.keys() - given.keys():
        return dict(properties)
    text = write_entries(entry for key, entry in given.items() if known.get(key) != entry)
    return {**properties, BUCKET_OFFSET_KEY: text, SINCE_KEY: str(since[-1].snapshot_id)}


def _since_complete(newest_first: Iterable[SnapshotSummary]) -> list[SnapshotSummary]:
    """Return the snapshots of ours that name buckets, newest first, up to one that names all; none if there is none."""
    found: list[SnapshotSummary] = []
    for summary in newest_first:
        if summary.is_ours and BUCKET_OFFSET_KEY in summary.properties:
            found.append(summary)
            if summary.is_complete:
                return found
    return []


# -- what snapshots say together ---------------------------------------------------------------------------------------


def check_registered(summary: SnapshotSummary) -> None:
    """Raise `ForeignCommitError` for a repair's snapshot that the cluster does not know: nothing may follow it.

    Args:
        summary: Of a snapshot of ours that is newer than the one that the cluster knows.
    """
    if summary.is_adoption:
        raise ForeignCommitError(
            f"lake table {summary.table}: snapshot {summary.snapshot_id} was committed by a repair that was cut off before "
            f"the cluster knew of it: run 'fluss-lab repair {summary.table} --adopt' again"
        )


def newest_committed(newest_first: Iterable[SnapshotSummary]) -> CommittedLakeSnapshot | None:
    """Return the newest snapshot of ours, with the offsets and replay starts of all of ours; None where none is ours.

    A snapshot may name only the buckets that advanced with it, and one that drops a partition names none, so the older ones
    count too; but none that is older than a repair's, which names all buckets.

    Raises:
        CorruptDataError: A summary that tiering cannot have written.
    """
    ours: list[SnapshotSummary] = []
    for summary in newest_first:
        if summary.is_ours:
            ours.append(summary)
            if summary.is_adoption:
                break
    if not ours:
        return None
    offsets: dict[BucketKey, LakeOffset] = {}
    partition_ids: dict[str, int] = {}
    starts: dict[BucketKey, ReplayStart] = {}
    for summary in reversed(ours):
        starts = merge_starts(starts, summary.replay_starts())
        named, ids = summary.tiered_offsets()
        # Of a partition that was dropped and made again, the offsets of the first one do not count.
        again = {name for name, number in ids.items() if partition_ids.get(name, number) != number}
        offsets = {key: offset for key, offset in offsets.items() if key[0] not in again} | named
        partition_ids |= ids
    properties = dict(ours[0].properties) | ({REPLAY_START_KEY: write_starts(starts)} if starts else {})
    return CommittedLakeSnapshot(ours[0].snapshot_id, offsets, properties, partition_ids)


def newest_of_history(newest_first: Iterable[SnapshotSummary]) -> CommittedLakeSnapshot | None:
    """Return `newest_committed` of all snapshots of a table that were not expired, and whether they name every bucket."""
    line = list(newest_first)
    found = newest_committed(line)
    return None if found is None else replace(found, is_complete=any(each.is_complete for each in line))


def offsets_by_snapshot(
    oldest_first: Iterable[SnapshotSummary],
) -> Iterator[tuple[Mapping[BucketKey, LakeOffset], bool]]:
    """Yield, for each snapshot of a table's history, the tiered offsets and whether they are those of all buckets.

    Raises:
        CorruptDataError: A summary of ours is not what tiering writes.
    """
    merged: dict[BucketKey, LakeOffset] | None = None
    for summary in oldest_first:
        named = summary.tiered_offsets()[0] if summary.is_ours else {}
        if summary.is_complete:
            merged = named
        elif summary.is_thin and merged is not None:
            merged = merged | named
        if summary.is_thin and merged is not None:
            yield merged, True
        else:
            yield named, not summary.is_thin


def offsets_anchor(newest_first: Iterable[SnapshotSummary]) -> int | None:
    """Return the snapshot that expiry retains, so that the tiered offsets of all buckets can still be read; None without."""
    # Those before the newest that names all add nothing.
    naming = [each for each in newest_first if BUCKET_OFFSET_KEY in each.properties]
    found = next((each for each in naming if each.is_complete), naming[0] if naming else None)
    return None if found is None else found.snapshot_id


# -- replay starts -----------------------------------------------------------------------------------------------------


def read_starts(text: str, what: str) -> dict[BucketKey, ReplayStart]:
    """Return the replay starts in a property.

    Args:
        text: In the form of `REPLAY_START_KEY`.
        what: Names the property in errors.

    Raises:
        CorruptDataError: It is not that form.
    """
    return {each.key: ReplayStart(each.offset, each.partition_id) for each in read_entries(text, what)}


def write_starts(starts: Mapping[BucketKey, ReplayStart]) -> str:
    """Return the value of `REPLAY_START_KEY`."""
    return write_entries(
        BucketEntry(
            partition_id=starts[key].partition_id, partition_name=key[0], bucket=key[1], offset=starts[key].offset
        )
        for key in sorted(starts, key=lambda key: (key[0] or "", key[1]))
    )


def merge_starts(
    known: Mapping[BucketKey, ReplayStart], newer: Mapping[BucketKey, ReplayStart]
) -> dict[BucketKey, ReplayStart]:
    """Return the starts of either; where both have one, the later one: what cannot be replayed does not come back.

    Of a partition that was dropped and made again, what was known of the first one goes.
    """
    ids = {key[0]: start.partition_id for key, start in newer.items()}
    merged = {
        key: start
        for key, start in known.items()
        if start.partition_id is None or ids.get(key[0], start.partition_id) == start.partition_id
    }
    for key, start in newer.items():
        if key not in merged or merged[key].offset < start.offset:
            merged[key] = start
    return merged


# -- what the cluster makes of it --------------------------------------------------------------------------------------


def merge_offsets(known: LakeOffsets, newer: LakeOffsets) -> dict[TableBucket, LakeOffset]:
    """Return how far each bucket of either is tiered: where both have one, the one that is further."""
    merged = dict(known)
    for bucket, offset in newer.items():
        if bucket not in merged or merged[bucket].end <= offset.end:
            merged[bucket] = offset
    return merged


def advanced_buckets(merged: LakeOffsets, known: LakeOffsets) -> dict[TableBucket, LakeOffset]:
    """Return the buckets that are not as the cluster knows them."""
    return {bucket: offset for bucket, offset in merged.items() if known.get(bucket) != offset}


def committed_offsets(
    snapshot: CommittedLakeSnapshot, table_id: int, partition_ids: Mapping[str, int]
) -> dict[TableBucket, LakeOffset]:
    """Return a lake snapshot's offsets by bucket.

    Args:
        snapshot: As the lake returns it, by partition name.
        table_id: Of the table.
        partition_ids: Name to id of the partitions that the cluster has or remembers. Buckets of others (dropped
            before the cluster knew of their tiering) are left out: nothing will be tiered from them again. So are
            those of a partition that was dropped from cluster and lake, though there is a new one of its name.
    """
    offsets = {}
    for (partition, bucket), offset in snapshot.offsets.items():
        if partition is None:
            offsets[TableBucket(table_id, None, bucket)] = offset
            continue
        partition_id = partition_ids.get(partition)
        if partition_id is not None and snapshot.partition_ids.get(partition, partition_id) == partition_id:
            named = LakeOffset(offset.end, offset.max_timestamp_ms, partition)
            offsets[TableBucket(table_id, partition_id, bucket)] = named
    return offsets


def committed_starts(snapshot: CommittedLakeSnapshot, offsets: LakeOffsets) -> dict[TableBucket, int]:
    """Return where replay begins in each bucket of a lake snapshot; 0 in those that it does not name.

    Args:
        snapshot: As the lake returns it.
        offsets: From `committed_offsets`: the buckets asked for.

    Raises:
        CorruptDataError: The snapshot's property is not what tiering writes.
    """
    text = snapshot.properties.get(REPLAY_START_KEY, "[]")
    starts = read_starts(text, f"lake snapshot {snapshot.snapshot_id}, property {REPLAY_START_KEY!r}")
    by_id = {(start.partition_id, key[1]): start.offset for key, start in starts.items()}
    return {bucket: by_id.get((bucket.partition_id, bucket.bucket), 0) for bucket in offsets}


def _named_entries(properties: Mapping[str, str]) -> dict[_EntryKey, BucketEntry]:
    """Return what `BUCKET_OFFSET_KEY` says of each bucket; nothing where tiering did not write it.

    So that all buckets are named, though of this property nothing is known.
    """
    try:
        entries = read_entries(properties.get(BUCKET_OFFSET_KEY, "[]"), BUCKET_OFFSET_KEY)
    except CorruptDataError:
        return {}
    return {(each.partition_id, each.key): each for each in entries}
