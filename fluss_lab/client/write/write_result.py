"""The results of writes: futures, acknowledged rows, and the interrupted write, to be settled or abandoned."""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.interrupts import Flag, Held
from fluss_lab.model.names import BucketKey


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Where rows went.

    Attributes:
        rows: How many were given.
        offsets: By (partition name or None, bucket): the offset ranges ``[base, end)`` of the log, ascending. Of an
            append: those that its rows got. Of an upsert or delete: where its changes lie in the changelog; calls that
            travelled together have the range together, and it is empty when nothing changed.
        seconds: From the call to the last acknowledgement.
    """

    rows: int
    offsets: Mapping[BucketKey, tuple[tuple[int, int], ...]]
    seconds: float

    def __repr__(self) -> str:
        return f"<WriteResult {self.rows:,} rows in {len(self.offsets)} buckets, {self.seconds:.3f} s>"

    def _repr_html_(self) -> str:
        rows = [
            (partition, bucket, _ranges_text(ranges), sum(e - b for b, e in ranges))
            for (partition, bucket), ranges in list(self.offsets.items())[:CARD_ROWS_MAX]
        ]
        rate = f"{self.seconds:.3f} s" + (f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds else "")
        return card(
            "WriteResult",
            f"{self.rows:,} rows acknowledged",
            [("buckets", len(self.offsets)), ("took", rate)],
            grid=Grid(("partition", "bucket", "offsets", "records"), rows),
            total=len(self.offsets),
            noun="bucket",
            calls=[".offsets"] if len(self.offsets) > CARD_ROWS_MAX else [],
        )


def _ranges_text(ranges: Sequence[tuple[int, int]]) -> str:
    more = f" and {len(ranges) - 2:,} more" if len(ranges) > 2 else ""
    return ", ".join(f"[{base:,}, {end:,})" for base, end in ranges[:2]) + more


class WriteFuture(Future[WriteResult]):
    """The future of one call of a writer: ``result()`` waits for its acknowledgement, and raises what it failed with.

    It cannot be cancelled: its rows may be on their way.

    Attributes:
        looked_at: Whether its result was read; an error that was not read is raised by the next flush.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = False
        self._pid = os.getpid()

    def cancel(self) -> bool:
        """Return False."""
        return False

    def result(self, timeout: float | None = None) -> WriteResult:
        """Wait for the acknowledgement.

        Raises:
            ServerUnavailableError: No server acknowledged in time; whether rows were written is not known.
            FlussError: The server refused the rows.
            TimeoutError: `timeout` seconds went by; the writing goes on.
            InvalidRequestError: In a process that was forked off meanwhile, where nobody settles it.
        """
        with self._waited(timeout):
            return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what the call failed with, or None."""
        with self._waited(timeout):
            return super().exception(0)

    # What the standard library's futures do under their lock, an interrupt must not break.

    def done(self) -> bool:
        """Return whether it is settled."""
        with Held():
            return super().done()

    def add_done_callback(self, fn: Callable[[Future[WriteResult]], Any]) -> None:
        """Call something when it is settled, at once if it is already."""
        with Held():
            super().add_done_callback(fn)

    @contextmanager
    def _waited(self, timeout: float | None) -> Iterator[None]:
        with Held():
            if not self.done():
                if os.getpid() != self._pid:
                    raise InvalidRequestError(
                        "this write is of the process that this one was forked off from, and is settled there; wait for it there"
                    )
                settled = Flag()
                super().add_done_callback(lambda _: settled.set())
                settled.wait(timeout)
            try:
                yield
            finally:
                self.looked_at = self.looked_at or self.done()

    @property
    def error(self) -> FlussError | None:
        """Return what it failed with, if it did yet, without counting as a look."""
        found = super().exception(0) if self.done() else None
        return found if isinstance(found, FlussError) else None

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self.done():
            return f"<{name} pending>"
        return f"<{name} {self.error or super().result()!r}>"


class AppendResult(WriteFuture):
    """The future of one append."""


class UpsertResult(WriteFuture):
    """The future of one upsert or delete."""


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
