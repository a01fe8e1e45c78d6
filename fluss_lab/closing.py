"""Objects that are closed: when their block ends, or with the connection that they are open over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fluss_lab.errors import FlussError


class OpenResources:
    """Writers, scanners and lookupers that were opened and not ended. Safe in any thread."""

    def __init__(self) -> None:
        self._ends: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, what: object, end: Callable[[], None]) -> None:
        """Add something whose threads run from now on.

        Args:
            what: It; `end` keeps it alive.
            end: Ends it.
        """
        self._ends[id(what)] = end

    def remove(self, what: object) -> None:
        """Remove something that was closed."""
        self._ends.pop(id(what), None)

    def close(self) -> None:
        """Close everything; what writers hold is sent before.

        Raises:
            FlussError: Rows of a writer were not acknowledged. All are ended all the same.
        """
        failure: FlussError | None = None
        for key, end in list(self._ends.items()):
            try:
                end()
            except FlussError as error:
                failure = failure or error
            self._ends.pop(key, None)
        if failure is not None:
            raise failure


class Closing(ABC):
    """Something with a `close`, for use in a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
