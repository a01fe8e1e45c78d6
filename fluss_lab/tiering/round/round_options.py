"""The options of a tiering round.

How the limits of a round are kept. How much it takes is for the planner to say: it knows what waits in every bucket, and
shortens all of them alike. How long it takes is not known before: so splits are ordered by their position in their
bucket, and one whose task would begin after the deadline is left out, whole. What was begun is finished: of a bucket only
a prefix of its splits can be committed, and were running splits cut short where they stand (as Apache Fluss does, which
has one split a bucket), everything written of the splits behind them would be thrown away. A round therefore outlasts its
limit by one split at most (`split_bytes_max`), and as many tasks as run at once always begin, so that every round gets
somewhere. A round that a limit ended is followed by the next at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
#: No round is ended before: its fixed cost of about a second is then some 2 % of it, however fresh the table shall be.
ROUND_DURATION_MIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TieringOptions:
    """Limits of a round and of its splits. Sizes are bytes of log, which is uncompressed: files come out smaller.

    Attributes:
        split_bytes_min: Buckets are not cut finer than this, so that parallelism does not cost tiny files.
            (16 MiB of log take about a tenth of a second to write.)
        split_bytes_max: Longer splits are cut, so that a task that fails repeats little and its memory is bounded.
        round_records_max: A round takes at most so many log records, so that a long backlog becomes visible in steps;
            the next round goes on. Every bucket that lags gets its share.
        round_bytes_max: A round takes at most so many bytes of log, likewise. Snapshots are not counted, they are
            never cut.
        round_duration_max_s: No task is begun any more after so many seconds; None: the table's freshness, but
            `ROUND_DURATION_MIN_S` at least.
        replans_max: How often a round is planned again after losing the race for a lake commit.
        renew_interval_s: Time between heartbeats during a round; a third of the least time after which the
            coordinator gives a silent tierer's table to another.
    """

    split_bytes_min: int = 16 * MIB
    split_bytes_max: int = 256 * MIB
    round_records_max: int = 200_000_000
    round_bytes_max: int = 16 * GIB
    round_duration_max_s: float | None = None
    replans_max: int = 3
    renew_interval_s: float = 3.0

    def __post_init__(self) -> None:
        if not 1 <= self.split_bytes_min <= self.split_bytes_max:
            raise ValueError(
                f"split sizes: expected 1 <= split_bytes_min <= split_bytes_max, found {self.split_bytes_min} "
                f"and {self.split_bytes_max}"
            )
        too_small = (
            self.round_records_max < 1
            or self.round_bytes_max < 1
            or (self.round_duration_max_s is not None and self.round_duration_max_s < 0)
            or self.replans_max < 0
            or self.renew_interval_s <= 0
        )
        if too_small:
            raise ValueError(f"expected positive limits, found {self}")

    def duration_max_s(self, freshness_ms: int) -> float:
        """Return after how many seconds a round of a table of such freshness begins no more tasks."""
        if self.round_duration_max_s is not None:
            return self.round_duration_max_s
        return max(freshness_ms / 1000, ROUND_DURATION_MIN_S)
