"""The answers about a table's lake: its snapshots, and what one of them holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import FlussError, LakeNotConfiguredError, LakeSnapshotNotFoundError
from fluss_lab.explorer.explorer_answers import Answer, cut_text, cut_to_size
from fluss_lab.explorer.explorer_requests import LakePartRequest, LakeRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import lake_code
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX
from fluss_lab.model import TableInfo
from fluss_lab.model.times import format_duration, parse_moment

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.snapshots import Snapshot

#: Snapshots of a time line; older ones when they are asked for.
SNAPSHOTS_MAX: Final = 500
#: Files that are drawn one by one, the largest; and rows of every other list.
LIST_MAX: Final = 1_000
#: Tags of a snapshot that are named.
_TAGS_MAX: Final = 3


class LakeAnswers:
    """What a view shows of the lake. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        self._parts: Mapping[str, Callable[[TableInfo, int], Answer]] = {
            "files": self._files,
            "manifests": self._manifests,
            "partitions": self._partitions,
            "schemas": self._schemas,
            "refs": self._refs,
        }

    def timeline(self, request: LakeRequest) -> Answer:
        """Return snapshots of the lake, oldest first; of a table that was never tiered, none.

        ``snapshots``: id, time in epoch milliseconds, operation, whether it is of a round, rows, files, total rows, total
        files, deletes among them, tags. ``older``, ``newer``: how many there are before them and after them. ``expired``: how
        many are held no more; None where the lake format does not count them.

        Raises:
            LakeSnapshotNotFoundError: That before which they are wanted is there no more.
        """
        info = self._tables.info(request)
        if not info.descriptor.lake_enabled:
            return {"enabled": False, "snapshots": [], "code": lake_code.enable_code(info.path)}
        rows = self._tables.table(info).snapshots()
        end = len(rows)
        if request.before is not None:
            places = {str(row["snapshot_id"]): at for at, row in enumerate(rows)}
            if (end := places.get(request.before, -1)) < 0:
                raise LakeSnapshotNotFoundError(f"lake table {info.path} no longer has snapshot {request.before}")
        begin = max(0, end - SNAPSHOTS_MAX)

        def make(length: int) -> Answer:
            return {"snapshots": [self._snapshot(row, length) for row in rows[begin:end]]}

        answer: Answer = {
            "enabled": True,
            "older": begin,
            "newer": len(rows) - end,
            "held": len(rows),
            "expired": self._expired_count(info),
            "code": lake_code.snapshots_code(info.path),
        }
        return cut_to_size(lambda length: answer | make(length), CELL_LENGTH_MAX)

    def _snapshot(self, row: Mapping[str, Any], length: int) -> list[Any]:
        tags = [self._tables.mask.visible_text(tag)[:length] for tag in row["tags"][:_TAGS_MAX]]
        counts = [row[name] for name in ("rows", "files", "total_rows", "total_files", "deletes")]
        texts = [None if count is None else str(count) for count in counts]
        return [str(row["snapshot_id"]), parse_moment(row["time"]), row["operation"], row["ours"], *texts, tags]

    def _expired_count(self, info: TableInfo) -> int | None:
        """Return how many snapshots are held no more: each has a number of its own in the table's sequence."""
        try:
            metadata = self._tables.lab.iceberg(info.path).metadata
        except LakeNotConfiguredError:
            return None
        numbers: int | None = getattr(metadata, "last_sequence_number", None)
        return None if numbers is None else max(0, numbers - len(metadata.snapshots))

    def part(self, request: LakePartRequest) -> Answer:
        """Return what a snapshot has: ``files``, ``manifests``, ``partitions``, ``schemas`` or ``refs``, and the Python for it.

        Raises:
            LakeSnapshotNotFoundError: It is there no more.
            CorruptDataError, StorageError, UnavailableError: The lake cannot be read; the text says what to do.
        """
        info = self._tables.info(request)
        try:
            answer = self._parts[request.part](info, int(request.snapshot))
        except (FlussError, MemoryError):
            raise
        except Exception as error:  # of pyiceberg and the store below it
            from fluss_lab.lake.iceberg.files.lake_errors import read_error

            what = f"lake table {info.path}, {request.part} of snapshot {request.snapshot}"
            raise read_error(what, "metadata", error) from error
        return {"part": request.part, "snapshot": request.snapshot, **answer}

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _files(self, info: TableInfo, snapshot_id: int) -> Answer:
        """Return files by bucket, and the largest of them one by one.

        ``buckets``: partition, bucket, files, rows, bytes, bytes of the smallest, delete files. ``files``: place of its bucket in
        the list, content, first and last offset, first and last time, rows, bytes, name.
        """
        rows = self._tables.table(info).files(snapshot_id)
        groups = [list(group) for _, group in groupby(rows, key=lambda row: (row["partition"], row["bucket"]))]
        shown = groups[:LIST_MAX]
        placed = [(at, row) for at, group in enumerate(shown) for row in group]
        by_size = sorted(range(len(placed)), key=lambda place: -placed[place][1]["bytes"])
        largest = [placed[place] for place in sorted(by_size[:LIST_MAX])]

        def make(length: int) -> Answer:
            return {
                "buckets": [_bucket_sum(group, length) for group in shown],
                "files": [_file(at, row, length) for at, row in largest],
            }

        answer: Answer = {
            "total": len(rows),
            "left_out": len(groups) - len(shown),
            "code": lake_code.files_code(info.path, snapshot_id),
        }
        return cut_to_size(lambda length: answer | make(length), CELL_LENGTH_MAX)

    def _manifests(self, info: TableInfo, snapshot_id: int) -> Answer:
        """Return manifests: name, content, the snapshot that added it, added, existing and deleted files, bytes."""
        lake, snapshot = self._lake(info, snapshot_id)
        rows = [
            [
                _name(each.manifest_path), "data" if each.content.value == 0 else "deletes", str(each.added_snapshot_id),
                each.added_files_count, each.existing_files_count, each.deleted_files_count, each.manifest_length,
            ]
            for each in snapshot.manifests(lake.io)
        ]  # fmt: skip
        is_newest = lake.metadata.current_snapshot_id == snapshot_id
        return _list_answer(rows, lake_code.manifests_code(info.path, snapshot_id, is_newest=is_newest))

    def _partitions(self, info: TableInfo, snapshot_id: int) -> Answer:
        """Return partitions as Iceberg counts them, one a bucket.

        Values, rows, data files, bytes, position deletes, equality deletes, time and snapshot of the last change.
        """
        lake, _ = self._lake(info, snapshot_id)
        found = lake.inspect.partitions(snapshot_id=snapshot_id).to_pylist()
        found.sort(key=lambda row: [str(value) for value in row["partition"].values()])
        rows = [
            [
                " / ".join(str(value) for value in row["partition"].values()),
                str(row["record_count"]),
                row["file_count"],
                row["total_data_file_size_in_bytes"],
                str(row["position_delete_record_count"]),
                str(row["equality_delete_record_count"]),
                None if row["last_updated_at"] is None else round(_utc(row["last_updated_at"]) * 1000),
                None if row["last_updated_snapshot_id"] is None else str(row["last_updated_snapshot_id"]),
            ]
            for row in found
        ]
        return _list_answer(rows, lake_code.partitions_code(info.path, snapshot_id))

    def _schemas(self, info: TableInfo, snapshot_id: int) -> Answer:
        """Return schemas, newest first.

        Id, whether it is the present one, whether the snapshot has it, the time of the oldest snapshot held that has it,
        columns, what changed from the one before.
        """
        lake, snapshot = self._lake(info, snapshot_id)
        since: dict[int, int] = {}
        for each in lake.metadata.snapshots:
            if each.schema_id is not None:
                since[each.schema_id] = min(each.timestamp_ms, since.get(each.schema_id, each.timestamp_ms))
        rows: list[list[Any]] = []
        before: dict[str, str] | None = None
        for schema in self._tables.table(info).lake_schemas():
            number = schema["schema_id"]
            columns = {name: kind for name, kind in schema["columns"].items() if self._tables.mask.shows(name)}
            change = "first" if before is None else _change(before, columns)
            is_its = number == snapshot.schema_id
            rows.append([number, schema["current"], is_its, since.get(number), len(columns), change])
            before = columns
        return _list_answer(rows[::-1], lake_code.schemas_code(info.path))

    def _refs(self, info: TableInfo, snapshot_id: int) -> Answer:
        """Return branches and tags: name, kind, snapshot, its time, how long it is kept, what for, whether it is the chosen one."""
        from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_TAG_PREFIX

        lake, _ = self._lake(info, snapshot_id)
        times = {each.snapshot_id: each.timestamp_ms for each in lake.metadata.snapshots}
        rows = []
        for ref in lake.inspect.refs().to_pylist():
            kept_ms, name = ref["max_reference_age_in_ms"], ref["name"]
            why = (
                "the table"
                if name == "main"
                else "replay behind a compaction"
                if name.startswith(REPLAY_TAG_PREFIX)
                else ""
            )
            rows.append(
                [
                    self._tables.mask.visible_text(name), ref["type"].lower(), str(ref["snapshot_id"]),
                    times.get(ref["snapshot_id"]), "always" if kept_ms is None else format_duration(kept_ms), why,
                    ref["snapshot_id"] == snapshot_id,
                ]
            )  # fmt: skip
        return _list_answer(rows, lake_code.refs_code(info.path))

    def _lake(self, info: TableInfo, snapshot_id: int) -> tuple[IcebergTable, Snapshot]:
        lake = self._tables.lab.iceberg(info.path)
        if (snapshot := lake.snapshot_by_id(snapshot_id)) is None:
            raise LakeSnapshotNotFoundError(f"lake table {info.path} no longer has snapshot {snapshot_id}")
        return lake, snapshot


def _list_answer(rows: Sequence[list[Any]], code: list[str]) -> Answer:
    """Return the first rows of a list, their texts cut to what a message holds."""

    def make(length: int) -> Answer:
        return {"rows": [[cut_text(value, length) for value in row] for row in rows[:LIST_MAX]]}

    answer: Answer = {"total": len(rows), "left_out": max(0, len(rows) - LIST_MAX), "code": code}
    return cut_to_size(lambda length: answer | make(length), CELL_LENGTH_MAX)


def _bucket_sum(files: Sequence[Mapping[str, Any]], length: int) -> list[Any]:
    sizes = [row["bytes"] for row in files]
    deletes = sum(row["content"] != "data" for row in files)
    rows = sum(row["rows"] for row in files if row["content"] == "data")
    partition = cut_text(files[0]["partition"], length)
    return [partition, files[0]["bucket"], len(files), str(rows), sum(sizes), min(sizes), deletes]


def _file(at: int, row: Mapping[str, Any], length: int) -> list[Any]:
    offsets = [None if row[name] is None else str(row[name]) for name in ("first_offset", "last_offset")]
    times = [None if row[name] is None else parse_moment(row[name]) for name in ("first_time", "last_time")]
    return [at, row["content"], *offsets, *times, str(row["rows"]), row["bytes"], cut_text(_name(row["path"]), length)]


def _name(path: str) -> str:
    """Return the name of a file: the folders before it name the columns by which rows are spread."""
    return path.rsplit("/", 1)[-1]


def _change(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return what changed from one schema to the next, in words."""
    names = list(after)
    parts = []
    for name, kind in after.items():
        if name not in before:
            place = names.index(name)
            parts.append(f"+ {name} {kind}{f', after {names[place - 1]}' if place else ', first'}")
        elif before[name] != kind:
            parts.append(f"{name} from {before[name]} to {kind}")
    parts += [f"- {name}" for name in before if name not in after]
    return "; ".join(parts) or "order or documentation"


def _utc(moment: Any) -> float:
    """Return seconds since 1970 of a time that is one of UTC and does not say so."""
    from datetime import UTC

    return float(moment.replace(tzinfo=UTC).timestamp())
