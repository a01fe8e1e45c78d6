"""Progress of long work, where a person watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class RoundProgress:
    """Shows how many tasks of a tiering round are done: a bar in a notebook or on a terminal, nothing elsewhere."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take news: tasks done of a stage's total."""
        if self._bar is None:
            if not _watched():
                return
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=self._title, unit="task", leave=False)
        self._bar.total = total
        self._bar.n = done
        self._bar.set_postfix_str(stage, refresh=False)
        self._bar.refresh()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _watched() -> bool:
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr.isatty()
