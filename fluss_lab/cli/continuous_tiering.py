"""``fluss-lab tier --continuous``: a tiering service in the foreground, a line for each round, a clean end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from fluss_lab.tiering.service.tiering_service import RoundOutcome
    from fluss_lab.workbench import Lab

#: Tables tiered at the same time, by default.
TABLES_MAX: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def tier_on(lab: Lab, max_tables: int, seconds: float | None) -> None:
    """Tier by freshness until a signal comes, or for so many seconds; then say how everything stands.

    The first signal lets rounds under way end (half a minute at most), the second cancels them.
    """
    ended, signalled = threading.Event(), threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        ended.set()

    service = lab.tiering_service(max_tables=max_tables, on_round=_say)
    # After Spark was started: it takes SIGINT for itself.
    with _on_signals(on_signal):
        service.start()
        click.echo("tiering by freshness; Ctrl-C ends it after the rounds under way, a second one at once", err=True)
        try:
            ended.wait(seconds)
            click.echo("stopping", err=True)
            status = service.status()
            service.stop()
        except KeyboardInterrupt:
            click.echo("cancelling", err=True)
            service.stop(0.0)
            status = service.status()
    click.echo(repr(replace(status, running=False)), err=True)


def _say(outcome: RoundOutcome) -> None:
    from fluss_lab.clock import SystemClock
    from fluss_lab.model.times import format_moment

    click.echo(f"{format_moment(SystemClock().now_ms())} {outcome}")


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
