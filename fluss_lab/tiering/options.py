"""What can be set about a tiering round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TieringOptions:
    """Limits of a round and of its splits. Sizes are bytes of log, which is uncompressed: files come out smaller.

    Attributes:
        split_bytes_min: Buckets are not cut finer than this, so that parallelism does not cost tiny files.
            (16 MiB of log take about a tenth of a second to write.)
        split_bytes_max: Longer splits are cut, so that a task that fails repeats little and its memory is bounded.
        round_records_max: A round takes at most so many records, so that a long backlog becomes visible in steps;
            the next round goes on. Every bucket that lags gets its share.
        replans_max: How often a round is planned again after losing the race for a lake commit.
        renew_interval_s: Time between heartbeats during a round; a third of the least time after which the
            coordinator gives a silent tierer's table to somebody else.
    """

    split_bytes_min: int = 16 * MIB
    split_bytes_max: int = 256 * MIB
    round_records_max: int = 200_000_000
    replans_max: int = 3
    renew_interval_s: float = 3.0

    def __post_init__(self) -> None:
        if not 1 <= self.split_bytes_min <= self.split_bytes_max:
            raise ValueError(
                f"split sizes: expected 1 <= split_bytes_min <= split_bytes_max, found {self.split_bytes_min} "
                f"and {self.split_bytes_max}"
            )
        if self.round_records_max < 1 or self.replans_max < 0 or self.renew_interval_s <= 0:
            raise ValueError(f"expected positive limits, found {self}")
