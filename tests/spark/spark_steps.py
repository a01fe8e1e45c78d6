"""Steps on a Spark session in a process of its own: it prints a line a step, and the test that started it reads these."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any


class SparkSteps:
    """What is done on one session, in order; each step is a method of a subclass."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run(self, names: Sequence[str]) -> None:
        """Run steps, and end the session whatever becomes of them."""
        try:
            for name in names:
                step: Callable[[], None] = getattr(self, name)
                step()
                print(f"done {name}", flush=True)
        finally:
            self.session.stop()


def check_steps(ended: subprocess.CompletedProcess[str], names: Sequence[str]) -> None:
    """Have a test fail with what a process said that did not run all of its steps."""
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-5000:]}"
    assert ended.stdout.splitlines() == [f"done {name}" for name in names]
