"""A warehouse folder that was moved: the absolute paths in its files rewritten to the new place.

Iceberg's files name each other by absolute paths: the catalog the metadata, metadata the lists of manifests, these the
manifests, manifests data and delete files with their sizes, and position deletes in every row the data file. Files are
rewritten in place, from the leaves to the catalog, each replaced at once and durably; one that has only new paths is left
as it is. So a run that was cut off is finished by the next. Nobody may use the tables meanwhile.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, StorageError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.files.file_seals import (
    JSON_KEY,
    PARQUET_KEY,
    check_json,
    check_parquet,
    open_seal,
    seal_json,
    seal_parquet,
)
from fluss_lab.lake.iceberg.files.parquet_input import open_parquet, parquet_errors
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.lake.iceberg.write.delete_schema import NO_PATH, PATH_COLUMN, PATH_ID

#: Passed after each file that was replaced, and around the catalog; a run that ends at one is finished by the next.
FAILPOINTS: Final = ("lake.relocate.file", "lake.relocate.catalog.before", "lake.relocate.catalog.after")
_POSITION_DELETES: Final = 1
_LIST_RECORD: Final = "manifest_file"
#: What `tempfile` makes of a file's name.
_DRAFT: Final = re.compile(r"\.(.+)\.[a-z0-9_]{8}")
#: Ways in which files of a folder are named.
_FORMS: Final = ("file://{}/", "file:{}/", "{}/")


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that paths may still name, and the one that they shall.

    Attributes:
        before: Absolute paths of the warehouse from before it was moved, perhaps several times.
        now: Its absolute path now; not one of them.
    """

    before: tuple[Path, ...]
    now: Path

    def move(self, name: str) -> str:
        """Return a path or URI, as it is from now on; one of elsewhere stays."""
        if any(name.startswith(form.format(self.now)) for form in _FORMS):
            return name
        for before in self.before:
            for form in _FORMS:
                if name.startswith(prefix := form.format(before)):
                    return form.format(self.now) + name.removeprefix(prefix)
        return name

    def local(self, name: str) -> Path | None:
        """Return a path or URI as a local path; None for one that is elsewhere."""
        for scheme in ("file://", "file:", ""):
            if name.startswith(f"{scheme}/") and not name.startswith("//"):
                return Path(name.removeprefix(scheme))
        return None


@dataclass(slots=True)
class Relocated:
    """How many files were rewritten, by kind, and tables in the catalog."""

    deletes: int = 0
    manifests: int = 0
    lists: int = 0
    metadata: int = 0
    tables: int = 0


def relocate_warehouse(folder: Path, catalog: Path, places: Places) -> Relocated:
    """Rewrite all paths of a warehouse that was moved, and of its catalog.

    Args:
        folder: The warehouse's, where it is now.
        catalog: The SQLite file of its catalog.
        places: From where to where the folder that both are in was moved.

    Returns:
        What was rewritten; what a run before this one did is not counted.

    Raises:
        CorruptDataError: A file is not what its name says; or there are tables, and no catalog: one that is brought back later
            would name the old places.
        UnsupportedError: A delete file that is not Parquet.
        OSError: A file cannot be read or written.

    Cost: every manifest is read, and every position-delete file written again.
    """
    done = Relocated()
    _remove_drafts(folder)
    if not catalog.exists() and any(folder.rglob("*.metadata.json")):
        raise CorruptDataError(
            f"{catalog}: the catalog's file is missing, and only it says which tables the files in {folder} are of: restore it from a "
            "copy, as it was when the lab was moved, and relocate then"
        )
    avro = sorted(folder.rglob("*.avro"))
    manifests = [path for path in avro if not _is_list(path)]
    for path in manifests:
        done.deletes += _relocate_deletes(path, places)
    for path in manifests:
        done.manifests += _rewritten(path, lambda parsed: _change_manifest(parsed, places))
    for path in (path for path in avro if path not in set(manifests)):
        done.lists += _rewritten(path, lambda parsed: _change_list(parsed, places))
    for path in sorted({*folder.rglob("*.metadata.json"), *folder.rglob("*.gz.metadata.json")}):
        done.metadata += _relocate_metadata(path, places)
    failpoint("lake.relocate.catalog.before")
    done.tables = _relocate_catalog(catalog, places)
    failpoint("lake.relocate.catalog.after")
    return done


def _remove_drafts(folder: Path) -> None:
    """Remove what `_replace` had begun in a run that was killed."""
    for path in folder.rglob(".*"):
        if (draft := _DRAFT.fullmatch(path.name)) and path.with_name(draft[1]).exists() and path.is_file():
            path.unlink()


def _is_list(path: Path) -> bool:
    schema = AvroFile.parse(path.read_bytes(), str(path)).schema
    return isinstance(schema, dict) and schema.get("name") == _LIST_RECORD


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file's new content beside it, then put it in its place, durably."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(fd)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(path.stat().st_mode & 0o777)
        files.fsync_path(temporary)
        files.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    files.fsync_folder(path.parent)
    failpoint("lake.relocate.file")


# -- delete files ------------------------------------------------------------------------------------------------------


def _relocate_deletes(manifest: Path, places: Places) -> int:
    """Rewrite the position-delete files of a manifest; return how many needed it."""
    count = 0
    for record in _records(AvroFile.parse(manifest.read_bytes(), str(manifest))):
        file = record.get("data_file")
        if file is None or _plain(file.get("content", 0)) != _POSITION_DELETES:
            continue
        path = places.local(places.move(_plain(file["file_path"]).decode()))
        if path is None or not path.is_relative_to(places.now) or not path.exists():
            continue  # elsewhere, or expired and removed
        if _plain(file["file_format"]).upper() != b"PARQUET":
            raise UnsupportedError(f"{path}: expected a delete file in Parquet, found {_plain(file['file_format'])!r}")
        count += _relocate_positions(path, places)
    return count


def _relocate_positions(path: Path, places: Places) -> bool:
    with parquet_errors(None, str(path), "delete file"):
        check_parquet(path)
        opened = open_parquet(path)
    with opened as source:
        column = next(
            (index for index, field in enumerate(source.schema_arrow) if _field_id(field) == PATH_ID or
             field.name == PATH_COLUMN), None,
        )  # fmt: skip
        if column is None:
            raise CorruptDataError(f"{path}: expected a position-delete file, found no column {PATH_COLUMN!r}")
        if not _has_old_paths(source, column, places):
            return False
        _replace(path, lambda target: _write_moved(source, column, places, target, path.name))
    return True


def _field_id(field: pa.Field) -> int:
    return int((field.metadata or {}).get(b"PARQUET:field_id", b"-1"))


def _has_old_paths(source: pq.ParquetFile, column: int, places: Places) -> bool:
    name = source.schema_arrow.names[column]
    for group in range(source.num_row_groups):
        for value in pc.unique(source.read_row_group(group, columns=[name]).column(0)).to_pylist():
            if value not in {None, NO_PATH} and places.move(value) != value:
                return True
    return False


def _write_moved(source: pq.ParquetFile, column: int, places: Places, target: Path, name: str) -> None:
    schema = source.schema_arrow
    chunk = source.metadata.row_group(0).column(0) if source.num_row_groups else None
    codec = "none" if chunk is None else chunk.compression.lower()
    plain = "none" if codec == "uncompressed" else codec
    with pq.ParquetWriter(target, schema, compression=plain, write_page_checksum=True) as writer:
        writer.add_key_value_metadata({PARQUET_KEY: open_seal(name)})
        for group in range(source.num_row_groups):
            table = source.read_row_group(group)
            paths = table.column(column).cast(pa.string())
            known = {value: places.move(value) for value in pc.unique(paths).to_pylist() if value is not None}
            moved = pa.array([None if value is None else known[value] for value in paths.to_pylist()], pa.string())
            writer.write_table(table.set_column(column, schema.field(column), moved.cast(schema.field(column).type)))
    seal_parquet(target, name)


# -- manifests and their lists -----------------------------------------------------------------------------------------


def _records(parsed: AvroFile) -> Iterator[dict[str, Any]]:
    return (record for block in parsed.blocks for record in block)


def _plain(value: Any) -> Any:
    """Return a field's value, whether its type is a union or not."""
    return value[1] if isinstance(value, tuple) else value


def _as(old: Any, value: Any) -> Any:
    return (old[0], value) if isinstance(old, tuple) else value


def _rewritten(path: Path, change: Callable[[AvroFile], bool]) -> bool:
    parsed = AvroFile.parse(path.read_bytes(), str(path))
    if not change(parsed):
        return False
    data = parsed.to_bytes()
    _replace(path, lambda target: _write(target, data))
    return True


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _change_manifest(parsed: AvroFile, places: Places) -> bool:
    changes = [_change_file(record["data_file"], places) for record in _records(parsed) if "data_file" in record]
    return any(changes)


def _change_file(file: dict[str, Any], places: Places) -> bool:
    changed = _move(file, "file_path", places) | _move(file, "referenced_data_file", places)
    if _plain(file.get("content", 0)) != _POSITION_DELETES:
        return changed
    if _resize(file, "file_size_in_bytes", _plain(file["file_path"]).decode(), places):
        changed = True
        if isinstance(file.get("split_offsets"), tuple):
            file["split_offsets"] = (0, None)  # where row groups began in the file before
    for name in ("lower_bounds", "upper_bounds"):
        changed |= _move_bounds(file, name, places)
    return changed


def _change_list(parsed: AvroFile, places: Places) -> bool:
    changes = []
    for record in _records(parsed):
        changes.append(_move(record, "manifest_path", places))
        changes.append(_resize(record, "manifest_length", _plain(record["manifest_path"]).decode(), places))
    return any(changes)


def _move(record: dict[str, Any], name: str, places: Places) -> bool:
    old = _plain(record.get(name))
    if old is None or (new := places.move(old.decode()).encode()) == old:
        return False
    record[name] = _as(record[name], new)
    return True


def _resize(record: dict[str, Any], name: str, path: str, places: Places) -> bool:
    local = places.local(path)
    if local is None or not local.is_relative_to(places.now) or not local.exists():
        return False
    size_bytes = local.stat().st_size
    if _plain(record[name]) == size_bytes:
        return False
    record[name] = _as(record[name], size_bytes)
    return True


def _move_bounds(file: dict[str, Any], name: str, places: Places) -> bool:
    bounds = _plain(file.get(name))
    changed = False
    for entry in list(bounds or ()):
        if entry["key"] != PATH_ID:
            continue
        old = entry["value"]
        text = old.decode(errors="replace")
        if (moved := places.move(text)) != text:
            entry["value"] = moved.encode()
            changed = True
        elif not any(text.startswith(form.format(places.now)) for form in _FORMS) and text != NO_PATH:
            # Cut so short that it does not contain the folder: no bound is better than a wrong one.
            bounds.remove(entry)
            changed = True
    return changed


# -- metadata and catalog ----------------------------------------------------------------------------------------------


def _relocate_metadata(path: Path, places: Places) -> bool:
    data = path.read_bytes()
    is_packed = data[:2] == b"\x1f\x8b"
    try:
        text = gzip.decompress(data) if is_packed else data
        check_json(text)
        value = json.loads(text)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise CorruptDataError(f"{path}: not a table's metadata in JSON: {error}") from error
    moved = _moved_strings(value, places)
    if moved == value:
        return False
    sealed = moved.pop(JSON_KEY, None) is not None
    text = json.dumps(moved, separators=(",", ":")).encode()
    text = seal_json(text) if sealed else text
    _replace(path, lambda target: _write(target, gzip.compress(text) if is_packed else text))
    return True


def _moved_strings(value: Any, places: Places) -> Any:
    match value:
        case str():
            return places.move(value)
        case list():
            return [_moved_strings(each, places) for each in value]
        case dict():
            return {key: _moved_strings(each, places) for key, each in value.items()}
        case _:
            return value


def _relocate_catalog(catalog: Path, places: Places) -> int:
    """Rewrite the places in a catalog in one transaction; return how many tables had old ones."""
    if not catalog.exists():
        return 0
    try:
        with closing(sqlite3.connect(catalog, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            known = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            places_of = ("metadata_location", "previous_metadata_location")
            count = _move_columns(db, "iceberg_tables", places_of, places, known)
            _move_columns(db, "iceberg_namespace_properties", ("property_value",), places, known)
            db.execute("COMMIT")
    except sqlite3.OperationalError as error:  # locked, or no room for its journal
        raise StorageError(f"{catalog}: the catalog cannot be written: {error}; relocate again") from error
    except (sqlite3.DatabaseError, UnicodeError) as error:
        raise CorruptDataError(
            f"{catalog}: the catalog is damaged: {error}; restore it from a copy, as it was when the lab was moved, and relocate again"
        ) from error
    return count


def _move_columns(db: sqlite3.Connection, table: str, columns: Sequence[str], places: Places, known: set[str]) -> int:
    if table not in known:
        return 0
    changed = 0
    names = ", ".join(columns)
    for rowid, *values in db.execute(f"SELECT rowid, {names} FROM {table}").fetchall():  # noqa: S608 - constants
        moved = [None if value is None else places.move(value) for value in values]
        if moved != values:
            assignments = ", ".join(f"{column} = ?" for column in columns)
            db.execute(f"UPDATE {table} SET {assignments} WHERE rowid = ?", (*moved, rowid))  # noqa: S608 - constants
            changed += 1
    return changed
