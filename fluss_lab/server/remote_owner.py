"""Whose ``remote.data.dir`` is: two labs in one would take each other's files for left-overs of their own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import LabError, StorageError

OWNER_FILE: Final = "owner.json"
#: Under which name the coordinator keeps its own id.
META_KEY: Final = "remote_owner"


def claim_remote(remote: Path, known: str | None, remember: Callable[[str], None]) -> None:
    """Make ``remote.data.dir`` a lab's own, or see that it is. The folder is made when absent.

    Args:
        remote: The folder, absolute.
        known: The lab's id; None: it has none yet.
        remember: Keeps the lab's new id, durably, before the folder gets it.

    Raises:
        LabError: The folder is another lab's.
        StorageError: It cannot be made, read or written.
    """
    path = remote / OWNER_FILE
    try:
        files.make_folder(remote)
        found = _read(path)
        if found is not None and found != known:
            raise LabError(
                f"{remote}: this remote.data.dir is another lab's ({path}); give each lab one of its own. If that lab is gone "
                "for good, delete the folder"
            )
        if found is None:
            mine = known or str(uuid.uuid4())
            if known is None:
                remember(mine)
            files.write_json_atomic(path, {"version": 1, "lab": mine})
    except OSError as error:
        raise StorageError(
            f"remote.data.dir {remote} cannot be used: {error}; mount or mend it, or set another one"
        ) from error


def _read(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_bytes())["lab"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path}: not the owner's file of a remote.data.dir: {error!r}") from error
