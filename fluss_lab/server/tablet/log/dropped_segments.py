"""Segments that left a log, until their files are gone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fluss_lab import files
from fluss_lab.errors import StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.server.tablet.log import log_start
from fluss_lab.server.tablet.log.segment import Segment


class DroppedSegments:
    """Deletes segments, the oldest first, so that what is left never has a hole. Guarded by who owns it.

    Args:
        folder: The bucket's.
        title: How errors call the bucket.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self._folder, self._title = folder, title
        self._segments: list[Segment] = []

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, segments: Iterable[Segment]) -> None:
        """Take segments that were dropped; they are newer than those dropped before."""
        self._segments += segments

    def delete(self, start: int) -> None:
        """Delete their files, after it was noted that the log begins behind them.

        Args:
            start: The log's first offset.

        Raises:
            StorageError: The disk refused; those that are left are tried again next time.
        """
        try:
            log_start.save(self._folder, start)
        except OSError as error:
            raise StorageError(f"{self._title}: nothing was deleted: {error.strerror or error}") from error
        while self._segments:
            try:
                failpoint("tablet.retention.before_delete")
                self._segments[0].delete()
                files.fsync_folder(self._folder)
            except OSError as error:
                raise StorageError(f"{self._title}: could not delete {self._segments[0].path}: {error}") from error
            del self._segments[0]
