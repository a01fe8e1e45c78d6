"""Progress of a tiering round and of a write, where a person watches: by bucket in a notebook, one line on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from fluss_lab.client import AppendWriter, UpsertWriter
from fluss_lab.display import Grid, Waiting, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model import TablePath
from fluss_lab.tiering.task.round_progress import BucketProgress, RoundState

_COLUMNS: Final = ("partition", "bucket", "done", "rows", "of", "MB")
#: Characters of a bucket's bar: an eighth of a split of four is still seen.
_BAR_LENGTH: Final = 20


class RoundProgress:
    """Shows how far a tiering round is: rows, bytes, seconds left. It shows nothing outside of notebooks and terminals.

    Use it as a context manager. It is given to a round as its listener; calls may come from any thread. What it shows goes
    when the round has ended: see `fluss_lab.display.Waiting`.

    Args:
        title: What the round is of.
        listener: Called with what it is called with.
    """

    def __init__(self, title: str, listener: Callable[[RoundState], None] | None = None) -> None:
        self._title = title
        self._listener = listener
        self._state: RoundState | None = None
        self._waiting = Waiting(f"tiering {title}", render=self._texts)

    def __enter__(self) -> Self:
        self._waiting.__enter__()
        return self

    def __call__(self, state: RoundState) -> None:
        """Take news of the round."""
        self._state = state
        if self._listener is not None:
            self._listener(state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.__exit__(kind, error, trace)

    def _texts(self) -> tuple[str, str] | None:
        state = self._state
        if state is None or not state.buckets:
            return None
        return progress_line(self._title, state), progress_html(self._title, state)


def write_waiting(path: TablePath, writer: AppendWriter | UpsertWriter) -> Waiting:
    """Return what shows how many of a writer's rows are acknowledged, while its block runs."""

    def count() -> tuple[int, int]:
        progress = writer.progress()
        return progress.rows_acknowledged, progress.rows

    return Waiting(f"writing to {path}", count=count)


def progress_line(title: str, state: RoundState) -> str:
    """Return a round's state as a line: stage, rows, bytes, seconds, and about how many are left."""
    rate = f", {state.rows / state.seconds:,.0f} rows/s" if state.rows and state.seconds else ""
    left = state.planned - state.rows
    guess = f", about {state.seconds * left / state.rows:.0f} s left" if state.rows and left > 0 else ""
    return f"{title}: {state}, {state.seconds:.1f} s{rate}{guess}"


def progress_html(title: str, state: RoundState) -> str:
    """Return a round's state as a card: what it does, and a bar for each bucket that lags, those with most to do first."""
    ordered = sorted(state.buckets, key=lambda each: each.rows - each.planned)
    rows = [
        [each.partition, each.bucket, _bar(each), each.rows, each.planned or None, f"{each.size_bytes / 1e6:,.1f}"]
        for each in ordered[:CARD_ROWS_MAX]
    ]
    return card(
        "Round",
        progress_line(title, state),
        grid=Grid(_COLUMNS, rows, right=("MB",)) if rows else None,
        total=len(state.buckets),
        noun="bucket",
    )


def _bar(bucket: BucketProgress) -> str:
    done = bucket.rows * _BAR_LENGTH // bucket.planned if bucket.planned else 0
    done = min(done, _BAR_LENGTH)
    return "█" * done + "░" * (_BAR_LENGTH - done)
