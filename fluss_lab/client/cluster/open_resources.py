"""The writers, scanners and lookupers that are open over a connection, and end with it."""

from __future__ import annotations

from collections.abc import Callable

from fluss_lab.errors import FlussError


class OpenResources:
    """Writers, scanners and lookupers that were opened and not ended. Safe in any thread."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, what: object, end: Callable[[], None], leave: Callable[[], None] = lambda: None) -> None:
        """Add something whose threads run from now on.

        Args:
            what: It; `end` keeps it alive.
            end: Ends it.
            leave: In a forked child, which has none of its threads: makes it refuse to be used, or begin anew. Takes no lock
                that was there before the fork: whoever held it is not there.
        """
        self._ends[id(what)] = (end, leave)

    def remove(self, what: object) -> None:
        """Remove something that was closed."""
        self._ends.pop(id(what), None)

    def leave(self) -> None:
        """In a forked child: let go of everything, which is the parent's."""
        for _, leave in self._ends.values():
            leave()
        self._ends = {}

    def close(self) -> None:
        """Close everything; what writers hold is sent before.

        Raises:
            FlussError: Rows of a writer were not acknowledged. All are ended all the same.
        """
        failure: FlussError | None = None
        for key, (end, _) in list(self._ends.items()):
            try:
                end()
            except FlussError as error:
                failure = failure or error
            self._ends.pop(key, None)
        if failure is not None:
            raise failure
