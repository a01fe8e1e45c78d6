"""Whether a bucket is closed to writes for a moment: while it is decided whether its partition may be dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_lab.errors import ConflictError, NotLeaderError

if TYPE_CHECKING:
    from fluss_lab.server.tablet.log.log_state import LogState


class Seal:
    """A bucket's seal. All methods are called under the bucket's lock.

    Seals are numbered, because a message may arrive after the one that takes it back.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._opened = -1

    def close(self, number: int) -> None:
        """Close the bucket to writes.

        Raises:
            ConflictError: That seal was taken back already.
        """
        if number <= self._opened:
            raise ConflictError(f"seal {number} was taken back before it came")
        self._number = number

    def open(self, number: int) -> None:
        """Take back a seal and all earlier ones."""
        self._opened = max(self._opened, number)
        if self._number is not None and self._number <= number:
            self._number = None

    def check(self) -> None:
        """Raise `NotLeaderError` if the bucket is closed to writes."""
        if self._number is not None:
            raise NotLeaderError("the bucket is closed to writes, its partition being dropped; retry in a moment")


def seal_at(log: LogState, offset: int, number: int) -> int:
    """Return where a log ends, and close it to writes if that is at an offset: nothing is appended in between.

    Raises:
        FlussError: The log has stopped, so nobody can tell where it ends.
        ConflictError: That seal was taken back already.
    """
    with log.lock:
        if log.stopped is not None:
            raise type(log.stopped)(str(log.stopped))
        if (end := log.end) == offset:
            log.seal.close(number)
        return end


def unseal(log: LogState, number: int) -> None:
    """Open a log to writes again that a seal, or an earlier one, has closed."""
    with log.lock:
        log.seal.open(number)
