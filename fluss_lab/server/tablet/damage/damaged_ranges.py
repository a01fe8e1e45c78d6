"""The offsets of a bucket's log that cannot be read, found by reading every byte, and the sound part behind all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fluss_lab.records.batch import CRC_START, HEADER_BYTES, BatchHeader, check_header, checksum, read_header
from fluss_lab.server.tablet.buckets.bucket_inspection import walk
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.log_reader import Frontier
from fluss_lab.server.tablet.log.log_recovery import find_place, segment_bases
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX, UNREADABLE


class DamagedRange(NamedTuple):
    """Offsets ``[start, stop)`` that cannot be read.

    Attributes:
        path: The file in which they begin, or behind which they are missing.
        end_position: Where in that file what can be read before them ends.
        position: Where in that file the batch at `stop` is, if it is in it and not at the start of another one.
        before_ms: Timestamp of the last record before them; -1 without any.
        after_ms: Timestamp of the first record behind them; -1 without any.
    """

    path: Path
    start: int
    stop: int
    end_position: int
    position: int | None = None
    before_ms: int = -1
    after_ms: int = -1


def damaged_ranges(
    folder: Path, schemas: Mapping[int, pa.Schema], durable_offset: int, until: Frontier | None = None
) -> Iterator[DamagedRange]:
    """Yield the damaged ranges of a bucket's log, ascending. A torn tail behind all that was durable is none.

    A batch of a newer format is no damage: it, and what follows it, is not judged.

    Args:
        folder: The bucket's.
        schemas: Arrow schema of each schema id.
        durable_offset: Up to where the coordinator knows the log to have been on the device.
        until: Of a log that is being written: where its readers' view ends. What is behind may be half there, and is not
            looked at.

    Raises:
        OSError: A file cannot be read at all.
        UnsupportedError: A newer version wrote what is known of the log beside it.

    Cost: reads every byte, and decodes every batch; memory does not grow with the log.
    """
    known = recovery_point.load(folder)
    end = recovery_point.expected_start(folder, None if known is None else known.segments[0].base_offset)
    path, last_ms, position = folder, -1, 0
    for base in segment_bases(folder):
        if until is not None and base > until.base_offset:
            break
        before, path = path, folder / f"{base:020d}{LOG_SUFFIX}"
        size_max = until.position if until is not None and base == until.base_offset else None
        walked = walk(path, base, -1, schemas, 0, size_max, keeps_places=False)
        if base > end:
            yield DamagedRange(before, end, base, position, None, last_ms, walked.first_ms)
        while walked.problem is not None and not walked.is_newer:
            last_ms = max(last_ms, walked.timestamp_ms)
            if (found := find_place(path, walked.position + 1, walked.offset)) is None:
                break
            behind, header = found
            yield DamagedRange(
                path, walked.offset, header.base_offset, walked.position, behind, last_ms, header.timestamp_ms
            )  # fmt: skip
            walked = walk(path, header.base_offset, -1, schemas, behind, size_max, keeps_places=False)
        if walked.is_newer:
            return
        end, position, last_ms = walked.offset, walked.position, max(last_ms, walked.timestamp_ms)
    # A log that is being written is known by its view; what is beside it on the disk may be newer than that.
    floor = max(durable_offset, 0 if known is None else known.recovery_point) if until is None else until.offset
    if end < floor:
        yield DamagedRange(path, end, floor, position, None, last_ms)


def log_end(folder: Path, schemas: Mapping[int, pa.Schema]) -> int:
    """Return the offset up to which the last segment of a bucket's log is good; 0 without any.

    Cost: reads every byte of that segment.
    """
    bases = segment_bases(folder)
    if not bases:
        return 0
    return walk(folder / f"{bases[-1]:020d}{LOG_SUFFIX}", bases[-1], -1, schemas, keeps_places=False).offset


@dataclass(frozen=True, slots=True)
class SoundTail:
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
    def find(folder: Path, damaged: DamagedRange) -> SoundTail:
        """Return the place behind a bucket's last damaged range."""
        if damaged.position is not None:
            return SoundTail(damaged.stop, damaged.path, damaged.position)
        path = folder / f"{damaged.stop:020d}{LOG_SUFFIX}"
        return SoundTail(damaged.stop, path if path.exists() else None)

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
