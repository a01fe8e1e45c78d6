"""The reports of a tiering round and of maintenance, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fluss_lab.display import LAKE, MUTED, STRONG, Grid, Key, card, plural, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment, format_size

if TYPE_CHECKING:
    from fluss_lab.display.plot_style import Picture

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
        if self.snapshot_id is None:
            return card("CompactionReport", self.table, [("", "nothing to compact"), ("took", f"{self.seconds:.2f} s")])
        before, after = format_size(self.bytes_before), format_size(self.bytes_after)
        return card(
            "CompactionReport",
            self.table,
            [
                ("files", f"{self.files_before:,} → {self.files_after:,}"),
                ("bytes", f"{before} → {after}"),
                ("buckets", self.buckets),
                ("took", f"{self.seconds:.2f} s"),
                ("snapshot", str(self.snapshot_id)),
                ("tag`", self.tag),
            ],
            keys=[
                Key(LAKE, f"files left {self.files_after:,}", self.files_after),
                Key(MUTED, f"fewer {max(0, self.files_before - self.files_after):,}",
                    max(0, self.files_before - self.files_after)),
            ],
            last="The tag keeps the snapshot before it for the changelog." if self.tag else "",
            calls=["table.files()", "table.snapshots()"],
        )  # fmt: skip


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
        moved = sorted(self.replay_starts.items(), key=lambda each: (each[0][0] or "", each[0][1]))
        rows = [[partition, bucket, start] for (partition, bucket), start in moved[:CARD_ROWS_MAX]]
        return card(
            "ExpiryReport",
            self.table,
            [
                ("snapshots removed", len(self.snapshot_ids)),
                ("files removed", self.files),
                ("bytes", format_size(self.bytes)),
                ("took", f"{self.seconds:.2f} s"),
            ],
            grid=Grid(["partition", "bucket", "replay from"], rows) if rows else None,
            total=len(moved),
            noun="bucket",
            last="The lake replays these buckets from there on." if rows else "Replay starts where it did.",
            calls=[".replay_starts"] if len(moved) > CARD_ROWS_MAX else [],
        )


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
        done = "found, not removed" if self.dry_run else "removed"
        return card(
            "OrphanReport",
            self.table,
            [(f"files {done}", len(self.files)), ("took", f"{self.seconds:.2f} s")],
            grid=Grid(["path"], [[path] for path in self.files[:CARD_ROWS_MAX]]) if self.files else None,
            total=len(self.files),
            noun="file",
            calls=["table.remove_orphan_files()"] if self.dry_run and self.files else [],
        )


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a round did for the table's shape after its commits.

    Attributes:
        compaction: None when none was worth it.
        expiry: None when there was nothing to expire.
        orphans: None when they were not looked for.
        errors: What did not work, and is tried again after the next round.
        is_unfinished: Whether a commit, one of the errors', may still arrive: the next round fences it first.
    """

    compaction: CompactionReport | None = None
    expiry: ExpiryReport | None = None
    orphans: OrphanReport | None = None
    errors: tuple[str, ...] = ()
    is_unfinished: bool = False

    @property
    def snapshot_id(self) -> int | None:
        """Return the lake snapshot that a compaction made; None without."""
        return self.compaction.snapshot_id if self.compaction is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        parts = {"compaction": self.compaction, "expiry": self.expiry, "orphans": self.orphans}
        return {name: None if part is None else part.to_dict() for name, part in parts.items()} | {
            "errors": list(self.errors),
            "is_unfinished": self.is_unfinished,
        }

    def __repr__(self) -> str:
        parts = [repr(part) for part in (self.compaction, self.expiry, self.orphans) if part is not None]
        errors = [short(each, 200) for each in self.errors[:3]]
        errors += [f"and {len(self.errors) - 3} more errors"] if len(self.errors) > 3 else []
        return f"<MaintenanceReport {', '.join([*parts, *errors]) or 'nothing to do'}>"

    def notes(self) -> list[str]:
        """Return what did not work, as people read it."""
        return [f"maintenance is tried again after the next round: {each}" for each in self.errors]

    def _repr_html_(self) -> str:
        parts = [part for part in (self.compaction, self.expiry, self.orphans) if part is not None]
        facts = [("", "nothing to do")] if not parts and not self.errors else []
        head = card("MaintenanceReport", parts[0].table if parts else "", facts, notes=self.notes())
        return head + "".join(part._repr_html_() for part in parts)


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

    def plot(self) -> Picture:
        """Return a picture of the round's stages: how long each took. Needs matplotlib (the extra ``demo``).

        Raises:
            UnsupportedError: matplotlib is not installed.
        """
        return TieringReports([self]).plot()

    def _repr_html_(self) -> str:
        done = self.maintenance
        notes = ["a limit ended the round: the next one goes on"] if self.is_limited else []
        rows = [
            [each.partition, each.bucket, each.start, each.end, each.end - each.start, _moment(each)]
            for each in self.buckets[:CARD_ROWS_MAX]
        ]
        rate = f", {self.rows_per_s:,.0f} rows/s" if self.rows_per_s else ""
        return card(
            "TieringReport",
            f"{self.table}, round {self.epoch}",
            [
                ("rows", self.rows if self.buckets or self.rows else "nothing to tier"),
                ("deletes", self.events or None),
                ("files", self.files),
                ("bytes", format_size(self.bytes)),
                ("snapshot", None if self.snapshot_id is None else str(self.snapshot_id)),
                ("took", f"{self.seconds.get('total', 0.0):.2f} s{rate}"),
                ("maintenance", _maintenance_text(done)),
            ],
            notes=[*notes, *(done.notes() if done is not None else ())],
            keys=stage_keys(self.seconds),
            grid=Grid(["partition", "bucket", "from offset", "to offset", "rows", "up to"], rows) if rows else None,
            total=len(self.buckets),
            noun="bucket",
            calls=[".buckets", ".plot()"] if len(self.buckets) > CARD_ROWS_MAX else [],
        )


def stage_keys(seconds: Mapping[str, float]) -> list[Key]:
    """Return how long the stages of a round took, as the key of a bar; the one that writes to the lake has its hue."""
    hues = {"write": LAKE, "commit": STRONG}
    took = [(stage, seconds[stage]) for stage in STAGES[:-1] if seconds.get(stage)]
    return [Key(hues.get(stage, MUTED), f"{stage} {each:.2f} s", each) for stage, each in took]


def _maintenance_text(done: MaintenanceReport | None) -> str | None:
    parts = {} if done is None else {"compaction": done.compaction, "expiry": done.expiry, "orphans": done.orphans}
    return ", ".join(f"{name} {part.seconds:.2f} s" for name, part in parts.items() if part is not None) or None


class TieringReports(list[TieringReport]):
    """The reports of several rounds, in the order of the rounds: a list that shows itself as a table."""

    def plot(self) -> Picture:
        """Return a picture of the rounds' stages, a bar for each round. Needs matplotlib (the extra ``demo``).

        Raises:
            UnsupportedError: matplotlib is not installed.
        """
        from fluss_lab.display.stage_plot import stages_picture

        return stages_picture([f"{each.table}, round {each.epoch}" for each in self], [each.seconds for each in self])

    def __repr__(self) -> str:
        if not self:
            return "<TieringReports: no table has something to tier>"
        rows, total = sum(each.rows for each in self), sum(each.seconds.get("total", 0.0) for each in self)
        lines = [f"<TieringReports of {plural(len(self), 'round')}: {rows:,} rows, {total:.2f} s>"]
        lines += [f"  {each!r}" for each in self[:CARD_ROWS_MAX]]
        return "\n".join(
            [*lines, *([f"  … and {len(self) - CARD_ROWS_MAX} more"] if len(self) > CARD_ROWS_MAX else [])]
        )

    def _repr_html_(self) -> str:
        # Rounds that are not done, or did not do all, first.
        ordered = sorted(self, key=lambda each: not (each.is_limited or (each.maintenance and each.maintenance.errors)))
        rows = [
            [str(each.table), each.rows, each.files, format_size(each.bytes), f"{each.seconds.get('total', 0.0):.2f}",
             "more to tier" if each.is_limited else None]
            for each in ordered[:CARD_ROWS_MAX]
        ]  # fmt: skip
        stages = {stage: sum(each.seconds.get(stage, 0.0) for each in self) for stage in STAGES}
        return card(
            "TieringReports",
            plural(len(self), "round"),
            [("rows", sum(each.rows for each in self)), ("took", f"{stages['total']:.2f} s")],
            notes=[note for each in self if each.maintenance is not None for note in each.maintenance.notes()],
            keys=stage_keys(stages),
            grid=Grid(["table", "rows", "files", "bytes", "seconds", "left"], rows, right=("bytes", "seconds"))
            if rows
            else None,
            total=len(self),
            noun="round",
            calls=[".plot()"],
        )


def _moment(bucket: TieredBucket) -> str | None:
    return format_moment(bucket.max_timestamp_ms) if bucket.max_timestamp_ms >= 0 else None
