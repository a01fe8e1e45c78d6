"""The seal that closes a bucket to writes while it is decided whether its partition may be dropped."""

from __future__ import annotations

from fluss_lab.errors import ConflictError, NotLeaderError


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
