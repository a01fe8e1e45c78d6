"""A chain link of a primary-key bucket's log put together: rows of data files and events of delete files, by offset.

A row that a data file holds is a ``+I`` or ``+U`` record, dead or alive: deletes say nothing of the log. It is a ``+U`` if
the record before it is a ``-U``: the two lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.metadata.replay_chain import ChainLink
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader, clip_rows
from fluss_lab.lake.iceberg.read.delete_event_reader import EventFile
from fluss_lab.lake.iceberg.read.merge_reader import OpenRowGroup, RowGroupQueue
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import ChangeType
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What no row has before it.
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class FileOpeners:
    """How the files of a table are opened.

    Attributes:
        data: Opens a data file.
        events: Opens a delete file.
    """

    data: Callable[[LakeFile], DataFileReader]
    events: Callable[[LakeDelete], EventFile]


@dataclass(slots=True)
class _Part:
    """Records that were read and are not yet given: ascending by offset, those before `at` are."""

    rows: pa.Table
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    kinds: NDArray[np.int8] | None
    previous: NDArray[np.int64] | None
    at: int = 0

    def take(self, edge: int) -> _Part | None:
        """Return the records below an offset, which are given then."""
        low, high = self.at, int(np.searchsorted(self.offsets, edge))
        if low == high:
            return None
        self.at = high
        cut = slice(low, high)
        return _Part(
            self.rows.slice(low, high - low),
            self.offsets[cut],
            self.times_ms[cut],
            None if self.kinds is None else self.kinds[cut],
            None if self.previous is None else self.previous[cut],
        )


class LinkReplay:
    """The records ``[start, stop)`` of one chain link. Read it once, by one thread.

    Args:
        files: How files are opened.
        link: The link that holds the range.
        span: The range.
        names: User's columns, in the order wanted.
        what: The bucket, for messages.
    """

    def __init__(
        self,
        files: FileOpeners,
        link: ChainLink,
        span: tuple[int, int],
        names: Sequence[str],
        what: str,
    ) -> None:
        self._files = files
        self._span = span
        self._names = list(names)
        self._what = what
        # An update whose first half is below the range.
        self._reach = (span[0] - 1 if span[0] > link.start else span[0], span[1])
        self._data = RowGroupQueue(files.data, link.state.data, span)
        self._queue = iter(self._data)
        self._opened: OpenRowGroup | None = None
        self._deletes = [
            (known.min_offset, each)
            for known, each in link.events
            if known.max_offset >= self._reach[0] and known.min_offset < span[1]
        ]
        self._deletes.sort(key=lambda pair: pair[0], reverse=True)
        self._held: list[_Part] = []
        #: Change type and previous offset of the record before.
        self._before = (int(ChangeType.INSERT), NO_OFFSET)

    def __iter__(self) -> Iterator[LogRecords]:
        """Yield the records in order.

        Raises:
            FileNotFoundError: A file is gone.
            CorruptDataError: An offset is missing, or there twice; or a file is not what it should be.

        Cost: memory is bounded by a row group, what overlaps it, and the delete files that reach over it.
        """
        with self._data:
            position, stop = self._span
            self._opened = next(self._queue, None)
            while position < stop:
                edge = min(self._next_data(), self._next_delete(), stop)
                if edge > position:
                    yield self._window(position, edge)
                    position = edge
                    self._held = [part for part in self._held if part.at < len(part.offsets)]
                elif self._next_delete() <= position:
                    self._load_events()
                else:
                    self._load_rows()

    def _next_data(self) -> int:
        return self._span[1] if self._opened is None else self._opened.group.min_offset

    def _next_delete(self) -> int:
        return self._deletes[-1][0] if self._deletes else self._span[1]

    def _load_rows(self) -> None:
        """Read the next row group."""
        opened = self._opened
        assert opened is not None
        columns = list(dict.fromkeys([*self._names, OFFSET_COLUMN, TIMESTAMP_COLUMN]))
        rows = opened.reader.read([opened.group], columns)
        rows = clip_rows(rows, rows.column(OFFSET_COLUMN), *self._span)
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        times_ms = rows.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy() // 1000
        self._held.append(_Part(rows.select([*self._names, OFFSET_COLUMN]), offsets, times_ms, None, None))
        self._opened = next(self._queue, None)

    def _load_events(self) -> None:
        """Read the next delete file."""
        _, delete = self._deletes.pop()
        with self._files.events(delete) as file:
            events = file.events(self._names, self._reach)
        part = _Part(events.rows, events.offsets, events.times_ms, events.kinds, events.previous)
        if (before := part.take(self._span[0])) is not None and before.kinds is not None:
            assert before.previous is not None
            self._before = (int(before.kinds[-1]), int(before.previous[-1]))
        self._held.append(part)

    def _window(self, start: int, stop: int) -> LogRecords:
        """Return the records of a range, all of which are held."""
        parts = [taken for part in self._held if (taken := part.take(stop)) is not None]
        count = sum(len(part.offsets) for part in parts)
        offsets = np.concatenate([part.offsets for part in parts]) if parts else np.empty(0, np.int64)
        order = np.full(stop - start, -1, dtype=np.int64)
        inside = offsets >= start
        order[offsets[inside] - start] = np.flatnonzero(inside)
        if count != stop - start or bool((order < 0).any()):
            raise self._broken_error(start, offsets, order)
        rows = pa.concat_tables([part.rows for part in parts])
        times_ms = np.concatenate([part.times_ms for part in parts])
        kinds = np.concatenate(
            [np.full(len(p.offsets), ChangeType.INSERT, np.int8) if p.kinds is None else p.kinds for p in parts]
        )
        previous = np.concatenate(
            [np.full(len(p.offsets), NO_OFFSET, np.int64) if p.previous is None else p.previous for p in parts]
        )
        if len(parts) > 1:
            rows = rows.combine_chunks().take(pa.array(order))
            times_ms, kinds, previous = times_ms[order], kinds[order], previous[order]
        self._pair(kinds, previous)
        return LogRecords(
            _batch(rows.select(self._names), count),
            pa.array(np.arange(start, stop, dtype=np.int64)),
            pa.array(times_ms),
            pa.array(kinds),
            pa.array(previous),
        )

    def _pair(self, kinds: NDArray[np.int8], previous: NDArray[np.int64]) -> None:
        """Make the inserts that follow a ``-U`` to ``+U``, with its previous offset."""
        kind_before = np.concatenate([np.array([self._before[0]], np.int8), kinds[:-1]])
        previous_before = np.concatenate([np.array([self._before[1]], np.int64), previous[:-1]])
        after = (kinds == ChangeType.INSERT) & (kind_before == ChangeType.UPDATE_BEFORE)
        kinds[after] = ChangeType.UPDATE_AFTER
        previous[after] = previous_before[after]
        self._before = (int(kinds[-1]), int(previous[-1]))

    def _broken_error(self, start: int, offsets: NDArray[np.int64], order: NDArray[np.int64]) -> CorruptDataError:
        """Return what is wrong with a window: an offset twice, or a gap."""
        found, counts = np.unique(offsets, return_counts=True)
        twice = found[(counts > 1) | (found < start)]
        if len(twice):
            return CorruptDataError(f"{self._what}: offset {twice[0]} is there more than once")
        missing = np.flatnonzero(order < 0)
        last = int(missing[0]) + int(np.argmin(np.append(np.diff(missing) == 1, False)))
        return gap(self._what, start + int(missing[0]), start + last + 1)


def gap(what: str, start: int, stop: int) -> CorruptDataError:
    """Return the error of offsets that are missing."""
    return CorruptDataError(
        f"{what}: the offsets [{start}, {stop}) are missing; another program deleted them, or the lake was not tiered from there"
    )


def _batch(rows: pa.Table, count: int) -> pa.RecordBatch:
    if not rows.num_columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    batches = rows.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
