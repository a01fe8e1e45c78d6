"""The inspection of a bucket's files without changing anything: every byte of its log, and the files beside it.

The server must not run: it would change files under the look. What recovery would do by itself at the next start is a
harmless finding here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, FlussError, UnsupportedError
from fluss_lab.model.times import format_moment
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    check_header,
    checksum,
    decode_checked,
    read_header,
)
from fluss_lab.server.tablet.damage.log_cut import GIVEN_UP_FILE, load_given_up
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.fsync_guard import SUSPECT_FILE
from fluss_lab.server.tablet.log.log_recovery import find_batch, segment_bases
from fluss_lab.server.tablet.log.previous_offsets import MARKS_SUFFIX, VALUES_SUFFIX, PreviousOffsets
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX, UNREADABLE, SegmentMark
from fluss_lab.server.tablet.log.sparse_index import OFFSET_SUFFIX, TIME_SUFFIX, SparseIndex
from fluss_lab.server.tablet.remote.remote_manifest import DroppedMark
from fluss_lab.storage.file_store import Place

#: Bytes read at once; a batch that is larger is read by itself.
_CHUNK_BYTES: Final = 4 << 20
_SIDE_SUFFIXES: Final = (OFFSET_SUFFIX, TIME_SUFFIX, VALUES_SUFFIX, MARKS_SUFFIX)
_COPY: Final = "Restore the file from a copy if there is one"
_NOTHING: Final = "Nothing need be done"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem found in a file or folder.

    Attributes:
        path: The file or folder.
        position: The byte at which it begins; None: it concerns the whole.
        found: What was expected, and what was found.
        meaning: The consequence.
        advice: The remedy.
        is_harmless: Whether the next start of the server repairs it, and nothing is lost.
        error_class: Name of the error that it is to who needs the file; None: the operating system's own.
        table: The table that it is of; None: it is of none, or not known.
        is_loss: Whether it is a range of a log, which a repair of the table can give up.
    """

    path: Place
    position: int | None
    found: str
    meaning: str
    advice: str
    is_harmless: bool = False
    error_class: str | None = CorruptDataError.__name__
    table: str | None = None
    is_loss: bool = False

    def __str__(self) -> str:
        place = str(self.path) if self.position is None else f"{self.path} at byte {self.position}"
        return f"{place}: {self.found}. {self.meaning}. {self.advice}."


@dataclass(slots=True)
class SegmentWalk:
    """How far a segment was found good: the place behind its last good batch, and, if wanted, where its batches begin.

    With what is wrong there, whether that is only a batch of a newer format, and the time of the first good one (-1: none).
    """

    position: int
    offset: int
    timestamp_ms: int
    problem: str | None
    places: dict[int, tuple[int, int]]
    is_newer: bool = False
    first_ms: int = -1


def inspect_bucket(folder: Path, schemas: Mapping[int, pa.Schema], *, changelog: bool) -> Iterator[Finding]:
    """Yield what is not as it should be in a bucket's folder.

    Args:
        folder: The bucket's.
        schemas: Arrow schema of each schema id.
        changelog: Whether it is a primary-key table's, whose records have previous offsets.

    Raises:
        OSError: A file cannot be read at all.
        UnsupportedError: A newer version wrote what is known of the log beside it.

    Cost: reads every byte, and decodes every batch.
    """
    known = recovery_point.load(folder)
    if known is None and (path := folder / recovery_point.FILE_NAME).exists():
        yield Finding(
            path, None, "not a recovery point: its checksum does not agree, or it is none", "The next start reads the "
            "whole log instead of its end", _NOTHING, is_harmless=True,
        )  # fmt: skip
    if (path := folder / SUSPECT_FILE).exists():
        yield Finding(
            path, None, f"fsync failed here: {path.read_text(errors='replace')[:200]}", "What was appended last may not be "
            "on the device; the next start writes it again", "Look after the disk before that",
        )  # fmt: skip
    bases = segment_bases(folder)
    yield from _given_up_findings(folder)
    yield from _dropped_mark(folder)
    yield from _leftovers(folder, bases)
    yield from _segments(folder, bases, known, schemas, changelog=changelog)


def _given_up_findings(folder: Path) -> Iterator[Finding]:
    path = folder / GIVEN_UP_FILE
    try:
        noted = load_given_up(folder)
    except FlussError as error:
        yield Finding(path, None, str(error), "The bucket cannot be opened", _COPY)
        return
    if noted.pending is not None:
        yield Finding(
            path, None, f"the log is being made to begin at offset {noted.pending.start}", "The next start finishes it",
            _NOTHING, is_harmless=True,
        )  # fmt: skip
    for each in noted.ranges:
        lost = (
            "Others held them" if each.lost_start == each.stop else f"Nobody else held [{each.lost_start}, {each.stop})"
        )
        yield Finding(
            path, None, f"offsets [{each.start}, {each.stop}) could not be read, and were given up at "
            f"{format_moment(each.time_ms)}", lost, _NOTHING, is_harmless=True,
        )  # fmt: skip


def _dropped_mark(folder: Path) -> Iterator[Finding]:
    mark = DroppedMark(folder)
    try:
        mark.load()
    except FlussError as error:
        meaning = (
            "It is not known up to where segments were moved to remote storage, should the manifest there be lost too"
        )
        yield Finding(mark.path, None, str(error), meaning, _COPY)


def _leftovers(folder: Path, bases: list[int]) -> Iterator[Finding]:
    stems = {f"{base:020d}" for base in bases}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or (path.suffix in _SIDE_SUFFIXES and path.stem not in stems):
            yield Finding(
                path, None, "a leftover of a write that was interrupted, or of a segment that was deleted",
                "It is not used, and goes at the next start", _NOTHING, is_harmless=True,
            )  # fmt: skip


def _segments(
    folder: Path, bases: list[int], known: Checkpoint | None, schemas: Mapping[int, pa.Schema], *, changelog: bool
) -> Iterator[Finding]:
    if not bases and known is not None:
        yield _lost_finding(folder, None, f"no segment is left of a log that reached offset {known.recovery_point}")
    timestamp_ms, end = -1, bases[0] if bases else 0
    expected = recovery_point.expected_start(folder, None if known is None else known.segments[0].base_offset)
    if bases and bases[0] > expected:
        yield _lost_finding(
            folder, None, f"the first segment is of offset {bases[0]}, expected one of {expected}: files are missing"
        )
    for base in bases:
        path = folder / f"{base:020d}{LOG_SUFFIX}"
        if base != end:
            yield _lost_finding(path, None, f"expected a segment at offset {end}, found this one at {base}")
        walked = walk(path, base, timestamp_ms, schemas)
        if walked.problem is not None:
            yield _judge(path, walked, known, is_last=base == bases[-1])
        if walked.is_newer:
            return
        mark = None if known is None else known.mark_of(base)
        if mark is not None:
            yield from _against_mark(path, mark, walked)
        if changelog:
            yield from _previous(path, base, walked.offset)
        timestamp_ms, end = walked.timestamp_ms, walked.offset
    if known is not None and bases and end < known.recovery_point:
        last = folder / f"{bases[-1]:020d}{LOG_SUFFIX}"
        yield _lost_finding(
            last, None, f"the log ends at offset {end}, but was on the device up to {known.recovery_point}"
        )


def _lost_finding(path: Path, position: int | None, found: str) -> Finding:
    return Finding(
        path, position, found, "Records are lost or damaged; the bucket is served up to there and takes no more", _COPY
    )


def walk(
    path: Path,
    base: int,
    timestamp_ms: int,
    schemas: Mapping[int, pa.Schema],
    position: int = 0,
    size_max: int | None = None,
    *,
    keeps_places: bool = True,
) -> SegmentWalk:
    """Follow the chain of batches from an offset and its position on, as far as it is good, and up to a size at most.

    Memory: some megabytes, and some hundred bytes for each batch whose place is kept.
    """
    walked = SegmentWalk(position, base, timestamp_ms, None, {})
    with path.open("rb") as file:
        size = path.stat().st_size
        size = size if size_max is None else min(size, size_max)
        data, start = b"", 0
        while walked.position < size:
            left, at = size - walked.position, walked.position - start
            try:
                if at + min(HEADER_BYTES, left) > len(data):
                    start, at, data = walked.position, 0, _read(file.fileno(), walked.position, min(_CHUNK_BYTES, left))
                header = read_header(data, at)
                check_header(header, left)
                if at + header.size > len(data):
                    wanted = min(max(_CHUNK_BYTES, header.size), left)
                    start, at, data = walked.position, 0, _read(file.fileno(), walked.position, wanted)
                _check(header, memoryview(data)[at : at + header.size], walked, schemas)
            except UNREADABLE as error:
                walked.problem, walked.is_newer = str(error), isinstance(error, UnsupportedError)
                break
            if walked.first_ms < 0:
                walked.first_ms = header.timestamp_ms
            if keeps_places:
                walked.places[walked.position] = (walked.offset - base, header.timestamp_ms)
            walked.position += header.size
            walked.offset, walked.timestamp_ms = header.next_offset, header.timestamp_ms
    return walked


def _read(fd: int, start: int, size: int) -> bytes:
    return os.pread(fd, size, start)


def _check(header: BatchHeader, whole: memoryview, walked: SegmentWalk, schemas: Mapping[int, pa.Schema]) -> None:
    if header.base_offset != walked.offset:
        raise CorruptDataError(f"expected a batch at offset {walked.offset}, found one at {header.base_offset}")
    if header.timestamp_ms < walked.timestamp_ms:
        raise CorruptDataError(
            f"batch at offset {header.base_offset}: expected a time of at least {walked.timestamp_ms}, found "
            f"{header.timestamp_ms}"
        )
    if (found := checksum(whole[CRC_START:])) != header.crc:
        raise CorruptDataError(f"batch at offset {walked.offset}: expected CRC {header.crc:08x}, found {found:08x}")
    if (schema := schemas.get(header.schema_id)) is not None:
        decode_checked(header, whole, schema)


def _judge(path: Path, walked: SegmentWalk, known: Checkpoint | None, *, is_last: bool) -> Finding:
    """Say what recovery will make of a bad place."""
    problem = walked.problem or ""
    if walked.is_newer:
        ends = "The bucket is served up to there and takes no more; nothing is cut off"
        return Finding(path, walked.position, problem, ends, "Use that version")
    if known is not None and walked.offset < known.recovery_point:
        return _lost_finding(
            path, walked.position, f"{problem}; the log was on the device up to {known.recovery_point}"
        )
    if not is_last:
        return _lost_finding(path, walked.position, f"{problem}; another segment lies behind it")
    if (valid := find_batch(path, walked.position + 1, walked.offset)) is not None:
        return _lost_finding(
            path, walked.position, f"{problem}; a valid batch at offset {valid.base_offset} lies behind it"
        )
    return Finding(
        path, walked.position, f"a torn tail: {problem}", "It was being written when the server ended, and is cut off at "
        "the next start; nothing of it was acknowledged", _NOTHING, is_harmless=True,
    )  # fmt: skip


def _against_mark(path: Path, mark: SegmentMark, walked: SegmentWalk) -> Iterator[Finding]:
    index = SparseIndex(path.with_suffix(""), 1)
    if not index.load(mark.index):
        yield Finding(
            index.offsets_path, None, "the indexes are not those of the recovery point", "They are made again from the "
            "segment when they are first needed", _NOTHING, is_harmless=True,
        )  # fmt: skip
        return
    for (position, timestamp_ms), relative in zip(_bounded_marks(index), index.relatives(), strict=True):
        if position < walked.position and walked.places.get(position) != (relative, timestamp_ms):
            yield _lost_finding(
                path, position, f"the index has a batch here at offset {mark.base_offset + relative} with time "
                f"{timestamp_ms}, the segment has {walked.places.get(position)}",
            )  # fmt: skip
            return


def _bounded_marks(index: SparseIndex) -> list[tuple[int, int]]:
    marks = index.marks(0)
    return [next(marks) for _ in range(len(index))]


def _previous(path: Path, base: int, end: int) -> Iterator[Finding]:
    previous = PreviousOffsets(path.with_suffix(""), HandlePool(4))
    try:
        previous.read(0, end - base)
    except (CorruptDataError, FileNotFoundError) as error:
        yield Finding(
            previous.values_path, None, str(error), "Above the newest key-value snapshot they are made again by replay; "
            "below it, the changelog cannot be fetched with previous offsets", _COPY,
        )  # fmt: skip
