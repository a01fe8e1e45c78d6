"""Checks that a lab's metadata fits its folder and its lake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fluss_lab.errors import CorruptDataError, LabError
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger
from fluss_lab.server.process.server_process import OPTIONS_FILE

_TABLE: Final = re.compile(r"t(\d{1,18})")
_PARTITION: Final = re.compile(r"p(\d{1,18})")
#: Files and folders beside the metadata of a lab that was ever started.
_LEFT: Final = (OPTIONS_FILE, "tablet*/data/t*", f"{DATABASE_FILE}-wal")
#: How many folders or tables a message names.
_NAMED_MAX: Final = 3


def check_metadata_is_there(folder: Path) -> None:
    """Check that a folder in which a lab ran still has its metadata: else it would become a new lab.

    Raises:
        CorruptDataError: The metadata is missing.
        OSError: A folder cannot be listed.
    """
    if (folder / DATABASE_FILE).exists():
        return
    left = next((path for pattern in _LEFT for path in folder.glob(pattern)), None)
    if left is not None:
        raise CorruptDataError(
            f"{folder / DATABASE_FILE}: the file is missing, but {left} shows that a lab ran here, and only the file has its "
            f"tables. "
            f"Restore the {DATABASE_FILE} that belongs to the folder; or make a new lab in another folder, and keep this one: it "
            "may hold the only copy of rows"
        )


def check_folder_ids(store: MetadataStore, folder: Path) -> None:
    """Check that the metadata has assigned every id that a folder of the lab has: else it would assign it again.

    Raises:
        LabError: A table's or partition's folder has an id that the metadata has not assigned: the metadata is older than
            the folder, or another lab's.
        OSError: A folder cannot be listed.
    """
    unknown = sorted(_unknown(folder, store.peek_id("table"), store.peek_id("partition")))
    if unknown:
        names = ", ".join(map(str, unknown[:_NAMED_MAX])) + (
            f" and {len(unknown) - _NAMED_MAX} more" if len(unknown) > _NAMED_MAX else ""
        )
        raise LabError(
            f"{folder / DATABASE_FILE}: the metadata is older than this folder, or of another one: it has never assigned the ids of "
            f"{names}. Restore the {DATABASE_FILE} that belongs to the folder; or, to continue without their records, move them "
            "elsewhere and keep them: they may be the only copy of their rows"
        )


def _unknown(folder: Path, table_next: int, partition_next: int) -> Iterator[Path]:
    for table in folder.glob("tablet*/data/t*"):
        if (match := _TABLE.fullmatch(table.name)) is None or not any(table.glob("**/b*/*")):
            continue
        if int(match[1]) >= table_next:
            yield table
            continue
        for partition in table.glob("p*"):
            found = _PARTITION.fullmatch(partition.name)
            if found is not None and int(found[1]) >= partition_next:
                yield partition


#: Key of the format in the metadata.
META_KEY: Final = "lake_format"


def check_lake_format(store: MetadataStore, configured: str | None) -> None:
    """Check that a lab with lake tables keeps their format; without lake tables any format is accepted.

    Tables that were tiered in one format cannot be read in another.

    Args:
        store: The metadata.
        configured: The configured format; None: the server has no lake, and tiers nothing.

    Raises:
        LabError: The lab has lake tables of another format.
    """
    kept = store.meta(META_KEY)
    tables = LakeLedger(store).tables()
    if tables and kept is not None and configured not in {None, kept}:
        names = ", ".join(str(each.path) for each in tables[:_NAMED_MAX]) + (
            ", ..." if len(tables) > _NAMED_MAX else ""
        )
        raise LabError(
            f"the lab has {len(tables)} lake tables ({names}) in format {kept!r}: expected {FORMAT_KEY}={kept}, found "
            f"{configured}; tiered rows could not be read. Set the option back, or drop these tables first"
        )
    if configured is not None and kept != configured:
        store.set_meta(META_KEY, configured)
