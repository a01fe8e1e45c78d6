"""The replay start of a primary-key table in the lake: its properties, and the tags that keep snapshots for it.

A bucket can be replayed from its *replay start* on: 0, unless it was first tiered from a snapshot of the cluster's, or
compacted so long ago that what the compaction retired is gone. All starts other than 0 are a property of the lake table,
and a copy of it is in every summary of ours, in the form of ``fluss-bucket-offset``.

What a compaction retires stays in the snapshot before it, which a tag keeps for ``table.datalake.changelog-retention``:
of our own compactions and of others'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fluss_lab.lake.iceberg.metadata.snapshot_builder import TagRequest
from fluss_lab.lake.iceberg.metadata.snapshot_history import is_ours, keeps_rows, main_line
from fluss_lab.lake.snapshot_summary import (
    DROPPED_PARTITION_KEY,
    REPLAY_START_KEY,
    ReplayStart,
    merge_starts,
    read_starts,
    write_starts,
)
from fluss_lab.model.config.options import DATALAKE_CHANGELOG_RETENTION
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from fluss_lab.model import TableInfo

#: Table property with the replay starts of all buckets that have one other than 0: JSON, see `REPLAY_START_KEY`.
REPLAY_START_PROPERTY: Final = "fluss.replay-start"
#: What names of tags begin with that keep the snapshot before a compaction; its id follows.
REPLAY_TAG_PREFIX: Final = "fluss-replay-"


def replay_tag(snapshot_id: int, retention_ms: int) -> TagRequest:
    """Return the tag that keeps a snapshot for replay."""
    return TagRequest(f"{REPLAY_TAG_PREFIX}{snapshot_id}", snapshot_id, retention_ms)


def tagged_snapshots(lake: Table) -> dict[str, int]:
    """Return the snapshots that tags of ours keep, by the tag's name."""
    return {name: ref.snapshot_id for name, ref in lake.metadata.refs.items() if name.startswith(REPLAY_TAG_PREFIX)}


def changelog_retention_ms(table: TableInfo) -> int:
    """Return for how many milliseconds what compactions of a primary-key table retire is kept."""
    return int(DATALAKE_CHANGELOG_RETENTION.of(table.descriptor.properties))


def tags_for_foreign(lake: Table, retention_ms: int) -> list[TagRequest]:
    """Return the tags that are missing: of the snapshots before others' compactions since the newest of ours.

    Older ones were tagged by that one. A snapshot that was expired meanwhile cannot be kept any more.
    """
    present = {snapshot.snapshot_id for snapshot in lake.metadata.snapshots}
    tags = []
    for snapshot in main_line(lake.metadata):
        if is_ours(snapshot):
            break
        parent_id = snapshot.parent_snapshot_id
        if (
            keeps_rows(snapshot)
            and parent_id in present
            and f"{REPLAY_TAG_PREFIX}{parent_id}" not in lake.metadata.refs
        ):
            tags.append(replay_tag(parent_id, retention_ms))
    return tags


def table_starts(lake: Table) -> dict[BucketKey, ReplayStart]:
    """Return the replay starts that a lake table's property has.

    Raises:
        CorruptDataError: The property is not what tiering writes.
    """
    what = f"lake table {'.'.join(lake.name())}, property {REPLAY_START_PROPERTY!r}"
    return read_starts(lake.properties.get(REPLAY_START_PROPERTY, "[]"), what)


def replay_parts(
    table: TableInfo, lake: Table, summary: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], list[TagRequest]]:
    """Return what every commit of ours to a primary-key table carries, so that its changelog can be replayed.

    Args:
        table: The table.
        lake: Its lake table, as it is now.
        summary: Of the commit, with `REPLAY_START_KEY` when the commit moves starts. Those of a partition that it drops go:
            another one of its name begins anew.

    Returns:
        The summary with the starts of all buckets, the table properties that the commit sets, and the tags of snapshots
        before others' compactions that have none yet.

    Raises:
        CorruptDataError: The table's property or the summary's is not what tiering writes.
    """
    known, dropped = table_starts(lake), summary.get(DROPPED_PARTITION_KEY)
    left = {key: start for key, start in known.items() if dropped is None or key[0] != dropped}
    starts = merge_starts(left, read_starts(summary.get(REPLAY_START_KEY, "[]"), f"{REPLAY_START_KEY!r} of a commit"))
    given = {key: value for key, value in summary.items() if key != REPLAY_START_KEY}
    tags = tags_for_foreign(lake, changelog_retention_ms(table))
    text = write_starts(starts)
    changed = {} if starts == known else {REPLAY_START_PROPERTY: text}
    return given | ({REPLAY_START_KEY: text} if starts else {}), changed, tags
