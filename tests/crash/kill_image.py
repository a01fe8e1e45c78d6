"""The image of a running lab's folder: what its process would leave if it were killed now."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE


def copy_as_killed(lab: Path, image: Path, *, without: Collection[str] = ()) -> None:
    """Copy a lab's folder while its server runs.

    The metadata's write-ahead log is merged into its file every second, and emptied: of two copies, one made before and one
    after, both would lack what was committed last. A reader between them keeps it from being emptied.

    Args:
        lab: The lab's folder.
        image: The copy; it must not exist.
        without: What is left out, of what lies in the folder itself.
    """
    place = f"file:{quote(str(lab / DATABASE_FILE))}?mode=ro"
    with closing(sqlite3.connect(place, uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        shutil.copytree(lab, image, symlinks=True, ignore=lambda folder, _: without if Path(folder) == lab else ())
