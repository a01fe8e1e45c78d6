"""The files of a primary-key table's plan as a reader of others may read them: whole, less the rows with certain offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.lake import LakeSplit
from fluss_lab.model.names import BucketKey
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.pk_merge import LiveTail, Tail, choose_tail
from fluss_lab.read.union.read_parts import BucketPart, Plan, Request
from fluss_lab.read.union.read_plan import read_rows, with_first_answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A longer end of the log is looked through by tasks, side by side, not by the one process that plans: half a second.
TAIL_RECORDS_MAX: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """The files of one bucket.

    Attributes:
        part: What is read of the bucket.
        clean: Files of which every row is wanted.
        holed: Files of which every row is wanted but those in `dead`.
        dead: Offsets, in no order; some may be there twice, or be no row's.
    """

    part: BucketPart
    clean: tuple[LakeSplit, ...]
    holed: tuple[LakeSplit, ...]
    dead: NDArray[np.int64]


class Tails:
    """The log's part of a plan: its rows are those of the log's ends that these did not end themselves.

    What is looked at for the offsets that it ends keeps its rows, as far as there is room for those of all buckets.

    Args:
        source: The table.
        plan: The whole.
        request: Which columns the rows have.
        bytes_max: How many bytes of rows are kept at most, of all buckets together; 0: the rows are not wanted here.

    Attributes:
        plan: The log's part.
    """

    def __init__(self, source: TableSource, plan: Plan, request: Request, bytes_max: int) -> None:
        self.plan = Plan(tuple(_tails(plan)), None)
        self._source, self._request = source, request
        self._parts: dict[BucketKey, BucketPart] | None = None
        self._room = bytes_max
        self._looked: list[Tail | LiveTail] = []

    def ended_offsets(self, part: BucketPart) -> NDArray[np.int64]:
        """Return the offsets, ascending, of rows in the files of a bucket that the log's end ends.

        Args:
            part: Of the whole plan.

        Raises:
            FlussError: As `read_range`.

        Cost: the log's end is read once, with its rows as long as all before had room.
        """
        if self._parts is None:
            self._parts = self._begin()
        if (own := self._parts.get(part.key)) is None:
            return np.empty(0, dtype=np.int64)
        tail = choose_tail(self._source, own, self._request, self._room)
        for _ in tail.look():
            pass
        # Where one had no room, the others' would be in vain: all together are too much.
        self._room -= self._room if tail.kept_bytes is None else tail.kept_bytes
        self._looked.append(tail)
        return tail.ended_offsets(own.lake_stop)

    def _begin(self) -> dict[BucketKey, BucketPart]:
        """Return the parts, with what is fetched for all of them together where their rows are wanted."""
        if self._room:
            # Before any of them is looked at: tails are known by their parts.
            self.plan = with_first_answers(self._source, self.plan, self._request)
        return {part.key: part for part in self.plan.parts}

    @property
    def expected_bytes(self) -> int:
        """Return about how large the rows are of what was looked at: where there was no room, by those before it was gone."""
        return sum(tail.expected_bytes for tail in self._looked)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns wanted.

        Raises:
            FlussError: As `read_rows`.

        Cost: what was not kept is read.
        """
        return read_rows(self._source, self.plan, self._request, self._looked)


def log_records(parts: Iterable[BucketPart]) -> int:
    """Return how many records of the log parts have behind the lake's."""
    return sum(part.stop - part.lake_stop for part in parts)


def whole_files(source: TableSource, plan: Plan, tails: Tails) -> list[WholeFiles] | None:
    """Return the lake's part of a plan, bucket by bucket; None where it takes more to read it than files and offsets.

    Args:
        source: The table.
        plan: The whole.
        tails: Its log's part; that of buckets with files is looked at.

    Raises:
        OffsetOutOfRangeError, LakeSnapshotNotFoundError, ...: Records have moved since planning; see `read_parts.MOVED`.
        CorruptDataError: What deletes rows of the files is missing or damaged.

    Cost: the log's end is read (see `Tails.ended`), and what deletes rows of the files.
    """
    if not all(_is_whole(part) for part in plan.parts):
        return None
    if log_records(part for part in plan.parts if part.splits) > TAIL_RECORDS_MAX:
        return None
    found = []
    for part in plan.parts:
        if part.splits:
            if (files := _files(source, part, tails)) is None:
                return None
            found.append(files)
    return found


def _tails(plan: Plan) -> Iterator[BucketPart]:
    for part in plan.parts:
        # A row is ended by a later record: what is before the log's end ends none of its rows.
        if part.lake_stop < part.stop:
            yield replace(part, start=part.lake_stop, splits=())


def _is_whole(part: BucketPart) -> bool:
    """Return whether all rows of the bucket's files are wanted, but for dead ones and those at its stop or after it."""
    if part.live or part.row_stop is not None:
        return False
    return all(part.start <= split.min_offset for split in part.splits)


def _files(source: TableSource, part: BucketPart, tails: Tails) -> WholeFiles | None:
    stops, ended = {part.key: part.lake_stop}, {part.key: tails.ended_offsets(part)}
    dead = source.lake_source.dead_offsets(part.splits, stops=stops, ended=ended)
    if dead is None:
        return None
    paired = list(zip(part.splits, dead, strict=True))
    clean = tuple(split for split, offsets in paired if not len(offsets))
    holed = tuple(split for split, offsets in paired if len(offsets))
    return WholeFiles(part, clean, holed, np.concatenate(dead))
