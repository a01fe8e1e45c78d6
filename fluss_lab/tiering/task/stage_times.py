"""The seconds of a round by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fluss_lab.tiering.round.round_report import STAGES


class StageWatch:
    """Adds up the seconds of each stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block's seconds towards a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def seconds(self) -> dict[str, float]:
        """Return the seconds of every stage, and in all."""
        stages = {name: self._seconds.get(name, 0.0) for name in STAGES[:-1]}
        return stages | {"total": time.perf_counter() - self._started}
