"""The private folders of this user's cache: for programs and archives that Spark's start runs or maps."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def private_caches(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders that may be a cache, best first; none is made, and see `check_private`."""
    if cache := env.get("XDG_CACHE_HOME"):
        yield Path(cache) / "fluss_lab"
    if home := env.get("HOME"):
        yield Path(home) / ".cache" / "fluss_lab"
    yield Path(tempfile.gettempdir()) / f"fluss_lab-{os.getuid()}"


def check_private(path: Path) -> None:
    """Raise PermissionError when another user could have put something there for us to run."""
    status = path.lstat()
    if status.st_uid != os.getuid() or path.is_symlink() or status.st_mode & 0o022:
        raise PermissionError(f"{path} belongs to or can be written by others")
