"""The options, entries and results of an append."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluss_lab.records.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from fluss_lab.server.tablet.append.payload_validation import CheckedBatch
from fluss_lab.server.tablet.log.previous_offsets import Offsets


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is kept: see the cluster options of the same names.

    Attributes:
        check_disk: Called with what is not done then; raises `StorageError` while the rest of the disk is reserved.
    """

    segment_bytes: int
    index_interval_bytes: int
    fsync: bool
    writer_expiration_ms: int
    check_disk: Callable[[str], None] = lambda what: None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A batch on its way into the log.

    Attributes:
        header: As its maker made it.
        sent_crc: Of the batch as its writer sent it.
        head: The bytes of the header, to be placed.
        rest: The bytes behind it.
        previous: The previous offsets of its records, if the log keeps them.
    """

    header: BatchHeader
    sent_crc: int
    head: bytearray
    rest: tuple[memoryview, ...]
    previous: Offsets | None = None

    @staticmethod
    def of(batch: CheckedBatch) -> LogEntry:
        """Return the entry of a batch that came as it will be written."""
        head, rest = batch.data[:HEADER_BYTES], batch.data[HEADER_BYTES:]
        return LogEntry(batch.header, batch.header.crc, bytearray(head), (rest,))

    @staticmethod
    def encoded(buffers: Sequence[Buffer], previous: Offsets, sent_crc: int) -> LogEntry:
        """Return the entry of a batch that `records.batch.encode` made of one that a writer sent."""
        head, *rest = buffers
        parts = tuple(memoryview(part).cast("B") for part in rest)
        return LogEntry(read_header(head), sent_crc, bytearray(head), parts, previous)


@dataclass(frozen=True, slots=True)
class DerivedEntry:
    """What a batch leads to.

    Attributes:
        entry: What is to be appended; None when nothing is.
        commit: Called with the timestamp once it is in the log, under the log's lock; it must not fail.
    """

    entry: LogEntry | None
    commit: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """Where a payload's records are: ``[base_offset, end_offset)``; and what `BucketLog.acknowledge` needs."""

    base_offset: int
    end_offset: int
    ticket: int
