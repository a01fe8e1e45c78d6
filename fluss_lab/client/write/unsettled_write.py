"""The unsettled write: which rows of a writer that was stopped or failed are acknowledged, in doubt or not sent; to be settled or abandoned."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from fluss_lab.client.write.bucket_queue import BucketQueue
from fluss_lab.client.write.write_result import WriteResult
from fluss_lab.model.names import BucketKey

#: Offset ranges that are kept of a bucket: ranges that touch are one, so that these are enough unless many writers take
#: turns, and a writer may write for months.
RANGES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class AcknowledgedRows:
    """What of a writer's rows a bucket has acknowledged.

    Attributes:
        rows: How many rows.
        offsets: Where they lie in the log: ranges ``[base, end)``, ascending; the last 1,000 of them.
    """

    rows: int
    offsets: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class AcknowledgedTally:
    """Counts what a bucket acknowledges."""

    rows: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, rows: int, base: int, end: int) -> None:
        """Count rows whose records lie at ``[base, end)``. Answers may overtake each other."""
        self.rows += rows
        if base == end:
            return
        at = bisect(self.ranges, (base, end))
        if at < len(self.ranges) and self.ranges[at][0] == end:
            end = self.ranges.pop(at)[1]
        if at and self.ranges[at - 1][1] == base:
            base = self.ranges.pop(at - 1)[0]
            at -= 1
        self.ranges.insert(at, (base, end))
        if len(self.ranges) > RANGES_MAX:
            del self.ranges[0]


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """What became of all rows that a writer was given.

    Attributes:
        rows: How many were given.
        acknowledged: By partition and bucket.
        in_flight: Rows that were sent, without an answer that says whether they were written, by partition and bucket.
        unsent: Rows that were not written: not sent yet, or refused.
        refusals: Why buckets were given up.
        given_up: Rows of calls that failed before others were made: their futures say why, and nothing is done about them
            any more.
    """

    rows: int
    acknowledged: Mapping[BucketKey, AcknowledgedRows]
    in_flight: Mapping[BucketKey, int]
    unsent: int
    refusals: tuple[str, ...]
    given_up: int = 0

    @classmethod
    def of(
        cls,
        rows: int,
        tallies: Mapping[BucketKey, AcknowledgedTally],
        queues: Iterable[BucketQueue],
        refusals: tuple[str, ...],
        given_up: int,
    ) -> WriteProgress:
        """Return what became of rows.

        Args:
            rows: How many were given.
            tallies: What was acknowledged.
            queues: Those that hold rows, given up or not: of rows that were sent some may be written.
            refusals: As the attribute.
            given_up: As the attribute.
        """
        acknowledged = {key: AcknowledgedRows(tally.rows, tuple(tally.ranges)) for key, tally in tallies.items()}
        in_flight: dict[BucketKey, int] = {}
        unsent = 0
        for queue in queues:
            in_doubt = queue.rows_in_doubt
            unsent += sum(piece.rows.num_rows for piece in queue.pieces()) - in_doubt
            if in_doubt:
                in_flight[queue.key] = in_flight.get(queue.key, 0) + in_doubt
        return cls(rows, acknowledged, in_flight, unsent, refusals, given_up)

    @property
    def rows_acknowledged(self) -> int:
        """Return how many rows are acknowledged."""
        return sum(each.rows for each in self.acknowledged.values())

    @property
    def is_partial(self) -> bool:
        """Return whether rows are missing, while others are, or may be, written."""
        in_doubt = sum(self.in_flight.values())
        return bool(in_doubt or (self.unsent and self.rows_acknowledged))

    def text(self, what: str, why: str) -> str:
        """Return it in words, with what to do.

        Args:
            what: The write.
            why: Why it ended.
        """
        buckets = ", ".join(
            f"{rows:,} in bucket {bucket}{'' if partition is None else f' of partition {partition!r}'}"
            for (partition, bucket), rows in self.in_flight.items()
        )
        fate = f"{buckets} (whether they were written is not known)" if buckets else "none"
        refused = "".join(f"; {refusal}" for refusal in self.refusals)
        said = (
            f"{what}: {why}: {self.rows_acknowledged:,} of {self.rows:,} rows acknowledged; in flight: {fate}; "
            f"not written: {self.unsent:,}{refused}"
        )
        if self.given_up:
            said += f"; given up before, of calls that failed: {self.given_up:,}"
            if not self.in_flight and not self.unsent:
                return f"{said}. Nothing is left to be sent; the futures of those calls say what became of their rows"
        if not self.in_flight and not self.unsent:
            return f"{said}. All is written: do not write these rows again"
        return (
            f"{said}. Nothing more is sent until you decide. This error's settle() writes the rest, each row once (in a notebook: "
            "import sys; sys.last_value.settle()), abandon() gives it up; to give the same rows again may write them twice"
        )


class SettlingWriter(Protocol):
    """A writer as an unsettled write needs it."""

    def progress(self) -> WriteProgress:
        """Return what became of its rows."""

    def settle(self) -> WriteResult:
        """Send what is not acknowledged again, and wait."""

    def abandon(self) -> None:
        """Give up what is not acknowledged."""


class UnsettledWrite:
    """A write that ended before its rows were acknowledged, with the writer that knows how to go on."""

    def __init__(self, writer: SettlingWriter) -> None:
        self._writer = writer

    @property
    def acknowledged(self) -> Mapping[BucketKey, AcknowledgedRows]:
        """Return rows and offsets by (partition or None, bucket), as they are now."""
        return self._writer.progress().acknowledged

    def settle(self) -> WriteResult:
        """Finish: send what is not acknowledged again, under the numbers by which the servers recognise it."""
        return self._writer.settle()

    def abandon(self) -> None:
        """Give up what is not acknowledged."""
        self._writer.abandon()
