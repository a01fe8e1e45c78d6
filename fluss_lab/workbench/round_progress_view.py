"""Progress of a tiering round, where a person watches: by bucket in a notebook, one bar on a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any, Final, Self

from fluss_lab.display import html_table
from fluss_lab.tiering.task.round_progress import BucketProgress, RoundState

_COLUMNS: Final = ("partition", "bucket", "", "rows", "of", "MB")
#: Characters of a bucket's bar: an eighth of a split of four is still seen.
_BAR_LENGTH: Final = 20


class RoundProgress:
    """Shows how far a tiering round is: rows and bytes. Nothing is shown outside of notebooks and terminals. Use it as a context manager.

    It is given to a round as its listener; calls may come from any thread. In a notebook it is plain HTML that is replaced
    as the round goes on, and goes when it has ended: no widget, so it looks the same in every front end.

    Args:
        title: What the round is of.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._lock = threading.Lock()
        self._view: _NotebookView | _TerminalView | None = None

    def __enter__(self) -> Self:
        if "ipykernel" in sys.modules:
            self._view = _NotebookView(self._title)
        elif sys.stderr.isatty():
            self._view = _TerminalView(self._title)
        return self

    def __call__(self, state: RoundState) -> None:
        """Take news of the round."""
        with self._lock:
            if self._view is not None:
                self._view.show(state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            view, self._view = self._view, None
        if view is not None:
            view.close()


class _NotebookView:
    """HTML that is replaced."""

    def __init__(self, title: str) -> None:
        from IPython import display

        self._title = title
        self._page: Any = display
        self._handle: Any = None

    def show(self, state: RoundState) -> None:
        shown = self._page.HTML(progress_html(self._title, state))
        if self._handle is None:
            self._handle = self._page.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(self._page.HTML(""))


class _TerminalView:
    """A bar of rows."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def show(self, state: RoundState) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc=self._title, unit=" rows", unit_scale=True, leave=False)
        self._bar.total = max(state.planned, state.rows)
        self._bar.n = state.rows
        self._bar.set_postfix_str(f"{state.stage}, {state.size_bytes / 1e6:,.1f} MB", refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def progress_html(title: str, state: RoundState) -> str:
    """Return a round's state as HTML: what it does, and a bar for each bucket that lags."""
    rate = f", {state.rows / state.seconds:,.0f} rows/s" if state.rows and state.seconds else ""
    heading = f"{title}: {state}, {state.seconds:.1f} s{rate}"
    rows = [
        [each.partition, str(each.bucket), _bar(each), each.rows, each.planned or None, f"{each.size_bytes / 1e6:,.1f}"]
        for each in state.buckets
    ]
    return html_table(heading, _COLUMNS, rows)


def _bar(bucket: BucketProgress) -> str:
    done = bucket.rows * _BAR_LENGTH // bucket.planned if bucket.planned else 0
    done = min(done, _BAR_LENGTH)
    return "█" * done + "░" * (_BAR_LENGTH - done)
