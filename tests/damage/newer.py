"""Formats of newer versions: which files of a lab have a format number, and how each gets a higher one, checksums made right.

Nothing is listed here by name: a file has a format number if its content says so.
"""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from fluss_lab.records.batch import CRC_START, HEADER, HEADER_BYTES, checksum, read_header
from fluss_lab.records.checksummed_json import seal_content, unseal_content
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.coordinator.metadata.metadata_store import APPLICATION_ID

#: The format number that no version has yet.
NEWER: Final = 99
_KEYS: Final = ("format_version", "version")
_SQLITE: Final = b"SQLite format 3\x00"
_BLOCKS: Final = b"FLRB"
#: Of an index of blocks: its header, up to the number of blocks; an entry; where the CRC of a block is in an entry.
_BLOCKS_HEADER, _BLOCKS_ENTRY, _BLOCKS_CRC = 60, struct.Struct("<qqqII"), 3


@dataclass(frozen=True)
class Place:
    """One format number in a file.

    Attributes:
        file: Which, from the lab's folder on.
        form: Where in it: tells kinds of places in files of one kind apart.
        bump: Makes it the one of a newer version, in the file at a path.
        found: Return what stands there now, to see that nobody wrote it again.
    """

    file: Path
    form: str
    bump: Callable[[Path, random.Random], None]
    found: Callable[[Path], Any]


def places(lab: Path, file: Path) -> Iterator[Place]:
    """Yield the format numbers of a file of a lab."""
    data = (lab / file).read_bytes()
    if data.startswith(_SQLITE):
        yield from _in_metadata(lab / file, file)
    elif data.startswith(_BLOCKS):
        yield Place(file, "header", _bump_blocks, Path.read_bytes)
    elif file.suffix == ".log" and len(data) >= HEADER_BYTES:
        yield Place(file, "batch", _bump_batch, Path.read_bytes)
    elif (value := _json(data)) is not None and any(key in value for key in _KEYS):
        yield Place(file, "json", _bump_json, Path.read_bytes)


def _json(data: bytes | str) -> dict[str, Any] | None:
    body = data if isinstance(data, str) else (unseal_content(data) or data)
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def newer_json(data: bytes | str) -> str:
    """Return a JSON object with the format number of a newer version."""
    value = _json(data)
    assert value is not None
    key = next(each for each in _KEYS if each in value)
    assert value[key] < NEWER
    return json.dumps({**value, key: NEWER})


def _bump_json(path: Path, _rng: random.Random) -> None:
    data = path.read_bytes()
    text = newer_json(data).encode()
    path.write_bytes(text if unseal_content(data) is None else seal_content(text))


def _bump_blocks(path: Path, _rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, len(_BLOCKS), NEWER)
    _write_blocks(path, data)


def _write_blocks(path: Path, data: bytearray) -> None:
    struct.pack_into("<I", data, len(data) - 4, google_crc32c.value(bytes(data[:-4])))
    path.write_bytes(data)


def _bump_batch(path: Path, rng: random.Random) -> None:
    """Make one batch of a segment a newer format's: its own CRC does not cover its format, that of a remote block does."""
    data, at, starts = bytearray(path.read_bytes()), 0, []
    while at < len(data):
        starts.append(at)
        at += read_header(data, at).size
    chosen = rng.choice(starts)
    header = list(HEADER.unpack_from(data, chosen))
    assert header[2] == 0
    header[2] = NEWER
    HEADER.pack_into(data, chosen, *header)
    size = read_header(data, chosen).size
    assert checksum(memoryview(bytes(data))[chosen + CRC_START : chosen + size]) == read_header(data, chosen).crc
    path.write_bytes(data)
    if (index := path.with_suffix(".blocks")).exists():
        _reckon_blocks(index, bytes(data))


def _reckon_blocks(path: Path, segment: bytes) -> None:
    data = bytearray(path.read_bytes())
    entries = [
        list(_BLOCKS_ENTRY.unpack_from(data, at))
        for at in range(_BLOCKS_HEADER, len(data) - _BLOCKS_ENTRY.size, _BLOCKS_ENTRY.size)
    ]
    assert len(data) == _BLOCKS_HEADER + len(entries) * _BLOCKS_ENTRY.size + 4
    stops = [each[0] for each in entries[1:]] + [len(segment)]
    for number, (entry, stop) in enumerate(zip(entries, stops, strict=True)):
        entry[_BLOCKS_CRC] = google_crc32c.value(segment[entry[0] : stop])
        _BLOCKS_ENTRY.pack_into(data, _BLOCKS_HEADER + number * _BLOCKS_ENTRY.size, *entry)
    _write_blocks(path, data)


# -- metadata --------------------------------------------------------------------------------------------------------


def _in_metadata(path: Path, file: Path) -> Iterator[Place]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            return
        yield Place(file, "user_version", _bump_metadata, _metadata_version)
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f"SELECT * FROM {table} LIMIT 1")  # a name of the schema's own
            row = rows.fetchone() or ()
            for (column, *_), cell in zip(rows.description, row, strict=False):
                if isinstance(cell, str) and (value := _json(cell)) is not None and any(key in value for key in _KEYS):
                    yield _cell(file, table, column)


def _cell(file: Path, table: str, column: str) -> Place:
    def bump(path: Path, _rng: random.Random) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            row_checksums.prepare(db)
            for number, text in db.execute(f"SELECT DISTINCT 0, {column} FROM {table}").fetchall():
                assert number == 0
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (newer_json(text), text))

    def found(path: Path) -> Any:
        with closing(sqlite3.connect(path)) as db:
            return sorted(db.execute(f"SELECT {column} FROM {table}").fetchall())

    return Place(file, f"{table}.{column}", bump, found)


def _bump_metadata(path: Path, _rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {NEWER}")


def _metadata_version(path: Path) -> Any:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]
