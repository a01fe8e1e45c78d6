"""The reports of a tiering round and of maintenance, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_lab.display import html_table
from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment

#: The stages of a round, in order; ``total`` also covers what lies between them.
STAGES = ("plan", "write", "commit", "maintain", "finish", "total")


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did.

    Attributes:
        table: The table's path.
        snapshot_id: The lake snapshot that it made; None when there was nothing worth doing.
        buckets: Buckets whose files were rewritten.
        files_before: Data and delete files that were replaced.
        files_after: Those that replaced them.
        bytes_before: Size of the former.
        bytes_after: Size of the latter.
        tag: Name in the lake that keeps the snapshot before it, so that the changelog can still be replayed from there.
        seconds: How long it took.
    """

    table: TablePath
    snapshot_id: int | None = None
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tag: str | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {"table": str(self.table)}

    def __repr__(self) -> str:
        return f"<CompactionReport {self.table}: {self._text()}>"

    def _text(self) -> str:
        if self.snapshot_id is None:
            return f"nothing to compact, {self.seconds:.2f} s"
        return (
            f"{self.files_before:,} files ({self.bytes_before / 1e6:,.1f} MB) of {self.buckets} buckets became "
            f"{self.files_after:,} ({self.bytes_after / 1e6:,.1f} MB), snapshot {self.snapshot_id}, {self.seconds:.2f} s"
        )

    def _repr_html_(self) -> str:
        return html_table(f"compaction of {self.table}", ["what", "is"], [[k, v] for k, v in self.to_dict().items()])


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What an expiry of snapshots did.

    Attributes:
        table: The table's path.
        snapshot_ids: The snapshots that are gone.
        files: Files that were removed with them.
        bytes: Size of the data and delete files among these.
        replay_starts: By (partition, bucket): the first offset that the lake can replay from now on, where it moved.
        seconds: How long it took.
    """

    table: TablePath
    snapshot_ids: tuple[int, ...] = ()
    files: int = 0
    bytes: int = 0
    replay_starts: Mapping[BucketKey, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        starts = [
            {"partition": partition, "bucket": bucket, "offset": offset}
            for (partition, bucket), offset in self.replay_starts.items()
        ]
        return {
            "table": str(self.table),
            "snapshot_ids": list(self.snapshot_ids),
            "files": self.files,
            "bytes": self.bytes,
            "replay_starts": starts,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        return (
            f"<ExpiryReport {self.table}: {len(self.snapshot_ids)} snapshots, {self.files:,} files "
            f"({self.bytes / 1e6:,.1f} MB), {self.seconds:.2f} s>"
        )

    def _repr_html_(self) -> str:
        rows = [["snapshots", len(self.snapshot_ids)], ["files", self.files], ["bytes", self.bytes]]
        rows += [[f"replay of bucket {key} starts at", offset] for key, offset in self.replay_starts.items()]
        return html_table(f"expiry of {self.table}", ["what", "is"], rows)


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """Files that nothing referred to.

    Attributes:
        table: The table's path.
        files: Their paths, sorted.
        dry_run: Whether they were only looked for, and are still there.
        seconds: How long it took.
    """

    table: TablePath
    files: tuple[str, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "table": str(self.table),
            "files": list(self.files),
            "dry_run": self.dry_run,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        done = "found" if self.dry_run else "removed"
        return f"<OrphanReport {self.table}: {len(self.files)} files {done}, {self.seconds:.2f} s>"

    def _repr_html_(self) -> str:
        done = "found" if self.dry_run else "removed"
        return html_table(f"orphan files of {self.table}, {done}", ["path"], [[path] for path in self.files])


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a round did for the table's shape after its commits.

    Attributes:
        compaction: None when none was worth it.
        expiry: None when there was nothing to expire.
        orphans: None when they were not looked for.
        errors: What did not work, and is tried again after the next round.
    """

    compaction: CompactionReport | None = None
    expiry: ExpiryReport | None = None
    orphans: OrphanReport | None = None
    errors: tuple[str, ...] = ()

    @property
    def snapshot_id(self) -> int | None:
        """Return the lake snapshot that a compaction made; None without."""
        return self.compaction.snapshot_id if self.compaction is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        parts = {"compaction": self.compaction, "expiry": self.expiry, "orphans": self.orphans}
        return {name: None if part is None else part.to_dict() for name, part in parts.items()} | {
            "errors": list(self.errors)
        }

    def __repr__(self) -> str:
        parts = [repr(part) for part in (self.compaction, self.expiry, self.orphans) if part is not None]
        return f"<MaintenanceReport {', '.join([*parts, *self.errors]) or 'nothing to do'}>"


@dataclass(frozen=True, slots=True)
class TieredBucket:
    """What a round tiered of one bucket: offsets ``[start, end)``.

    Attributes:
        partition: Name of its partition, or None.
        bucket: Its number.
        start: First offset tiered by the round.
        end: Offset after the last.
        max_timestamp_ms: Timestamp of the last record, epoch milliseconds.
    """

    partition: str | None
    bucket: int
    start: int
    end: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TieringReport:
    """What one round did.

    Attributes:
        table: The table's path.
        rows: Rows tiered: records of a log table, new and updated rows of a primary-key table; 0 when the lake was up
            to date (or only rows were deleted).
        files: Data files written.
        bytes: Their size.
        snapshot_id: The lake snapshot that the table has now; None when it was never tiered.
        epoch: Tiering epoch of the round.
        splits: Tasks that the round was cut into.
        seconds: By stage: ``plan`` (with heartbeat, recovery and planning), ``write`` (all tasks, by the wall clock),
            ``commit`` (lake, then Fluss), ``maintain``, ``finish``, ``total``.
        buckets: What was tiered of each bucket that lagged, by partition and bucket.
        events: Of a primary-key table: ends of rows tiered, ``-U`` and ``-D``.
        snapshots: Buckets that began with a key-value snapshot, because their log does not reach back to their begin.
        is_limited: Whether a limit of the round ended it before the lake was up to date: the next goes on.
        maintenance: What was done for the table's shape after the commits; None for nothing.
    """

    table: TablePath
    rows: int
    files: int
    bytes: int
    snapshot_id: int | None
    epoch: int
    splits: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    buckets: tuple[TieredBucket, ...] = ()
    events: int = 0
    snapshots: int = 0
    is_limited: bool = False
    maintenance: MaintenanceReport | None = None

    @property
    def rows_per_s(self) -> float:
        """Return records (rows and events) a second over the whole round; 0 when nothing was tiered."""
        records = self.rows + self.events
        return records / self.seconds["total"] if records and self.seconds.get("total") else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "table": str(self.table),
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "snapshot_id": self.snapshot_id,
            "epoch": self.epoch,
            "splits": self.splits,
            "seconds": dict(self.seconds),
            "buckets": [
                {
                    "partition": each.partition,
                    "bucket": each.bucket,
                    "start": each.start,
                    "end": each.end,
                    "max_timestamp_ms": each.max_timestamp_ms,
                }
                for each in self.buckets
            ],
            "events": self.events,
            "snapshots": self.snapshots,
            "is_limited": self.is_limited,
            "maintenance": None if self.maintenance is None else self.maintenance.to_dict(),
        }

    def __repr__(self) -> str:
        total = self.seconds.get("total", 0.0)
        if not self.buckets and not self.rows:
            return f"<TieringReport {self.table}: nothing to tier, snapshot {self.snapshot_id}, {total:.2f} s>"
        return (
            f"<TieringReport {self.table}: {self._amount()} ({self.bytes / 1e6:,.1f} MB), snapshot {self.snapshot_id}, "
            f"{total:.2f} s{', more to tier' if self.is_limited else ''}>"
        )

    def _amount(self) -> str:
        events = f" and {self.events:,} deletes" if self.events else ""
        return f"{self.rows:,} rows{events} in {self.files} files"

    def _repr_html_(self) -> str:
        stages = ", ".join(f"{stage} {self.seconds[stage]:.2f} s" for stage in STAGES if stage in self.seconds)
        more = "; a limit ended the round, the next goes on" if self.is_limited else ""
        more += f"; {self.maintenance!r}" if self.maintenance is not None else ""
        title = f"{self.table}: {self._amount()}, snapshot {self.snapshot_id} ({stages}){more}"
        rows = [
            [each.partition, str(each.bucket), str(each.start), str(each.end), each.end - each.start, _moment(each)]
            for each in self.buckets
        ]
        return html_table(title, ["partition", "bucket", "from offset", "to offset", "rows", "up to"], rows)


def _moment(bucket: TieredBucket) -> str | None:
    return format_moment(bucket.max_timestamp_ms) if bucket.max_timestamp_ms >= 0 else None
