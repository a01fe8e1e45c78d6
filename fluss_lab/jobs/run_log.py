"""The log of a run: a file that says itself where lines are missing."""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from fluss_lab.display import plural
from fluss_lab.model.times import format_size

#: A cell that prints for ever fills no disk.
LOG_BYTES_MAX: Final = 32 << 20


class RunLog:
    """The log of a run that begins. A disk that does not take a line ends no run; the next line that it takes says so.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = create_file(path)
        self._size = 0
        self._missing = 0
        self._reason = ""

    @property
    def lack(self) -> str | None:
        """Return which lines it lacks without a word of it in the file; None: none."""
        return f"its log lacks the last {plural(self._missing, 'line')}: {self._reason}" if self._missing else None

    def write(self, line: str) -> None:
        """Write a line, where there is room for it; after `close`, nothing."""
        room = LOG_BYTES_MAX - self._size
        if room <= 0:
            return
        text = f"{line[:room]}\n"
        if self._missing:
            text = f"\n... {plural(self._missing, 'line')} not written here, or in part: {self._reason}\n{text}"
        if len(line) >= room:
            text += f"... the log ends here: more than {format_size(LOG_BYTES_MAX)}\n"
        try:
            self._write(text.encode())
            self._missing = 0
        except OSError as error:
            self._missing, self._reason = self._missing + 1, error.strerror or str(error)

    def _write(self, data: bytes) -> None:
        with suppress(ValueError):  # closed: a process that the run left wrote still
            while data:
                written = self._file.write(data)
                self._size += written
                data = data[written:]

    def close(self) -> None:
        """Close the file. Twice is fine."""
        with suppress(OSError):
            self._file.close()


def create_file(path: Path) -> FileIO:
    """Create a file, which must not be there, for its owner only."""
    return FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
