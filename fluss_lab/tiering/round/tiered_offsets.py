"""The tiered offset of each bucket: merging, and the JSON that a lake snapshot carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import CommittedLakeSnapshot
from fluss_lab.lake.format_interfaces import REPLAY_START_KEY
from fluss_lab.model import LakeOffset, TableBucket

#: A snapshot names all buckets up to so many, beyond that those that advanced: 365 partitions x 16 buckets
#: would be 619 kB in every snapshot, and table metadata holds all of them.
BUCKETS_NAMED_MAX: Final = 256

LakeOffsets = Mapping[TableBucket, LakeOffset]


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


def offsets_property(merged: LakeOffsets, known: LakeOffsets) -> str:
    """Return the value of ``fluss-bucket-offset`` for a snapshot.

    Args:
        merged: Every bucket's offset with this snapshot.
        known: What the cluster knows already. Where not all buckets are named, those that differ from it are, so
            that recovery can always merge the snapshot's buckets over what the cluster knows.
    """
    named = merged
    if len(merged) > BUCKETS_NAMED_MAX:
        named = advanced_buckets(merged, known)
    entries = [_entry(bucket, named[bucket]) for bucket in sorted(named, key=TableBucket.sort_key)]
    return json.dumps(entries, separators=(",", ":"))


def starts_property(starts: Mapping[TableBucket, int], offsets: LakeOffsets) -> str:
    """Return the value of ``fluss-replay-start`` for a round.

    Args:
        starts: First offset that can be replayed, of buckets where it is not 0.
        offsets: Of at least these buckets, for the names of their partitions.
    """
    entries = [
        _place(bucket, offsets[bucket].partition) | {"offset": starts[bucket]}
        for bucket in sorted(starts, key=TableBucket.sort_key)
    ]
    return json.dumps(entries, separators=(",", ":"))


def _entry(bucket: TableBucket, offset: LakeOffset) -> dict[str, Any]:
    place = _place(bucket, offset.partition)
    return place | {"offset": offset.end, "max_timestamp": offset.max_timestamp_ms}


def _place(bucket: TableBucket, partition: str | None) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if bucket.partition_id is not None:
        place = {"partition_id": bucket.partition_id, "partition_name": partition}
    return place | {"bucket": bucket.bucket}


def committed_offsets(
    snapshot: CommittedLakeSnapshot, table_id: int, partition_ids: Mapping[str, int]
) -> dict[TableBucket, LakeOffset]:
    """Return a lake snapshot's offsets by bucket.

    Args:
        snapshot: As the lake tells it, by partition name.
        table_id: Of the table.
        partition_ids: Name to id of the partitions that the cluster has or remembers. Buckets of others (dropped
            before the cluster ever heard of their tiering) are left out: nothing will be tiered from them again. So are
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
        snapshot: As the lake tells it.
        offsets: From `committed_offsets`: the buckets asked for.

    Raises:
        CorruptDataError: What the snapshot says of replay cannot be read.
    """
    starts = dict.fromkeys(offsets, 0)
    by_place = {(bucket.partition_id, bucket.bucket): bucket for bucket in offsets}
    try:
        for entry in json.loads(snapshot.properties.get(REPLAY_START_KEY, "[]")):
            place = (entry.get("partition_id"), int(entry["bucket"]))
            if place in by_place:
                starts[by_place[place]] = int(entry["offset"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(
            f"lake snapshot {snapshot.snapshot_id}: expected {REPLAY_START_KEY} as a JSON list of buckets, found "
            f"{snapshot.properties.get(REPLAY_START_KEY)!r}"
        ) from error
    return starts
