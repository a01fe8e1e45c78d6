"""A small file that one writer replaces, and only as long as no other has: by it a second server on one folder is noticed.

The lab's folder is locked, so two servers on one remote folder run on copies of one lab's folder, or one was suspended while
another took its place. In an object store the one that was there first finds its file replaced, and stops before it
replaces or removes what the other has written. In a file system nothing is compared: see `FileStore.put`.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from fluss_lab.storage.file_store import ABSENT, Place, Version
from fluss_lab.storage.store_location import store_of

HOLDER_FILE: Final = "holder"


class GuardedFile:
    """One file. For one thread at a time.

    Args:
        place: Where it is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._store = store_of(place)
        self._version = ABSENT
        #: What was put without an answer since: it may be there, or come.
        self._unanswered: list[bytes] = []

    def load(self) -> bytes | None:
        """Return the content, which may be replaced from now on; None where there is no file.

        Raises:
            OSError: It cannot be read.
        """
        try:
            data, self._version = self._store.load(self.place)
        except FileNotFoundError:
            self._version = ABSENT
            return None
        return data

    def save(self, data: bytes) -> None:
        """Replace the content, durably.

        Raises:
            FileExistsError: It is not as it was loaded or saved here last: another writer was there. It stands.
            OSError: The store refused; the old one stands, or it is not known, and saving again settles it.
        """
        try:
            self._version = self._put(data)
        except FileExistsError:
            raise
        except OSError:
            self._unanswered.append(data)
            raise
        self._unanswered.clear()

    def _put(self, data: bytes) -> Version:
        try:
            return self._store.put(self.place, data, self._version)
        except FileExistsError:
            found, version = self._store.load(self.place)
            if found not in self._unanswered:
                raise
            return self._store.put(self.place, data, version)


class Hold:
    """The hold of one server on a folder in an object store; the last one that took it has it. Local folders need none.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Place) -> None:
        self._file = None if isinstance(folder, Path) else GuardedFile(folder / HOLDER_FILE)

    def take(self) -> None:
        """Take the hold, before what is in the folder is looked at.

        Raises:
            OSError: The store does not answer; or another took it at the same moment.

        Cost: two requests.
        """
        if self._file is not None:
            self._file.load()
            self.keep()

    def keep(self) -> None:
        """See that no other has taken the hold since, and that what others began before cannot be completed.

        Raises:
            FileExistsError: Another has it: nothing in the folder may be written or removed from here.
            OSError: The store does not answer.

        Cost: one request.
        """
        if self._file is not None:
            self._file.save(uuid.uuid4().hex.encode())
