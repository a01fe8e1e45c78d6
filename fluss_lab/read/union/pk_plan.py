"""The sources of a primary-key bucket's rows: lake and log, the log alone, or live rows with later changes undone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.model import LakeSnapshot
from fluss_lab.read.moment.table_state import BucketState, TableSource, surely_holds

if TYPE_CHECKING:
    from fluss_lab.read.union.read_parts import BucketPart

#: A log of so many records is read whole before anything else is weighed: it is one or two answers.
FOLDED_MIN: Final = 100_000
#: A longer one is, while it has at most so many times the records that would have to be taken back: reading it twice
#: costs what reading those and the live rows costs.
FOLDED_RATIO: Final = 1


def place_part(source: TableSource, part: BucketPart, snapshot: LakeSnapshot | None) -> BucketPart:
    """Return a part with where its rows come from, still without files.

    Args:
        source: The table.
        part: Of a primary-key table.
        snapshot: The lake snapshot to use; None: none.

    Raises:
        OffsetOutOfRangeError: The rows of the bucket at its stop are no longer available; the text says from which
            offset on they are.

    Cost: no call where the lake holds the bucket; else one look at the cluster for all buckets.
    """
    end, start = _lake(snapshot, part)
    if end and start <= part.stop:
        lake_stop = max(part.start, min(end, part.stop))
        # Where the log has left a gap behind the lake, the lake does not help.
        if lake_stop == part.stop or source.may_hold(part.bucket, lake_stop):
            return replace(part, lake_stop=lake_stop, splits=(), live=False)
    held = source.bucket_state(part.bucket)
    if held is None or held.is_dropped:
        raise _gone_error(source, part, start, end)
    folds = surely_holds(held, part.start)
    length, back = part.stop - part.start, max(0, held.end - part.stop)
    if folds and (length <= FOLDED_MIN or length <= FOLDED_RATIO * back):
        return replace(part, lake_stop=part.start, splits=(), live=False)
    if held.holds_from(part.stop):
        return replace(part, lake_stop=part.start, splits=(), live=True)
    raise _beyond_reach(source, part, earliest_available(held, snapshot))


def _lake(snapshot: LakeSnapshot | None, part: BucketPart) -> tuple[int, int]:
    """Return up to where the lake holds a bucket (0: not at all), and from which offset on it has its rows of any offset."""
    offset = None if snapshot is None else snapshot.offsets.get(part.bucket)
    if snapshot is None or offset is None:
        return 0, 0
    return offset.end, snapshot.starts.get(part.bucket, 0)


def earliest_available(bucket: BucketState, snapshot: LakeSnapshot | None) -> int:
    """Return the first offset from which on the rows of a bucket are available.

    Raises:
        FlussError: The cluster does not know where the bucket begins, and the lake does not reach back to its begin.
    """
    starts = []
    if snapshot is not None and bucket.bucket in snapshot.offsets:
        starts.append(snapshot.starts.get(bucket.bucket, 0))
    if 0 in starts or (starts and not bucket.is_known):
        return starts[0]
    if (start := bucket.start) is not None:
        starts.append(start)
    return min(starts, default=bucket.end)


def _gone_error(source: TableSource, part: BucketPart, start: int, end: int) -> OffsetOutOfRangeError:
    """Return the error that says what is left of a bucket that the cluster does not have any more."""
    left = f"the lake has them as of offsets {start} to {end}" if end else "the lake never had any"
    return OffsetOutOfRangeError(
        f"{_name(source, part)}: its rows as of offset {part.stop} are no longer available: the cluster has "
        f"dropped the bucket, and {left}"
    )


def _beyond_reach(source: TableSource, part: BucketPart, earliest: int) -> OffsetOutOfRangeError:
    """Return the error that says from which offset on the rows of a bucket are available."""
    return OffsetOutOfRangeError(
        f"{_name(source, part)}: its rows as of offset {part.stop} are no longer available: "
        f"{source.availability(part.bucket, earliest)}"
    )


def _name(source: TableSource, part: BucketPart) -> str:
    where = "" if part.partition is None else f" of partition {part.partition!r}"
    return f"table {source.info.path}, bucket {part.bucket.bucket}{where}"
