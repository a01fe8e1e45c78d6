"""The tiered offsets in summaries of snapshots: all buckets every so often, in between those that advanced.

Table metadata holds every summary of every snapshot, and every commit writes all of it again: 256 buckets are 25 kB a
snapshot, and 150 one-row rounds made 405 MB of metadata files. So a summary of more than `NAMED_ALWAYS` buckets names those
that are not as the snapshots before it say, and under `SINCE_KEY` the snapshot of ours that named them all. Whoever wants
them all merges over the line of snapshots from there; expiry keeps that one (see `expiry_plan`). Every `COMPLETE_EVERY`
snapshots of ours, after a bucket is gone, after a repair, and when the line was cut behind it, a summary names all again.

What tiering gives a commit, and what it is told, are all buckets as ever (up to as many as it names, `fluss_lab.tiering.
offsets`); only between the two they are written so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fluss_lab.lake.format_interfaces import ADOPTED_KEY, BUCKET_OFFSET_KEY
from fluss_lab.lake.iceberg.metadata.snapshot_history import is_ours, main_line, summary_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: Of a summary that names only some: id of the snapshot of ours, before it, that named them all.
SINCE_KEY: Final = "fluss-bucket-offset-since"
#: Of so many buckets all are named every time.
NAMED_ALWAYS: Final = 16
#: Snapshots of ours after which all are named again.
COMPLETE_EVERY: Final = 50

#: Partition id, partition name, bucket.
_Place: TypeAlias = tuple[Any, Any, Any]


def is_complete(snapshot: Snapshot) -> bool:
    """Tell whether a snapshot of ours says of all buckets how far they are tiered."""
    summary = summary_of(snapshot)
    return is_ours(snapshot) and BUCKET_OFFSET_KEY in summary and SINCE_KEY not in summary


def thin_summary(metadata: TableMetadata, summary: Mapping[str, str]) -> dict[str, str]:
    """Return the summary of a snapshot that follows a table's newest, with the buckets left out that it need not name.

    Args:
        metadata: The table's.
        summary: As tiering gives it.
    """
    given = _entries(summary.get(BUCKET_OFFSET_KEY, "[]"))
    if len(given) <= NAMED_ALWAYS or ADOPTED_KEY in summary:
        return dict(summary)
    told = _told(main_line(metadata))
    if not told or len(told) >= COMPLETE_EVERY:
        return dict(summary)
    known: dict[_Place, dict[str, Any]] = {}
    for snapshot in reversed(told):
        known |= _entries(summary_of(snapshot)[BUCKET_OFFSET_KEY])
    if known.keys() - given.keys():
        return dict(summary)
    named = [entry for place, entry in given.items() if known.get(place) != entry]
    text = json.dumps(named, separators=(",", ":"))
    return {**summary, BUCKET_OFFSET_KEY: text, SINCE_KEY: str(told[-1].snapshot_id)}


def _told(line: Iterable[Snapshot]) -> list[Snapshot]:
    """Return the snapshots of ours that name buckets, newest first, up to one that names all; none if there is none."""
    found: list[Snapshot] = []
    for snapshot in line:
        if is_ours(snapshot) and BUCKET_OFFSET_KEY in summary_of(snapshot):
            found.append(snapshot)
            if is_complete(snapshot):
                return found
    return []


def _entries(text: str) -> dict[_Place, dict[str, Any]]:
    """Return the buckets that a property names; none of one that tiering did not write, so that nothing is left out."""
    try:
        return {
            (each.get("partition_id"), each.get("partition_name"), each["bucket"]): each for each in json.loads(text)
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
