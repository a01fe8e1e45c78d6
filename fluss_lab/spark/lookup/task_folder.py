"""The folder in which a task of a stream's lookup join leaves something for the same task of the next micro-batch.

It lies in the folder that Spark has for the application on each machine (a block manager's, named to workers in
``SPARK_LOCAL_DIRS``), which goes with the application; what a query had goes with the query.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fluss_lab.files import make_folder, try_lock

if TYPE_CHECKING:
    from pyspark import SparkContext

_PLACES: Final = "SPARK_LOCAL_DIRS"
_FOLDER: Final = "fluss_lookup"
#: Tasks of one number at once: two uses of a frame in one query, speculative ones. A next one does without.
_SLOTS_MAX: Final = 16


@contextmanager
def task_folder(run: str, join: str, index: int) -> Iterator[Path | None]:
    """Lock the folder of a task while the block runs. It is of this user only.

    Args:
        run: Of the streaming query, by its id.
        join: Which join of it.
        index: Which task of that.

    Yields:
        The folder, which may have what an earlier task left in it; None: Spark has none, or it cannot be used.
    """
    places = os.environ.get(_PLACES, "")
    if not places:
        yield None
        return
    base = Path(places.split(",")[0]) / _FOLDER / run / join
    lock = -1
    try:
        folder = None
        with suppress(OSError):
            make_folder(base)
            for slot in range(_SLOTS_MAX):
                lock = os.open(base / f"{index}-{slot}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                if try_lock(lock):
                    folder = base / f"{index}-{slot}"
                    make_folder(folder)
                    break
                os.close(lock)
                lock = -1
        yield folder
    finally:
        if lock >= 0:
            os.close(lock)


def remove_folders(context: SparkContext, run: str) -> None:
    """Remove what the tasks of a query left on the driver's machine; elsewhere it goes with the application."""
    # <local folder>/spark-.../pyspark-..., beside which the block manager has its own.
    local = Path(context._temp_dir).parents[1]
    for folder in local.glob(f"*/{_FOLDER}/{run}"):
        shutil.rmtree(folder, ignore_errors=True)
