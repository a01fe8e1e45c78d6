"""The report of a tiering round, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_lab.display import html_table
from fluss_lab.model import TablePath
from fluss_lab.model.times import format_moment
from fluss_lab.tiering.maintenance.maintenance_report import MaintenanceReport

#: The stages of a round, in order; ``total`` also covers what lies between them.
STAGES = ("plan", "write", "commit", "maintain", "finish", "total")


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
