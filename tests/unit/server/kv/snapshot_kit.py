"""What the tests of key-value snapshots share: a small store that makes images, and the rows in one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.server.kv.kv_snapshot import SnapshotStore
from fluss_lab.server.kv.row_chunks import KvChunk
from fluss_lab.server.kv.store_view import KvImage

BUCKET = TableBucket(7, None, 0)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
WIDER = pa.schema([*SCHEMA, pa.field("note", pa.string())])
SCHEMAS = {1: SCHEMA, 2: WIDER}


class Row(NamedTuple):
    """A live row as a reader of an image sees it."""

    id: int
    name: str | None
    offset: int
    timestamp_ms: int
    schema_id: int


class Puts:
    """A key-value store of the plainest kind: a chunk for each put, rows found by a dict."""

    def __init__(self) -> None:
        self.chunks: list[KvChunk] = []
        self.live: list[np.ndarray] = []
        self.end = 0
        self.next_chunk_id = 0
        self._places: dict[int, tuple[int, int]] = {}

    def put(self, *ids: int, schema_id: int = 1, note: str = "") -> None:
        """Put a row for each id (no id twice) as a chunk."""
        names = [f"name-{each}-{self.end}{note}" for each in ids]
        columns = [pa.array(ids, pa.int64()), pa.array(names)]
        if schema_id == 2:
            columns.append(pa.array([None] * len(ids), pa.string()))
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[schema_id])
        offsets = np.arange(self.end, self.end + len(ids), dtype=np.int64)
        self._add(rows, offsets, np.full(len(ids), 1000 + self.end, dtype=np.int64), schema_id)
        self.end += len(ids)

    def delete(self, *ids: int) -> None:
        for each in ids:
            chunk, row = self._places.pop(each)
            self.live[chunk][row] = False
            self.end += 1

    def ids(self) -> set[int]:
        """The keys that have a row."""
        return set(self._places)

    def merge(self) -> None:
        """Make one chunk of the live rows of all that have the first schema."""
        image = self.image()
        tables = [
            (c.rows.filter(pa.array(alive)), c.offsets[alive], c.timestamps_ms[alive])
            for c, alive in zip(image.chunks, image.live, strict=True)
        ]
        self.chunks, self.live, self._places = [], [], {}
        rows = pa.concat_batches([rows for rows, _, _ in tables])
        self._add(rows, np.concatenate([o for _, o, _ in tables]), np.concatenate([t for _, _, t in tables]), 1)

    def _add(self, rows: pa.RecordBatch, offsets: np.ndarray, timestamps_ms: np.ndarray, schema_id: int) -> None:
        for row, each in enumerate(rows.column(0).to_pylist()):
            if (old := self._places.get(each)) is not None:
                self.live[old[0]][old[1]] = False
            self._places[each] = (len(self.chunks), row)
        self.chunks.append(KvChunk(self.next_chunk_id, schema_id, rows, offsets, timestamps_ms))
        self.live.append(np.ones(rows.num_rows, dtype=np.bool_))
        self.next_chunk_id += 1

    def image(self) -> KvImage:
        return KvImage(self.end, tuple(self.chunks), tuple(each.copy() for each in self.live), self.next_chunk_id)


def restored(image: KvImage) -> Puts:
    """A store that goes on from an image."""
    made = Puts()
    made.chunks, made.live = list(image.chunks), [live.copy() for live in image.live]
    made.end, made.next_chunk_id = image.log_offset, image.next_chunk_id
    for at, (chunk, live) in enumerate(zip(made.chunks, made.live, strict=True)):
        for row, each in enumerate(chunk.rows.column(0).to_pylist()):
            if live[row]:
                made._places[each] = (at, row)
    return made


def rows_of(image: KvImage) -> list[Row]:
    """The live rows of an image, by id."""
    found = []
    for chunk, live in zip(image.chunks, image.live, strict=True):
        assert chunk.rows.schema.equals(SCHEMAS[chunk.schema_id])
        assert len(live) == len(chunk.offsets) == len(chunk.timestamps_ms) == chunk.rows.num_rows
        columns = chunk.rows.column(0).to_pylist(), chunk.rows.column(1).to_pylist()
        for row in np.flatnonzero(live):
            place = int(chunk.offsets[row]), int(chunk.timestamps_ms[row]), chunk.schema_id
            found.append(Row(columns[0][row], columns[1][row], *place))
    assert len({row.id for row in found}) == len(found) == image.row_count
    return sorted(found)


def store(folder: Path, retained: int = 2, bucket: TableBucket = BUCKET) -> SnapshotStore:
    return SnapshotStore(folder, retained=retained, bucket=bucket)


def write(snapshots: SnapshotStore, image: KvImage, writers: object = None) -> CompletedSnapshot:
    return snapshots.write(image, writers=writers, created_ms=5)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())
