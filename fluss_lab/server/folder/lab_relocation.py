"""The folder that a lab's metadata names as the lab's, and its update after the lab was moved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fluss_lab.errors import LabError, LabMovedError
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger
from fluss_lab.server.folder.folder_lock import lock_out_servers

_FOLDER_KEY: Final = "folder"
#: JSON list: the folders that paths may still name while a relocation is running.
_PLACES_KEY: Final = "folders_before"


def check_place(store: MetadataStore, folder: Path) -> None:
    """Refuse a folder that was moved after its lake was written: the lake's files contain absolute paths.

    Raises:
        LabMovedError: It was moved, or a relocation was interrupted.
    """
    known = store.meta(_FOLDER_KEY)
    is_here = known is not None and Path(known).exists() and folder.samefile(known)
    if is_here and store.meta(_PLACES_KEY) is None:
        return  # perhaps under another name: the paths in the lake are still valid
    if known is not None and LakeLedger(store).tables():
        what = "a relocation was interrupted" if is_here else f"the lab was moved from {known} to {folder}"
        raise LabMovedError(
            f"{what}, and the paths in its lake tables still name another folder: run 'fluss-lab repair {folder} --relocate' to "
            "rewrite them" + ("" if store.meta(_PLACES_KEY) else ", or move it back")
        )
    store.set_meta(_FOLDER_KEY, str(folder))


@contextmanager
def relocation(folder: Path) -> Iterator[tuple[Path, ...]]:
    """Run the block, which rewrites the paths in a lab's lake, then store the lab's new folder.

    After an interruption the lab is refused as before, and the relocation can be repeated, even after another move.

    Args:
        folder: The lab's present folder.

    Yields:
        The folders that paths may name; empty when nothing needs rewriting.

    Raises:
        LabError: The folder is not a lab's.
        LabLockedError: A server runs on it.
        CorruptDataError: Its metadata cannot be read.
    """
    if not (folder / DATABASE_FILE).exists():
        raise LabError(f"{folder}: not a lab's folder: expected its {DATABASE_FILE}")
    with lock_out_servers(folder):
        store = MetadataStore(folder / DATABASE_FILE)
        try:
            places = _places(store, folder)
            if places:
                store.set_meta(_PLACES_KEY, json.dumps([str(each) for each in (*places, folder)]))
            yield places
            with store.write() as db:
                for before in places:
                    _move_snapshots(store, before, folder)
                store.set_meta(_FOLDER_KEY, str(folder))
                db.execute("DELETE FROM meta WHERE key = ?", (_PLACES_KEY,))
        finally:
            store.close()


def _places(store: MetadataStore, folder: Path) -> tuple[Path, ...]:
    known, under_way = store.meta(_FOLDER_KEY), store.meta(_PLACES_KEY)
    with store.parse_guard(f"{_PLACES_KEY} in meta, a JSON list of folders"):
        named = [] if under_way is None else [Path(each) for each in json.loads(under_way)]
    if known is not None:
        named.insert(0, Path(known))
    return tuple(dict.fromkeys(each for each in named if each != folder))


def _move_snapshots(store: MetadataStore, before: Path, folder: Path) -> None:
    """Rewrite the locations of key-value snapshots; servers report new ones only later."""
    with store.write() as db:
        rows = db.execute("SELECT table_id, partition_id, bucket, snapshot_id, completed FROM kv_snapshots").fetchall()
        for *key, text in rows:
            with store.parse_guard(f"a key-value snapshot of table {key[0]}, partition {key[1]}, bucket {key[2]}"):
                value = json.loads(text)
                location = Path(value["snapshot_location"])
            if location.is_relative_to(before) and not location.is_relative_to(folder):
                value["snapshot_location"] = str(folder / location.relative_to(before))
                query = (
                    "UPDATE kv_snapshots SET completed = ? WHERE table_id = ? AND partition_id = ? AND bucket = ? AND "
                    "snapshot_id = ?"
                )
                db.execute(query, (json.dumps(value), *key))
