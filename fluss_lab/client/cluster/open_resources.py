"""The writers, scanners and lookups that are open over a connection, and how each is closed with it."""

from __future__ import annotations

from collections.abc import Callable

from fluss_lab.errors import FlussError


class Openings:
    """Writers, scanners and lookupers that were opened and not ended. Safe in any thread."""

    def __init__(self) -> None:
        self._ends: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def began(self, what: object, end: Callable[[], None]) -> None:
        """Take note of something whose threads run from now on.

        Args:
            what: It; `end` keeps it alive.
            end: Ends it.
        """
        self._ends[id(what)] = end

    def ended(self, what: object) -> None:
        """Forget something that was ended."""
        self._ends.pop(id(what), None)

    def end(self) -> None:
        """End everything; what writers hold is sent before.

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
