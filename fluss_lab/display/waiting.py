"""The progress of what takes its time, where a person watches; nothing of it is left behind."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from html import escape
from types import TracebackType
from typing import Final, Protocol, Self

from fluss_lab.display.marks import EMPTY, LAKE
from fluss_lab.display.shown_text import short
from fluss_lab.interrupts import Held

#: What is over before is not worth a line that comes and goes.
_DELAY_S: Final = 0.5
_INTERVAL_S: Final = 0.25
#: A guess at what is left needs some of it done.
_GUESS_AFTER_S: Final = 1.0
#: Whether what goes on is shown by other means.
_SHOWN_ELSEWHERE: Final = ContextVar("fluss_lab_shown_elsewhere", default=False)


class View(Protocol):
    """Where progress is shown."""

    def show(self, line: str, html: str) -> None:
        """Show it in place of what was shown before."""

    def close(self) -> None:
        """Take it away."""


class Waiting:
    """Shows what goes on while its block runs: from half a second on, four times a second, and no more once it has ended.

    In a notebook that a person has open it is HTML that is replaced and at last emptied, so that the stored output shows
    nothing of it; on a terminal a line that is erased. In a notebook run as a job, and everywhere else, nothing is shown.
    Calls may come from any thread.

    Args:
        what: What goes on, as ``reading nyc.flights``.
        planned: How many rows it will be; 0 when that is not known.
        render: Returns a line of its own, and HTML, in place of the rows counted here.
        count: Returns how many rows are done, and how many it will be, in place of those counted here.
    """

    def __init__(
        self,
        what: str,
        planned: int = 0,
        *,
        render: Callable[[], tuple[str, str] | None] | None = None,
        count: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._what = what
        self._planned = planned
        self._render = render
        self._count = count
        self._rows = self._size_bytes = 0
        self._began_s = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._view: View | None = None

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        self._view = make_view()
        if self._view is not None:
            # The context says which cell's output it is.
            self._thread = threading.Thread(
                target=copy_context().run, args=(self._watch, self._view), name="fluss-lab-progress", daemon=True
            )
            with Held():
                self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, view = self._thread, self._view
        if thread is None or view is None:
            return
        with Held():
            self._ended.set()
            thread.join(5.0)
            with suppress(Exception):  # a front end that is gone
                view.close()

    def plan(self, rows: int) -> None:
        """Say how many rows it will be, once that is known; 0: it is not."""
        self._planned = rows

    def add(self, rows: int, size_bytes: int = 0) -> None:
        """Count rows that are done."""
        self._rows += rows
        self._size_bytes += size_bytes

    def line(self) -> str:
        """Return how far it is, in words: rows, bytes, seconds, and about how many are left."""
        seconds = time.monotonic() - self._began_s
        parts = []
        if self._rows:
            planned = f" of {self._planned:,}" if self._planned else ""
            parts.append(f"{self._rows:,}{planned} rows")
        if self._size_bytes:
            parts.append(f"{self._size_bytes / 1e6:,.1f} MB")
        parts.append(f"{seconds:.0f} s")
        if self._rows and seconds > _GUESS_AFTER_S and self._planned > self._rows:
            parts.append(f"about {seconds * (self._planned - self._rows) / self._rows:.0f} s left")
        return f"{self._what}{'' if self._what.endswith('…') else ':'} {', '.join(parts)}"

    def _watch(self, view: View) -> None:
        interval_s = _DELAY_S
        while not self._ended.wait(interval_s):
            interval_s = _INTERVAL_S
            with suppress(Exception):  # what is shown must not fail what is done
                found = (self._render() if self._render is not None else None) or self._own()
                view.show(*found)

    def _own(self) -> tuple[str, str]:
        if self._count is not None:
            self._rows, self._planned = self._count()
        line = self.line()
        share = min(1.0, self._rows / self._planned) if self._planned else 0.0
        return line, progress_html(line, share)


def progress_html(line: str, share: float = 0.0) -> str:
    """Return a line of progress as HTML, with a bar where a share of it is known to be done."""
    bar = (
        f'<div style="height:4px;max-width:320px;background:{EMPTY};font-size:0">'
        f'<div style="height:4px;width:{share * 100:.1f}%;background:{LAKE}"></div></div>'
        if share
        else ""
    )
    return (
        '<div style="font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:12px;line-height:20px;'
        f'font-variant-numeric:tabular-nums">{escape(short(line, 200))}{bar}</div>'
    )


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """Have nothing shown of what the block's own thread does: whoever began it shows it, or no cell did."""
    token = _SHOWN_ELSEWHERE.set(True)
    try:
        yield
    finally:
        _SHOWN_ELSEWHERE.reset(token)


def make_view() -> View | None:
    """Return where progress is shown; None where nobody watches."""
    if _SHOWN_ELSEWHERE.get():
        return None
    if "ipykernel" in sys.modules:
        return NotebookView() if _is_live() else None
    with suppress(Exception):  # a stream that is closed, or none
        if sys.stderr.isatty():
            return TerminalView()
    return None


def is_interactive() -> bool:
    """Return whether a person types here: in a notebook that is open, or at a prompt of Python; in jobs and scripts nobody does."""
    return _is_live() if "ipykernel" in sys.modules else hasattr(sys, "ps1")


def _is_live() -> bool:
    """Return whether a person has the notebook open: who runs it as a job (papermill, nbclient) takes no input."""
    from IPython import get_ipython

    return bool(getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", False))


class NotebookView:
    """HTML in a cell's output."""

    def __init__(self) -> None:
        from IPython.display import publish_display_data

        self._publish: Callable[..., None] = publish_display_data
        self._transient: dict[str, str] = {}

    def show(self, line: str, html: str) -> None:
        """Show it in place of what was shown before."""
        is_new = not self._transient
        if is_new:
            self._transient = {"display_id": f"fluss-lab-{id(self):x}-{time.monotonic_ns():x}"}
        self._publish({"text/html": html, "text/plain": line}, transient=self._transient, update=not is_new)

    def close(self) -> None:
        """Take it away: what is stored has no content, and takes no place."""
        if self._transient:
            self._publish({}, transient=self._transient, update=True)


class TerminalView:
    """A line of standard error."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, line: str, html: str) -> None:
        """Show it in place of what was shown before."""
        del html
        import shutil

        columns = shutil.get_terminal_size().columns
        self._is_shown = True
        sys.stderr.write(f"\r\x1b[2K{short(line, max(20, columns - 1))}")
        sys.stderr.flush()

    def close(self) -> None:
        """Take it away."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
