"""Checks that a lab's metadata fits its folder and its lake, and its update after the lab was moved."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fluss_lab.errors import CorruptDataError, FlussError, LabError, LabMovedError
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.model.schema import Schema
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger
from fluss_lab.server.folder.folder_lock import lock_out_servers
from fluss_lab.server.process.server_process import OPTIONS_FILE

_TABLE: Final = re.compile(r"t(\d{1,18})")
_PARTITION: Final = re.compile(r"p(\d{1,18})")
_SCHEMA: Final = re.compile(r"schema-(\d{1,9})\.json")
#: Files and folders beside the metadata of a lab that was ever started.
_LEFT: Final = (OPTIONS_FILE, "tablet*/data/t*", f"{DATABASE_FILE}-wal")
#: How many folders or tables a message names.
_NAMED_MAX: Final = 3
_FOLDER_KEY: Final = "folder"
#: JSON list: the folders that paths may still name while a relocation is running.
_PLACES_KEY: Final = "folders_before"


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

    Ids of schemas too: rows that were written with the columns of one would be read as those of another.

    Raises:
        LabError: A table's or partition's folder has an id, or a schema, that the metadata does not have: the metadata is older
            than the folder, or another lab's.
        OSError: A folder cannot be listed.
    """
    unknown = sorted(
        {*_unknown_ids(folder, store.peek_id("table"), store.peek_id("partition")), *_unknown_schemas(folder, store)}
    )
    if unknown:
        names = ", ".join(map(str, unknown[:_NAMED_MAX])) + (
            f" and {len(unknown) - _NAMED_MAX} more" if len(unknown) > _NAMED_MAX else ""
        )
        raise LabError(
            f"{folder / DATABASE_FILE}: the metadata is older than this folder, or of another one: it has never assigned the ids, or "
            f"does not have the schemas, of {names}. Restore the {DATABASE_FILE} that belongs to the folder; or, to continue without "
            "their records, move them elsewhere and keep them: they may be the only copy of their rows"
        )


def _unknown_ids(folder: Path, table_next: int, partition_next: int) -> Iterator[Path]:
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


def _unknown_schemas(folder: Path, store: MetadataStore) -> Iterator[Path]:
    """Yield the folders of tables that keep a schema which the metadata has not, or has with other columns.

    A server keeps a schema there when the metadata has committed it; what cannot be read there is taken from the metadata.
    """
    known = _schema_texts(store)
    for table in folder.glob("tablet*/data/t*"):
        match = _TABLE.fullmatch(table.name)
        schemas = None if match is None else known.get(int(match[1]))
        if schemas is None:
            continue  # what a table that was dropped has left
        for path in table.glob("schema-*.json"):
            number = _SCHEMA.fullmatch(path.name)
            if number is not None and not _is_schema(path, schemas.get(int(number[1]))):
                yield table
                break


def _schema_texts(store: MetadataStore) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    with store.read() as db:
        for table_id, schema_id, text in db.execute("SELECT table_id, schema_id, schema FROM schemas"):
            found.setdefault(table_id, {})[schema_id] = text
    return found


def _is_schema(path: Path, text: str | None) -> bool:
    """Return whether a file has a schema of the metadata; also where the file cannot be read."""
    try:
        kept = json.loads(path.read_bytes())
        if text is None:
            Schema.from_json(kept)
            return False
        there = json.loads(text)
        return bool(kept == there) or Schema.from_json(kept) == Schema.from_json(there)
    except (FlussError, OSError, ValueError):
        return True


#: Key of the format in the metadata.
META_KEY: Final = "lake_format"


def check_lake_format(store: MetadataStore, configured: str | None) -> None:
    """Check that a lab with lake tables keeps their format; without lake tables any format is accepted.

    Tables that were tiered in one format cannot be read in another.

    Args:
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
            f"{what}, and the paths in its lake tables still name another folder: run `fluss-lab repair "
            f"{shlex.quote(str(folder))} --relocate` to rewrite them"
            + ("" if store.meta(_PLACES_KEY) else ", or move it back")
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
