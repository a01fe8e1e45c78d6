"""The results of writes, and the futures of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
