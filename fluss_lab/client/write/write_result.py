"""The results of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fluss_lab.display import html_table
from fluss_lab.errors import FlussError
from fluss_lab.interrupts import Flag, Held


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
    offsets: Mapping[tuple[str | None, int], tuple[tuple[int, int], ...]]
    seconds: float

    def __repr__(self) -> str:
        return f"<WriteResult {self.rows:,} rows in {len(self.offsets)} buckets, {self.seconds:.3f} s>"

    def _repr_html_(self) -> str:
        rows = [
            (
                partition,
                bucket,
                ", ".join(f"[{base:,}, {end:,})" for base, end in ranges),
                sum(e - b for b, e in ranges),
            )
            for (partition, bucket), ranges in self.offsets.items()
        ]
        return html_table(
            f"{self.rows:,} rows in {self.seconds:.3f} s", ("partition", "bucket", "offsets", "records"), rows
        )


class WriteFuture(Future[WriteResult]):
    """The future of one call of a writer: ``result()`` waits for its acknowledgement, and raises what it failed with.

    It cannot be cancelled: its rows may be on their way.

    Attributes:
        looked_at: Whether somebody asked for its result; an error that nobody looked at is raised by the next flush.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = False

    def cancel(self) -> bool:
        """Return False."""
        return False

    def result(self, timeout: float | None = None) -> WriteResult:
        """Wait for the acknowledgement.

        Raises:
            ServerUnavailableError: No server acknowledged in time; whether rows were written is not known.
            FlussError: The server refused the rows.
            TimeoutError: `timeout` seconds went by; the writing goes on.
        """
        with self._waited(timeout):
            return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what the call failed with, or None."""
        with self._waited(timeout):
            return super().exception(0)

    # What the standard library's futures do under their lock, an interrupt must not break.

    def done(self) -> bool:
        """Tell whether it is settled."""
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
