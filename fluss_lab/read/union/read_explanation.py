"""The explanation of a read, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluss_lab.display import LAKE, LOG, Grid, Key, card, plural, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model.times import format_size


@dataclass(frozen=True, slots=True)
class ExplainedBucket:
    """What is read of one bucket.

    Attributes:
        partition: Name of its partition; None without partitions.
        bucket: Its number.
        lake: Offsets ``[start, stop)`` from the lake; None for none.
        files: Files read for them.
        rows: Rows in these files.
        size_bytes: Bytes of these files.
        log: Offsets ``[start, stop)`` from the cluster; None for none.
        delete_files: Files of the lake that delete rows of these files.
        live: Whether the cluster's live rows are read, and what `log` did to them is taken back.
    """

    partition: str | None
    bucket: int
    lake: tuple[int, int] | None
    files: int
    rows: int
    size_bytes: int
    log: tuple[int, int] | None
    delete_files: int = 0
    live: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a read will do. Its repr is the plan as text.

    Attributes:
        title: What is read, and when it was.
        snapshot_id: The lake snapshot read; None when nothing comes from the lake.
        buckets: Those that are read.
        files_pruned: Files of the lake that cannot hold a row wanted, and are left alone.
        buckets_pruned: Buckets likewise.
        filter: What rows are filtered by; None for nothing.
        limit: How many rows are wanted at most; None for all.
        skipped: What is left out because it is no longer available, as text; empty unless ``gaps="skip"`` asked for that.
    """

    title: str
    snapshot_id: int | None
    buckets: Sequence[ExplainedBucket]
    files_pruned: int = 0
    buckets_pruned: int = 0
    filter: str | None = None
    limit: int | None = None
    skipped: Sequence[str] = ()

    @property
    def files(self) -> int:
        """Return how many files are read."""
        return sum(each.files for each in self.buckets)

    @property
    def rows(self) -> int:
        """Return how many rows these files have."""
        return sum(each.rows for each in self.buckets)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes these files have."""
        return sum(each.size_bytes for each in self.buckets)

    @property
    def delete_files(self) -> int:
        """Return how many delete files are read for them."""
        return sum(each.delete_files for each in self.buckets)

    @property
    def log_records(self) -> int:
        """Return how many records come from the cluster's log, before the filter."""
        return sum(each.log[1] - each.log[0] for each in self.buckets if each.log)

    @property
    def log_ranges(self) -> dict[tuple[str | None, int], tuple[int, int]]:
        """Return the ranges that come from the cluster's log, by (partition, bucket)."""
        return {(each.partition, each.bucket): each.log for each in self.buckets if each.log}

    def __repr__(self) -> str:
        lines = [f"<{short(self.title, 300)}>", f"  {self._lake_line()}", f"  {self._log_line()}"]
        if self.filter is not None:
            lines.append(f"  filter: {short(self.filter, 200)}")
        if self.limit is not None:
            lines.append(f"  limit: {self.limit:,}")
        if self.skipped:
            lines.append(f"  {self._skipped_line()}")
        for each in list(self.buckets)[:20]:
            name = f"bucket {each.bucket}" if each.partition is None else f"{short(each.partition, 40)}/{each.bucket}"
            lines.append(f"  {name}: {_describe_bucket(each)}")
        if len(self.buckets) > 20:
            lines.append(f"  … and {len(self.buckets) - 20} more buckets")
        return "\n".join(lines)

    def _lake_line(self, *, is_brief: bool = False) -> str:
        if self.snapshot_id is None:
            return "lake: nothing"
        pruned = f", {plural(self.files_pruned, 'file')} pruned" if self.files_pruned else ""
        deletes = f", {plural(self.delete_files, 'delete file')}" if self.delete_files else ""
        name = str(self.snapshot_id)
        if is_brief and len(name) > 12:
            name = f"{name[:4]}…{name[-6:]}"
        return (
            f"lake: snapshot {name}, {plural(self.files, 'file')}, {plural(self.rows, 'row')}, "
            f"{format_size(self.size_bytes)}{deletes}{pruned}"
        )

    def _skipped_line(self) -> str:
        named = short(", ".join(self.skipped), 400)
        return f"LEFT OUT, because they are no longer available: {named}" if named else ""

    def _log_line(self) -> str:
        ranges = len(self.log_ranges)
        pruned = f", {plural(self.buckets_pruned, 'bucket')} pruned" if self.buckets_pruned else ""
        if not ranges:
            return f"log: nothing{pruned}"
        return f"log: {plural(self.log_records, 'record')} in {plural(ranges, 'bucket')}{pruned}"

    def keys(self) -> list[Key]:
        """Return what comes from the lake and what from the log, as the key of a bar."""
        return [Key(LAKE, self._lake_line(is_brief=True), self.rows), Key(LOG, self._log_line(), self.log_records)]

    def _repr_html_(self) -> str:
        rows = [
            [each.partition, each.bucket, _range(each.lake), each.files or None, each.rows or None,
             format_size(each.size_bytes) if each.files else None, each.delete_files or None, _range(each.log),
             "live" if each.live else None]
            for each in self.buckets[:CARD_ROWS_MAX]
        ]  # fmt: skip
        headers = [
            "partition", "bucket", "lake offsets", "files", "rows", "size", "delete files", "log offsets", "read",
        ]  # fmt: skip
        filled = [index for index in range(len(headers)) if any(row[index] is not None for row in rows)]
        kind, _, rest = self.title.partition(" ")
        name = rest.removeprefix("of ReadPoint ").partition(": ")[0]
        return card(
            f"Explanation of {kind.lower()}",
            name,
            [("where`", self.filter), ("limit", self.limit)],
            notes=[self._skipped_line()],
            keys=self.keys(),
            grid=Grid(
                [headers[index] for index in filled],
                [[row[index] for index in filled] for row in rows],
                right=("lake offsets", "log offsets", "size"),
            ),
            total=len(self.buckets),
            noun="bucket",
            calls=[".buckets"] if len(self.buckets) > CARD_ROWS_MAX else [],
        )


def _describe_bucket(each: ExplainedBucket) -> str:
    parts = []
    if each.lake is not None:
        deletes = f" and {each.delete_files} delete files" if each.delete_files else ""
        parts.append(f"lake [{each.lake[0]}, {each.lake[1]}) in {each.files} files{deletes}")
    if each.live:
        parts.append("live rows")
    if each.log is not None:
        parts.append(f"log [{each.log[0]}, {each.log[1]}){' taken back' if each.live else ''}")
    return ", ".join(parts)


def _range(edges: tuple[int, int] | None) -> str | None:
    return None if edges is None else f"[{edges[0]:,}, {edges[1]:,})"
