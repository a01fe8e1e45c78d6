"""The files of a primary-key table's plan as a reader of others may read them: whole, less the rows with certain offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from fluss_lab.lake import LakeSplit
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.pk_merge import Tail
from fluss_lab.read.union.read_columns import OFFSET, make_columns
from fluss_lab.read.union.read_parts import BucketPart, Plan, Request

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


def whole_files(source: TableSource, plan: Plan) -> list[WholeFiles] | None:
    """Return the lake's part of a plan, bucket by bucket; None where it takes more to read it than files and offsets.

    Raises:
        OffsetOutOfRangeError, LakeSnapshotNotFoundError, ...: Records have moved since planning; see `read_parts.MOVED`.
        CorruptDataError: What deletes rows of the files is missing or damaged.

    Cost: the log's end is read for what it ends, without its rows, and what deletes rows of the files.
    """
    if not all(_is_whole(part) for part in plan.parts) or _tail_records(plan) > TAIL_RECORDS_MAX:
        return None
    found = []
    for part in plan.parts:
        if part.splits:
            if (files := _files(source, part)) is None:
                return None
            found.append(files)
    return found


def tails(plan: Plan) -> Plan:
    """Return the log's part of a plan: its rows are those of the log's end that it did not end itself."""
    return Plan(tuple(_tails(plan)), None)


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


def _tail_records(plan: Plan) -> int:
    return sum(part.stop - part.lake_stop for part in plan.parts if part.splits)


def _files(source: TableSource, part: BucketPart) -> WholeFiles | None:
    stops, ended = {part.key: part.lake_stop}, {part.key: _ended(source, part)}
    dead = source.lake_source.dead_offsets(part.splits, stops=stops, ended=ended)
    if dead is None:
        return None
    paired = list(zip(part.splits, dead, strict=True))
    clean = tuple(split for split, offsets in paired if not len(offsets))
    holed = tuple(split for split, offsets in paired if len(offsets))
    return WholeFiles(part, clean, holed, np.concatenate(dead))


def _ended(source: TableSource, part: BucketPart) -> NDArray[np.int64]:
    """Return the offsets, ascending, of rows in the files that the log's end ends."""
    # No row of the end itself: only what it ends is read.
    request = Request(make_columns(source.info.schema, [OFFSET]), None)
    tail = Tail(source, replace(part, row_stop=part.lake_stop, filter=None), request)
    for _ in tail.look():
        pass
    return tail.ended_before(part.lake_stop)
