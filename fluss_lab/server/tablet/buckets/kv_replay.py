"""The replay of a primary-key bucket's changelog: its rows are brought up to the end of the log.

The replay also gives the previous offsets of every record again. They are compared with those that were written beside
the log: what is torn or missing is rewritten, what is whole and different means that log and state do not agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.names import TablePath
from fluss_lab.records.batch import CRC_START, HEADER_BYTES, BatchHeader, align_buffer, checksum, split_headers
from fluss_lab.records.log_records import fit_to_schema
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.tablet.log.log_reader import LogView
from fluss_lab.server.tablet.log.previous_offsets import Offsets, PreviousOffsets
from fluss_lab.server.tablet.log.segment import Segment
from fluss_lab.storage.file_store import Place

#: Bytes of log read at once.
_CHUNK_BYTES: Final = 4 << 20
#: Small batches are done together until there are so many records: each call costs as much as a thousand rows.
_GROUP_RECORDS: Final = 16_384


@dataclass(slots=True)
class _Group:
    """Batches that follow one another and are done in one call."""

    base_offset: int
    count: int = 0
    headers: list[BatchHeader] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    change_types: list[memoryview] = field(default_factory=list)


def check_reach(path: TablePath, store: KvStore, log_start: int, snapshots: Place) -> None:
    """Raise unless the log holds all that was changed since a store's snapshot.

    Args:
        path: The table.
        store: With the rows of the newest whole snapshot.
        log_start: First offset of the log.
        snapshots: The folder of the snapshots.

    Raises:
        CorruptDataError: It begins later.
    """
    if store.log_offset < log_start:
        raise CorruptDataError(
            f"{snapshots}: the rows were made from the changes since offset {store.log_offset}, where the newest whole key-value "
            f"snapshot is, and the log begins at {log_start}: restore the snapshots from a copy and start the server again, or "
            f"have the rows made from the lake's: fluss-lab repair {path} --skip-corrupt"
        )


class Replay:
    """One replay of a log into a store.

    Args:
        view: The log; all of it is whole.
        store: With all changes below some offset; it is the replay's alone while it runs.
        schemas: Arrow schema of each schema id.
        schema: The table's newest.
        confirms: Hold the previous offsets beside the log against the replay's; not while the log is served.
        pace: Called with the bytes of the rows that were done: it may take its time, so that there is memory for more.
    """

    def __init__(
        self,
        view: LogView,
        store: KvStore,
        schemas: Mapping[int, pa.Schema],
        schema: pa.Schema,
        *,
        confirms: bool = True,
        pace: Callable[[int], object] = lambda _size: None,
    ) -> None:
        self._view, self._store, self._schemas, self._schema = view, store, schemas, schema
        self._confirms, self._pace = confirms, pace
        #: Batches whose previous offsets were written again.
        self.mended = 0

    def run(self) -> None:
        """Do all changes from the store's log offset on.

        Raises:
            CorruptDataError: The log does not hold the offset, is damaged, or does not agree with what is beside it.
            OSError: The file system refused.
        """
        start, end = self._store.log_offset, self._view.end
        if not self._view.start <= start <= end:
            raise CorruptDataError(
                f"the state begins at log offset {start}, expected one in [{self._view.start}, {end}] where the log is: "
                "files of the log, or the snapshot, are missing; restore them from a copy and start the server again"
            )
        for segment in self._view.from_offset(start):
            self._segment(segment, max(start, segment.base_offset))

    def _segment(self, segment: Segment, start: int) -> None:
        previous, base_offset, mended = segment.previous, segment.base_offset, self.mended
        if not self._confirms:
            previous = None
        if previous is not None:
            previous.resume(start - base_offset)
        for group in self._groups(start, segment.end_offset):
            found = self._apply(group)
            self._pace(sum(rows.nbytes for rows in group.rows))
            if previous is not None:
                self._confirm(previous, group, found, base_offset)
        if previous is not None:
            previous.finish(segment.end_offset - base_offset)
            if self.mended > mended:
                previous.sync()

    def _groups(self, start: int, stop: int) -> Iterator[_Group]:
        group = _Group(start)
        for header, whole in self._batches(start, stop):
            if header.base_offset != group.base_offset + group.count:
                raise CorruptDataError(
                    f"expected a batch at offset {group.base_offset + group.count}, found one at {header.base_offset}"
                )
            body = HEADER_BYTES + header.record_count
            group.headers.append(header)
            group.change_types.append(whole[HEADER_BYTES:body])
            group.rows.append(self._rows(header, whole[body:]))
            group.count += header.record_count
            if group.count >= _GROUP_RECORDS:
                yield group
                group = _Group(header.next_offset)
        if group.count:
            yield group

    def _batches(self, start: int, stop: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches with records in a range that begins and ends between batches."""
        while start < stop:
            for data in (fetched := self._view.read(start, _CHUNK_BYTES, at_least_one=True)).buffers:
                for header, whole in split_headers(data):
                    if header.base_offset >= stop:
                        return
                    if checksum(whole[CRC_START:]) != header.crc:
                        raise CorruptDataError(f"batch at offset {header.base_offset}: the CRC does not agree")
                    if header.append_only:
                        raise CorruptDataError(f"batch at offset {header.base_offset}: expected change types")
                    if header.record_count:
                        yield header, whole
            start = fetched.next_offset

    def _rows(self, header: BatchHeader, body: memoryview) -> pa.RecordBatch:
        schema = self._schemas.get(header.schema_id)
        if schema is None:
            raise CorruptDataError(f"batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
        # It was made and validated here before it was written, and the CRC says that it is the same.
        return fit_to_schema(pa.ipc.read_record_batch(align_buffer(body), schema), self._schema)

    def _apply(self, group: _Group) -> Offsets:
        counts = [header.record_count for header in group.headers]
        timestamps = np.repeat([header.timestamp_ms for header in group.headers], counts)
        rows = group.rows[0] if len(group.rows) == 1 else pa.concat_batches(group.rows)
        return self._store.replay(rows, b"".join(group.change_types), group.base_offset, timestamps)

    def _confirm(self, previous: PreviousOffsets, group: _Group, found: Offsets, segment_base: int) -> None:
        for header in group.headers:
            at = header.base_offset - group.base_offset
            values = found[at : at + header.record_count]
            self.mended += not previous.confirm(header.base_offset - segment_base, values)
