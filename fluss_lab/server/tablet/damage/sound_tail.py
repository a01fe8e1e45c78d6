"""The sound part of a log behind all of its damage: its batches, and the rows that follow from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    align_buffer,
    check_header,
    checksum,
    read_header,
)
from fluss_lab.records.evolve import padded
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.store_image import KvImage
from fluss_lab.server.tablet.buckets.table_registry import Table
from fluss_lab.server.tablet.damage.damaged_ranges import DamagedRange
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX, UNREADABLE


@dataclass(frozen=True, slots=True)
class Tail:
    """The place behind a log's last damaged range.

    Attributes:
        offset: Of the first batch there, or of the next record.
        path: The segment in which that is; None: nothing is behind.
        position: Where in it.
    """

    offset: int
    path: Path | None
    position: int = 0

    @staticmethod
    def behind(folder: Path, damaged: DamagedRange) -> Tail:
        """Return the place behind a bucket's last damaged range."""
        if damaged.position is not None:
            return Tail(damaged.stop, damaged.path, damaged.position)
        path = folder / f"{damaged.stop:020d}{LOG_SUFFIX}"
        return Tail(damaged.stop, path if path.exists() else None)

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield its batches, up to the end or a torn tail.

        Raises:
            OSError: A file cannot be read.

        Cost: reads every byte, and keeps one batch.
        """
        offset, position = self.offset, self.position
        if self.path is None:
            return
        for base in segment_bases(self.path.parent):
            if base < int(self.path.stem):
                continue
            for header, whole in _batches(self.path.with_name(f"{base:020d}{LOG_SUFFIX}"), offset, position):
                offset = header.next_offset
                yield header, whole
            position = 0

    def boundary(self, offset_max: int) -> int | None:
        """Return the last offset up to a bound at which a batch of it begins, or the next record would; None without any.

        Rows can be followed from there only: no batch is done in part.
        """
        found = self.offset if self.offset <= offset_max else None
        for header, _ in self.batches() if found is not None else ():
            if header.next_offset > offset_max:
                break
            found = header.next_offset
        return found


def _batches(path: Path, offset: int, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    with path.open("rb") as file:
        size = path.stat().st_size
        while position < size:
            try:
                header = read_header(os.pread(file.fileno(), min(HEADER_BYTES, size - position), position))
                check_header(header, size - position)
                whole = memoryview(os.pread(file.fileno(), header.size, position))
            except UNREADABLE:
                return
            if header.base_offset != offset or checksum(whole[CRC_START:]) != header.crc:
                return
            yield header, whole
            offset, position = header.next_offset, position + header.size


def check_rows(table: Table, image: KvImage, tail: Tail) -> None:
    """See that rows are those that a bucket had at an offset, as far as that can be told: the log's tail follows on them.

    Args:
        table: The bucket's.
        image: The rows.
        tail: Of its log; all of its batches from the image's offset on are done.

    Raises:
        CorruptDataError: A key has two rows, or a change does not fit.
        OSError: A file cannot be read.

    Cost: what opening the bucket costs, in time and memory.
    """
    _check_unique(image, table.descriptor.schema.primary_key)
    schema = table.schemas[table.schema_id]
    store = KvStore.restore(table.descriptor, table.schema_id, table.schemas, image)
    for header, whole in tail.batches():
        if header.base_offset < image.log_offset or not header.record_count:
            continue
        body = HEADER_BYTES + header.record_count
        rows = padded(_rows(header, whole[body:], table.schemas), schema)
        times = np.full(rows.num_rows, header.timestamp_ms, np.int64)
        store.replay(rows, bytes(whole[HEADER_BYTES:body]), header.base_offset, times)


def _rows(header: BatchHeader, body: memoryview, schemas: Mapping[int, pa.Schema]) -> pa.RecordBatch:
    if (schema := schemas.get(header.schema_id)) is None:
        raise CorruptDataError(f"batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
    return pa.ipc.read_record_batch(align_buffer(body), schema)


def _check_unique(image: KvImage, key: Sequence[str]) -> None:
    parts = [chunk.rows.select(key) for chunk in image.chunks]
    if not parts:
        return
    keys = pa.Table.from_batches(parts)
    if (found := keys.group_by(list(key)).aggregate([]).num_rows) != keys.num_rows:
        raise CorruptDataError(f"rows at offset {image.log_offset}: expected {keys.num_rows} keys, found {found}")
