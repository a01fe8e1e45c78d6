"""The status of a tiering service: by table, the lake's lag, the speed of rounds, the last error."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fluss_lab.display import Grid, Key, ago, card, plural, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.display.marks import BEHIND, FAILED, WELL
from fluss_lab.model import TablePath
from fluss_lab.model.times import format_duration, format_moment
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.table_lag import DURABLE_MS, TableLag
from fluss_lab.tiering.task.round_progress import RoundState

#: Rounds of a table over which its throughput is averaged; what is kept of a table does not grow beyond them.
ROUNDS_KEPT: Final = 20
#: Of an error's text: it is shown in a table.
ERROR_LENGTH_MAX: Final = 500

_COLUMNS: Final = ("table", "state", "lag", "late", "freshness", "last round", "rounds", "rows", "rows/s")


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast a table's rounds are, of those that tiered something.

    Attributes:
        rows_per_s: Of the last one: records a second, from its begin to its end.
        bytes_per_s: Of the last one: bytes of files written a second.
        mean_rows_per_s: Over the last `ROUNDS_KEPT`.
        mean_bytes_per_s: Over the last `ROUNDS_KEPT`.
    """

    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    mean_rows_per_s: float = 0.0
    mean_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What the service did for one table since it was made, and how the table stands.

    Attributes:
        table: Its path.
        tiering: Whether a round of this service is under way.
        rounds: Rounds that ended well, those with nothing to tier included.
        rows: Rows tiered by them.
        size_bytes: Bytes of the files that they wrote.
        failures: Rounds that failed since the last that ended well.
        failures_total: Rounds that failed.
        last_report: Of the last round that ended well.
        last_round_ms: When that was, epoch milliseconds.
        last_error: Of the last round that failed, as long as none has ended well since.
        last_error_ms: When that was, epoch milliseconds.
        progress: How far the round under way is.
        throughput: How fast rounds were.
        state: Where the coordinator has the table (``Scheduled``, ``Pending``, ``Tiering``, ...); None when it was not
            asked, or is away. Another tierer may be the one that works on it.
        lag: How far the lake lags; None when it was not asked for, or the coordinator is away.
    """

    table: TablePath
    tiering: bool = False
    rounds: int = 0
    rows: int = 0
    size_bytes: int = 0
    failures: int = 0
    failures_total: int = 0
    last_report: TieringReport | None = None
    last_round_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    progress: RoundState | None = None
    throughput: Throughput = field(default_factory=Throughput)
    state: str | None = None
    lag: TableLag | None = None

    @property
    def is_within(self) -> bool:
        """Return whether the lake is known to lag no further behind than it may."""
        return self.lag is None or (self.lag.is_complete and not self.lag.is_late)

    @property
    def complete_ms(self) -> int | None:
        """Return a moment (epoch milliseconds) all records before which are in the lake; None when no round says so."""
        if self.last_report is None or self.last_round_ms is None or self.last_report.is_limited:
            return None
        return self.last_round_ms - round(self.last_report.seconds.get("total", 0.0) * 1000) - DURABLE_MS

    def metrics(self, now_ms: int) -> dict[str, int | float | None]:
        """Return the table's metrics under the names of Apache Fluss; None where there is nothing to report.

        ``tierLag`` milliseconds since the last round ended well, ``tieredTimestamp`` when that was, ``tierDuration`` how
        many milliseconds it took, ``failuresTotal``, ``fileSize`` and ``recordCount`` of that round, ``freshness``; and,
        not in Fluss, ``lagRecords``, ``lagMs`` (None while a bucket is not known), ``rowsPerSecond``, ``bytesPerSecond``
        (moving averages).
        """
        last, lag = self.last_report, self.lag
        return {
            "tierLag": None if self.last_round_ms is None else max(0, now_ms - self.last_round_ms),
            "tieredTimestamp": self.last_round_ms,
            "tierDuration": None if last is None else round(last.seconds.get("total", 0.0) * 1000),
            "failuresTotal": self.failures_total,
            "fileSize": None if last is None else last.bytes,
            "recordCount": None if last is None else last.rows,
            "freshness": None if lag is None else lag.freshness_ms,
            "lagRecords": None if lag is None or not lag.is_complete else lag.records,
            "lagMs": None if lag is None or not lag.is_complete else lag.ms,
            "rowsPerSecond": self.throughput.mean_rows_per_s,
            "bytesPerSecond": self.throughput.mean_bytes_per_s,
        }


class TableHistory:
    """What the service keeps of one table: counters, and a few of its last rounds. Not safe for threads by itself.

    Args:
        table: Its path.
    """

    def __init__(self, table: TablePath) -> None:
        self.status = TableStatus(table)
        # Rows, bytes and seconds.
        self._speeds: deque[tuple[int, int, float]] = deque(maxlen=ROUNDS_KEPT)

    def begin(self) -> None:
        """Note that a round begins."""
        self.status = replace(self.status, tiering=True, progress=None)

    def advance(self, state: RoundState) -> None:
        """Note how far it is."""
        if self.status.tiering:
            self.status = replace(self.status, progress=state)

    def succeed(self, report: TieringReport, now_ms: int) -> None:
        """Note that it ended well."""
        before, records = self.status, report.rows + report.events
        if records and (seconds := report.seconds.get("total", 0.0)):
            self._speeds.append((records, report.bytes, seconds))
        self.status = replace(
            before,
            tiering=False,
            progress=None,
            rounds=before.rounds + 1,
            rows=before.rows + report.rows,
            size_bytes=before.size_bytes + report.bytes,
            failures=0,
            last_report=report,
            last_round_ms=now_ms,
            last_error=None,
            last_error_ms=None,
            throughput=self._throughput(),
        )

    def fail(self, error: BaseException, now_ms: int) -> None:
        """Note that it failed."""
        before = self.status
        self.status = replace(
            before,
            tiering=False,
            progress=None,
            failures=before.failures + 1,
            failures_total=before.failures_total + 1,
            last_error=f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX],
            last_error_ms=now_ms,
        )

    def _throughput(self) -> Throughput:
        if not self._speeds:
            return Throughput()
        rows, size_bytes, seconds = self._speeds[-1]
        all_rows, all_bytes, all_seconds = (sum(column) for column in zip(*self._speeds, strict=True))
        return Throughput(rows / seconds, size_bytes / seconds, all_rows / all_seconds, all_bytes / all_seconds)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The state of a service at one moment.

    Attributes:
        running: Whether it was started and not stopped.
        max_tables: Tables tiered at the same time.
        tables: By path: the lake-enabled ones when the coordinator was asked, else those that had a round.
        error: Why the service cannot work at all at the moment (no server answers, for instance).
        now_ms: The moment, epoch milliseconds.
        restarts: How often Spark was started again after it had died.
    """

    running: bool
    max_tables: int
    tables: tuple[TableStatus, ...]
    error: str | None = None
    now_ms: int = 0
    restarts: int = 0

    def metrics(self) -> dict[str, Any]:
        """Return the metrics under the names of Apache Fluss, as JSON.

        ``pendingTablesCount`` and ``runningTablesCount`` (the coordinator's; tables that wait for a tierer, and that any
        tierer works on), and by path under ``tables`` what `TableStatus.metrics` returns.
        """
        return {
            "pendingTablesCount": sum(each.state == "Pending" for each in self.tables),
            "runningTablesCount": sum(each.state == "Tiering" or each.tiering for each in self.tables),
            "tables": {str(each.table): each.metrics(self.now_ms) for each in self.tables},
        }

    def __repr__(self) -> str:
        busy = sum(each.tiering for each in self.tables)
        failed = sum(each.last_error is not None for each in self.tables)
        state = "running" if self.running else "stopped"
        behind = [each.lag.records for each in self.tables if each.lag is not None]
        unknown = sum(each.lag is not None and not each.lag.is_complete for each in self.tables)
        lag = f", {'at least ' if unknown else ''}{sum(behind):,} records behind" if behind else ""
        lag += f", {unknown} with buckets that are not known" if unknown else ""
        trouble = f", {short(self.error, 200)}" if self.error else ""
        return f"<tiering service {state}: {len(self.tables)} tables, {busy} tiering, {failed} failed{lag}{trouble}>"

    def _repr_html_(self) -> str:
        ordered = sorted(self.tables, key=lambda each: (each.last_error is None, each.is_within, str(each.table)))
        rows = [_cells(each, self.now_ms) for each in ordered[:CARD_ROWS_MAX]]
        records = [each.lag.records for each in self.tables if each.lag is not None]
        unknown = sum(each.lag is not None and not each.lag.is_complete for each in self.tables)
        return card(
            "TieringService",
            "running" if self.running else "stopped",
            [
                ("tables", len(self.tables)),
                ("tiering", f"{sum(each.tiering for each in self.tables)} of at most {self.max_tables} at once"),
                ("failed", sum(each.last_error is not None for each in self.tables) or None),
                ("lag", f"{'at least ' if unknown else ''}{plural(sum(records), 'record')}" if records else None),
                ("Spark started again", self.restarts or None),
            ],
            notes=[self.error, *(note for each in ordered for note in _notes(each))],
            keys=[Key("", f"{each.table}: {each.progress}") for each in ordered if each.progress is not None][:3],
            grid=Grid(_COLUMNS, rows, right=_COLUMNS[2:], kept=("table", "state", "lag"), minor=("rows", "rounds"))
            if rows
            else None,
            total=len(self.tables),
            noun="table",
            last="Those that need attention first." if len(self.tables) > CARD_ROWS_MAX else "",
            calls=[".tables"] if len(self.tables) > CARD_ROWS_MAX else [],
        )


def _notes(each: TableStatus) -> Iterator[str]:
    if each.last_error is not None:
        since = "" if each.last_error_ms is None else f" at {format_moment(each.last_error_ms)}"
        yield f"{each.table}, {plural(each.failures, 'failure')}, the last{since}: {each.last_error}"
    if each.lag is not None and not each.lag.is_complete:
        yield f"{each.table}, not known: {each.lag.error or 'a bucket'}"


def _cells(each: TableStatus, now_ms: int) -> list[object]:
    lag, speed = each.lag, each.throughput
    state = "tiering" if each.tiering else each.state or "tiered"
    sign = WELL if each.is_within else BEHIND
    return [
        str(each.table),
        f"{FAILED} failed" if each.last_error else f"{sign} {state.lower()}",
        None if lag is None else lag.records,
        None if lag is None else ago(lag.ms) if lag.records else "0 ms",
        None if lag is None or lag.freshness_ms is None else format_duration(lag.freshness_ms),
        None if each.last_round_ms is None else f"{ago(now_ms - each.last_round_ms)} ago",
        each.rounds,
        each.rows,
        f"{speed.mean_rows_per_s:,.0f}" if speed.rows_per_s else None,
    ]
