"""Disks of a test's own, small enough to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own; skips where nobody may mount one."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except OSError as error:
        pytest.skip(f"no disk can be mounted: {error}")
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=30)


def fill(place: Path) -> Path:
    """Fill a disk to the last page."""
    path = place / "ballast"
    with path.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2
    return path


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder that this user cannot write: mounted so for root, who may write whatever its mode, and by its mode for others."""
    if os.geteuid():
        paths = [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]
        modes = {path: path.stat().st_mode for path in paths}
        for path in reversed(paths):
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            yield folder
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    if not _mounted("--bind", str(folder), str(folder)):
        pytest.skip("nothing can be mounted read-only")
    try:
        assert _mounted("-o", "remount,bind,ro", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def _mounted(*words: str) -> bool:
    try:
        return subprocess.run(["mount", *words], capture_output=True, timeout=30).returncode == 0
    except OSError:
        return False
