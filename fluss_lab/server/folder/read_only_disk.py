"""The disk of a lab that cannot be written, in the place of its reserve: every write is refused, whatever room there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from fluss_lab.errors import StorageError
from fluss_lab.model.config.options import DISK_RESERVE
from fluss_lab.server.folder.disk_reserve import DiskReserve

T = TypeVar("T")

#: In the shadow of a lab that cannot be written (see `read_only_shadow`): the lab's folder.
SHADOW_MARK: Final = "shadow-of"


def reserve_of(home: Path, options: Mapping[str, str]) -> DiskReserve:
    """Return the reserve that cluster options ask for where a lab's servers write; in a shadow nothing may be written."""
    if (home / SHADOW_MARK).exists():
        return ReadOnlyDisk(home)
    return DiskReserve(home, DISK_RESERVE.of(options))


class ReadOnlyDisk(DiskReserve):
    """The disk of a lab that is served by way of its shadow: nothing may be written, and there is nothing to lend.

    Args:
        home: The shadow.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home, 0)
        self._lab = os.fsdecode((home / SHADOW_MARK).read_bytes())

    @property
    def is_read_only(self) -> bool:
        """Tell that it is so."""
        return True

    @property
    def is_short(self) -> bool:
        """Tell that there is no room."""
        return True

    def is_short_for(self, place: Path) -> bool:
        """Tell that nothing may be written for the lab, wherever: its metadata could not follow."""
        return True

    def check(self, what: str) -> None:
        """Refuse."""
        raise self._refusal(what)

    def check_writable(self, what: str) -> None:
        """Refuse."""
        raise self._refusal(what)

    def _refusal(self, what: str) -> StorageError:
        return StorageError(
            f"{what}: the lab's folder {self._lab} cannot be written, for instance because its file system is mounted read-only: "
            "it is open for reading; to write, make it writable, close the lab and open it again"
        )

    def prepare(self) -> None:
        """Nothing is kept."""

    def restore(self) -> None:
        """Nothing is kept."""

    def lend(self, action: Callable[[], T]) -> T:
        """Refuse: a drop is a change too."""
        raise self._refusal("nothing was dropped")

    def explained(self, error: BaseException) -> StorageError | None:
        """Return None: it is not for want of room."""
        return None
