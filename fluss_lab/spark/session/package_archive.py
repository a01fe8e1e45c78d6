"""fluss_lab as one file, for executors that do not share this process's packages.

Executors get it among ``spark.files``, which lands in their working folder, and ``PYTHONPATH`` names it there: so the
daemon of their Python workers can be ours from its first line on, and a fluss_lab of another release that is installed
on an executor comes second. What fluss_lab itself needs (pyarrow, pyiceberg, grpcio, ...) must be in the executors'
Python: those are compiled for machine and version, and belong to an environment, not to a session.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from fluss_lab.files import write_atomic

DISTRIBUTION: Final = "fluss-lab"
#: What an executor's Python looks for to find lake formats, and to tell the release.
_METADATA: Final = ("METADATA", "entry_points.txt")
#: The earliest time that a zip can hold: files of the same content make the same bytes.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def release() -> str:
    """Return the installed release, as ``0.1.0``; ``0`` for a checkout that was never installed."""
    try:
        return distribution(DISTRIBUTION).version
    except PackageNotFoundError:
        return "0"


def write_package(folder: Path) -> Path:
    """Write this fluss_lab as a zip into a folder and return its path.

    The name holds release and content, so that executors never take one for another. One that is there is left alone.

    Cost: some 20 ms; about 0.6 MB.
    """
    entries = sorted(_entries())
    digest = hashlib.sha256()
    for name, data in entries:
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    target = folder / f"fluss_lab-{release()}-{digest.hexdigest()[:12]}.zip"
    if not target.exists():
        write_atomic(target, _zipped(entries), durable=False)
    return target


def _zipped(entries: list[tuple[str, bytes]]) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _entries() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package and what tells others about it, by their names in the archive."""
    root = Path(__file__).parents[2]
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root.parent).as_posix(), path.read_bytes()
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return
    for name in _METADATA:
        if (text := installed.read_text(name)) is not None:
            yield f"fluss_lab-{installed.version}.dist-info/{name}", text.encode()
