"""The listings of a lake table: its snapshots, files and schemas."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import LongType

from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, live_state, snapshot_of
from fluss_lab.lake.iceberg.metadata.snapshot_history import (
    is_first_of_two,
    is_ours,
    main_line,
    summaries,
    summary_of,
)
from fluss_lab.lake.iceberg.table.layout import LakeLayout
from fluss_lab.lake.iceberg.write.delete_schema import event_range
from fluss_lab.lake.maintenance_interfaces import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.lake.snapshot_summary import offsets_by_snapshot
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_CONTENTS: Final = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


def snapshot_infos(lake: Table, path: TablePath) -> list[LakeSnapshotInfo]:
    """Return the snapshots on a table's main branch, oldest first, as far back as they were not expired.

    Of the two that a compaction's commit makes, the second is there, with what the first added.

    Cost: no file is read.
    """
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for name, ref in lake.metadata.refs.items():
        if name != MAIN_BRANCH:
            tags[ref.snapshot_id].append(name)
    infos: list[LakeSnapshotInfo] = []
    line = list(main_line(lake.metadata))[::-1]
    said = offsets_by_snapshot(summaries(path, line))
    first: LakeSnapshotInfo | None = None
    for (snapshot, after), (offsets, is_complete) in zip(zip_longest(line, line[1:]), said, strict=True):
        info = _snapshot_info(snapshot, tuple(sorted(tags[snapshot.snapshot_id])))
        info = replace(info, offsets=offsets, complete=is_complete)
        if first is not None:
            info = replace(info, added_rows=first.added_rows, added_files=first.added_files)
        first = info if is_first_of_two(snapshot, after) else None
        if first is None:
            infos.append(info)
    return infos


def _snapshot_info(snapshot: Snapshot, tags: tuple[str, ...]) -> LakeSnapshotInfo:
    summary = summary_of(snapshot)
    ours = is_ours(snapshot)
    deletes = [_count(summary, f"total-{kind}-deletes") for kind in ("position", "equality")]
    return LakeSnapshotInfo(
        snapshot_id=snapshot.snapshot_id,
        time_ms=snapshot.timestamp_ms,
        operation=snapshot.summary.operation.value if snapshot.summary is not None else "unknown",
        offsets={},
        added_rows=_count(summary, "added-records", 0),
        added_files=_count(summary, "added-data-files", 0),
        rows=_count(summary, "total-records"),
        files=_count(summary, "total-data-files"),
        deletes=None if all(each is None for each in deletes) else sum(each or 0 for each in deletes),
        ours=ours,
        tags=tags,
    )


def _count(summary: dict[str, str], key: str, default: int | None = None) -> int | None:
    text = summary.get(key, "")
    return int(text) if text.isdecimal() else default


def file_infos(
    lake: Table, path: TablePath, layout: LakeLayout, snapshot_id: int | None, cache: EntryCache
) -> list[LakeFileInfo]:
    """Return the live files of a snapshot (None: of the newest) by partition, bucket and offset; data before deletes.

    Raises:
        LakeSnapshotNotFoundError: No such snapshot.

    Cost: every manifest of the snapshot that was not decoded before.
    """
    if snapshot_id is None and (snapshot_id := lake.metadata.current_snapshot_id) is None:
        return []
    state = live_state(lake, path, layout, snapshot_of(lake, path, snapshot_id), cache)
    _, offset_id, timestamp_id = layout.system_ids
    infos = []
    for partition, bucket in sorted(state, key=lambda key: (key[0] or "", key[1])):
        found = state[(partition, bucket)]
        # Of data files without metrics the offsets were read already.
        for file, offsets in [
            *((each.file, (each.min_offset, each.max_offset)) for each in found.data),
            *((each.file, None) for each in found.deletes),
        ]:
            ranges = _ranges(file, offset_id, timestamp_id)
            ranges[:2] = ranges[:2] if offsets is None else offsets
            infos.append(
                LakeFileInfo(
                    file.file_path, _CONTENTS[file.content], partition, bucket, file.record_count,
                    file.file_size_in_bytes, *ranges,
                )
            )  # fmt: skip
    return infos


def _ranges(file: DataFile, offset_id: int, timestamp_id: int) -> list[int | None]:
    """Return smallest and largest offset and time in milliseconds: as a delete file's name or the metrics say."""
    if file.content != DataFileContent.DATA and (found := event_range(file.file_path)) is not None:
        return [found.min_offset, found.max_offset, found.min_timestamp_ms, found.max_timestamp_ms]
    times = [None if each is None else each // 1000 for each in _bounds(file, timestamp_id)]
    return [*_bounds(file, offset_id), *times]


def _bounds(file: DataFile, field_id: int) -> list[int | None]:
    """Return the smallest and largest value of a column of eight bytes; None where the metrics do not have it."""
    found = [(file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)]
    return [None if raw is None else int(from_bytes(LongType(), raw)) for raw in found]


def schema_infos(lake: Table) -> list[dict[str, Any]]:
    """Return the schemas that a lake table has had: ``schema_id``, ``current``, ``columns`` (name to type)."""
    return [
        {
            "schema_id": schema_id,
            "current": schema_id == lake.metadata.current_schema_id,
            "columns": {field.name: str(field.field_type) for field in schema.fields},
        }
        for schema_id, schema in sorted(lake.schemas().items())
    ]
