"""The folders of a bucket below ``remote.data.dir``: log segments, key-value snapshots.

``<remote.data.dir>/<kind>/<database>/<table>-<table id>/[<partition>-p<partition id>/]<bucket>/``. Names are there for
people; ids make the place unique, and are enough to find it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab.model.config.options import REMOTE_DATA_DIR
from fluss_lab.model.names import TableBucket, TablePath

#: Kinds of files.
KV: Final = "kv"
LOG: Final = "log"
#: Characters of a partition's name that may stand in a folder's name on every file system; others become ``_``.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._=+-]")
#: A folder's name may have 255 bytes.
_PARTITION_CHARACTERS_MAX: Final = 100


def remote_root(options: Mapping[str, str], folder: Path) -> Path:
    """Return ``remote.data.dir``; of a server that was not given one, ``remote`` in its own folder."""
    given = REMOTE_DATA_DIR.of(options)
    return Path(given) if given else folder / "remote"


def bucket_folder(remote: Path, kind: str, path: TablePath, partition: str | None, bucket: TableBucket) -> Path:
    """Return the folder of a bucket's files of one kind. It need not exist.

    Args:
        remote: ``remote.data.dir``.
        kind: `KV` or `LOG`.
        path: The bucket's table.
        partition: Name of its partition; None without partitions.
        bucket: Its ids.
    """
    folder = remote / kind / path.database / f"{path.table}-{bucket.table_id}"
    if bucket.partition_id is not None:
        shown = _UNFIT.sub("_", partition or "")[:_PARTITION_CHARACTERS_MAX]
        folder /= f"{shown}-p{bucket.partition_id}"
    return folder / str(bucket.bucket)


def remove_bucket_folders(remote: Path, kind: str, bucket: TableBucket) -> None:
    """Remove a bucket's files of one kind, whatever its table was called, and the folders that are empty then.

    Doing it again does nothing.

    Raises:
        OSError: The file system refused; some files may be left.
    """
    pattern = f"*/*-{bucket.table_id}/"
    if bucket.partition_id is not None:
        pattern += f"*-p{bucket.partition_id}/"
    root = remote / kind
    for folder in list(root.glob(f"{pattern}{bucket.bucket}")):
        shutil.rmtree(folder)
        for parent in folder.parents:
            if parent == root:
                break
            with suppress(OSError):  # others are still in it
                parent.rmdir()
