"""The plan of giving up damaged ranges of a table's logs: what is held elsewhere, brought there first, or lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fluss_lab.client import Connection
from fluss_lab.client.cluster.log_damage import DamagedBucket, DamagedOffsets
from fluss_lab.display import Grid, card, plural
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import LakeSnapshotNotFoundError, UnsupportedError, UntieredRecordsError
from fluss_lab.model import TableBucket, TableInfo, TablePath
from fluss_lab.model.times import format_moment

#: Offsets ``[start, stop)``.
Range: TypeAlias = tuple[int, int]

_COLUMNS: Final = ("partition", "bucket", "file", "damaged", "tiered first", "in the lake", "in remote storage", "lost")
DISCARD: Final = "--discard-before"


@dataclass(frozen=True, slots=True)
class RangePlan:
    """What becomes of one damaged range. Ranges are None where they are empty.

    Attributes:
        bucket: Whose.
        partition: Name of its partition; None without partitions.
        damage: The range, and the file in which it is.
        to_tier: Sound records before it that only the log holds: they are tiered first.
        in_lake: What the lake holds of it.
        in_remote: What remote storage holds of it.
        lost: What no copy holds of it.
        discarded: Sound records before it that are held nowhere else, and are lost too.
        anew: Whether the lake's rows of the bucket are written anew, from a key-value snapshot, because its changelog has
            a gap.
        rows_offset: The rows of a primary-key table need the log from here on; None of a log table.
        lake_rows: They are made from those that the lake has, as they were at this offset; None: that is not needed, or not
            possible.
        lake_end: Up to where the lake holds the bucket; None: it holds nothing.
        is_gone: Whether nothing of the log is left.
    """

    bucket: TableBucket
    partition: str | None
    damage: DamagedOffsets
    to_tier: Range | None
    in_lake: Range | None
    in_remote: Range | None
    lost: Range | None
    discarded: Range | None
    anew: bool
    rows_offset: int | None
    lake_rows: int | None = None
    lake_end: int | None = None
    is_gone: bool = False

    def __str__(self) -> str:
        return f"bucket {self.bucket.bucket}" + ("" if self.partition is None else f" of partition {self.partition}")

    @property
    def is_of_rows(self) -> bool:
        """Return whether the log is sound, and what cannot be read are the key-value snapshots of the rows it goes on from."""
        return self.damage.start == self.damage.stop and not self.is_gone

    @property
    def needs_rows(self) -> bool:
        """Return whether the rows of a primary-key table need what is damaged: it cannot be given up then."""
        return self.rows_until is not None and self.rows_until < self.damage.stop and not self.is_gone

    @property
    def rows_until(self) -> int | None:
        """Return up to which offset the rows of a primary-key table are known without what is damaged; None of a log table."""
        return None if self.rows_offset is None else max(self.rows_offset, self.lake_rows or 0)

    @property
    def rows_lost(self) -> Range | None:
        """Return the changes, of a log of which nothing is left, that rows are made without."""
        return None if self.rows_until is None else _range(self.rows_until, self.damage.stop)

    @property
    def needs_word(self) -> bool:
        """Return whether more is lost than the range itself."""
        is_missed = self.is_gone and (self.lost is not None or self.rows_lost is not None)
        return self.discarded is not None or self.anew or is_missed

    def lines(self) -> Iterator[str]:
        """Yield its lines in a plan."""
        damage, start = self.damage, self.damage.start
        if self.is_of_rows:
            yield (
                f"{self}: {damage.file}: no key-value snapshot has the rows that the log goes on from, which begins at offset {start}"
            )
        elif start == damage.stop:
            yield f"{self}: {damage.file}: nothing of the log is left, and no record is known that was in it"
        else:
            yield f"{self}: {damage.file}: offsets {range_text((start, damage.stop))} cannot be read{_times(damage)}"
        if self.is_gone:
            yield (
                "  nothing of the log is left there: what was appended after its server's last report "
                "(bucket.report.interval) is not known, and gone with it"
            )
        if self.needs_rows:
            yield (
                f"  not possible: the rows are made from the changes since offset {self.rows_offset}, where their newest key-value "
                f"snapshot is, and {self._lake_text()}: what {range_text(self._unknown)} made of them is not known; restore the "
                f"{'folder' if self.is_of_rows else 'file'} from a copy"
            )
            return
        if self.to_tier is not None:
            yield f"  sound records before them, {range_text(self.to_tier)}, are tiered first"
        for who, held in (("the lake", self.in_lake), ("remote storage", self.in_remote)):
            if held is not None:
                yield f"  {who} holds {range_text(held)}"
        yield f"  lost for ever: {range_text(self.lost)}" if self.lost is not None else "  nothing is lost"
        if self.discarded is not None:
            yield f"  lost too, sound records before them that are held nowhere else: {range_text(self.discarded)}"
        if self.lake_rows is not None:
            yield f"  the rows are made from those that the lake has, as they were at offset {self.lake_rows}"
        if self.rows_lost is not None:
            yield f"  the rows become what they were at offset {self.rows_until}: what {range_text(self.rows_lost)} changed is lost"
        elif self.rows_offset is not None and self.lost is not None:
            yield "  the rows are right all the same; the changelog of that time is what is lost"
        if self.anew:
            yield (
                "  the lake's rows of the bucket are written anew by the next round, from the newest key-value snapshot; the "
                "changelog before that can no longer be read from the lake"
            )
        if not self.is_of_rows:
            yield f"  the log begins at {damage.stop} then"

    @property
    def _unknown(self) -> Range:
        """Return the damaged changes that rows are missing."""
        first = 0 if self.is_of_rows else self.damage.start
        return max(first, self.lake_end or 0, self.rows_offset or 0), self.damage.stop

    def _lake_text(self) -> str:
        if self.lake_end is None:
            return "the lake does not hold the bucket"
        return f"the lake holds the bucket only up to offset {self.lake_end}"


@dataclass(frozen=True, slots=True)
class DamagePlan:
    """What giving up all damaged ranges of a table would do, or did.

    Attributes:
        table: Its path.
        ranges: Each damaged range, by bucket, ascending.
        unfinished: Gaps that were given up, and are not yet registered in the lake.
    """

    table: TablePath
    ranges: tuple[RangePlan, ...]
    unfinished: tuple[tuple[TableBucket, Range], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.ranges and not self.unfinished

    @property
    def needs_word(self) -> bool:
        """Return whether more is lost than what is damaged."""
        return any(each.needs_word for each in self.ranges)

    @property
    def is_possible(self) -> bool:
        """Return whether it can be done at all: of every range the rows do without what is damaged."""
        return not any(each.needs_rows for each in self.ranges)

    def check(self, *, discard_before: bool) -> None:
        """Raise unless it may be done.

        Raises:
            UnsupportedError: The rows of a primary-key table need what is damaged.
            UntieredRecordsError: More would be lost than that, and that is not accepted.
        """
        for each in self.ranges:
            if each.needs_rows:
                raise UnsupportedError(f"table {self.table}, {'; '.join(line.strip() for line in each.lines())}")
        words = [each for each in self.ranges if each.needs_word]
        if words and not discard_before:
            raise UntieredRecordsError(
                f"table {self.table}: more would be lost than what is damaged: {'; '.join(map(_more, words))}. Nothing was "
                f"changed. Where the table is not tiered yet, set table.datalake.enabled and do this again: what is sound is "
                f"tiered first then. Or accept the loss ({DISCARD})"
            )

    def __repr__(self) -> str:
        if self.is_empty:
            return f"table {self.table}: every byte of its logs can be read, and its rows; there is nothing to repair"
        lines = [f"table {self.table}:"]
        for each in self.ranges:
            lines += each.lines()
        lines += [
            f"bucket {bucket.bucket}: offsets {range_text(gap)} were given up; they are registered in the lake as lost"
            for bucket, gap in self.unfinished
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        # Those first of which something is lost.
        for each in sorted(self.ranges, key=lambda each: each.lost is None)[:CARD_ROWS_MAX]:
            parts = ((each.damage.start, each.damage.stop), each.to_tier, each.in_lake, each.in_remote, each.lost)
            texts = (None if part is None else range_text(part) for part in parts)
            rows.append((each.partition, each.bucket.bucket, each.damage.file, *texts))
        lost = sum(each.lost is not None for each in self.ranges)
        return card(
            "DamagePlan",
            self.table,
            [
                ("", "every byte can be read: there is nothing to repair" if self.is_empty else None),
                ("damaged ranges", len(self.ranges)),
                ("not yet registered in the lake", len(self.unfinished) or None),
            ],
            notes=[f"of {plural(lost, 'range')} something is lost"] if lost else [],
            grid=Grid(_COLUMNS, rows, right=_COLUMNS[3:], kept=("lost",)) if rows else None,
            total=len(self.ranges),
            noun="range",
            calls=[".ranges"] if len(self.ranges) > CARD_ROWS_MAX else [],
        )


def range_text(offsets: Range) -> str:
    """Return a range as texts show it."""
    return f"[{offsets[0]}, {offsets[1]})"


def _more(each: RangePlan) -> str:
    if each.is_gone and each.discarded is None:
        lost = [part for part in (each.lost, each.rows_lost) if part is not None]
        return (
            f"{each}: nothing of its log is left, and {range_text(min(lost))} are held nowhere else"
            if lost
            else f"{each}"
        )
    if each.discarded is None:
        return f"{each}: the changelog that the lake holds, because it would have a gap"
    return f"{each}: sound records {range_text(each.discarded)} before the damage, which are held nowhere else"


def _times(damage: DamagedOffsets) -> str:
    texts = []
    if damage.before_ms is not None:
        texts.append(f"from {format_moment(damage.before_ms)} on")
    if damage.after_ms is not None:
        texts.append(f"up to {format_moment(damage.after_ms)}")
    return f" (records {' '.join(texts)})" if texts else ""


def plan_of(connection: Connection, info: TableInfo, buckets: Sequence[DamagedBucket]) -> DamagePlan:
    """Return what giving up the damaged ranges of a table's buckets comes to.

    Raises:
        FlussError: The coordinator does not answer.
    """
    ranges = tuple(each for bucket in buckets for each in _ranges(info, bucket))
    ends = _lake_ends(connection, info) if any(each.given_up for each in buckets) else {}
    unfinished = []
    for each in buckets:
        gap = (ends.get(each.bucket, each.start), each.start)
        if gap[0] < gap[1] and was_given_up(gap, each):
            unfinished.append((each.bucket, gap))
    return DamagePlan(info.path, ranges, tuple(unfinished))


def was_given_up(gap: Range, bucket: DamagedBucket) -> bool:
    """Return whether all of a gap between the lake and a bucket's log was given up because of damage."""
    reached = gap[0]
    for each in bucket.given_up:
        if each.lost_start <= reached < each.stop:
            reached = each.stop
    return reached >= gap[1]


def _lake_ends(connection: Connection, info: TableInfo) -> dict[TableBucket, int]:
    """Return up to where the lake holds each bucket that was tiered."""
    if not info.descriptor.lake_enabled:
        return {}
    try:
        snapshot = connection.admin().lake_snapshot(info.path, table_id=info.table_id)
    except LakeSnapshotNotFoundError:
        return {}
    return {bucket: offset.end for bucket, offset in snapshot.offsets.items()}


def _ranges(info: TableInfo, bucket: DamagedBucket) -> Iterator[RangePlan]:
    """Yield what becomes of each damaged range of a bucket, one after another."""
    is_lake, is_keyed = info.descriptor.lake_enabled, bucket.rows_offset is not None
    start, lake, remote = bucket.start, bucket.lake_end, bucket.remote_end or 0
    if bucket.is_gone and is_keyed and remote < bucket.ranges[-1].stop:
        remote = 0  # the rows do not follow its part of the changelog
    for damage in bucket.ranges:
        # What remote storage holds of it is not given up.
        lost_from = max(damage.start, min(remote, damage.stop))
        # Up to where the sound records before it are held elsewhere. Remote storage that ends there leads no further.
        held = lost_from if lost_from == damage.stop else max(start, lake or 0)
        to_tier = discarded = None
        if held < lost_from and is_lake and not is_keyed:
            to_tier, lake = (held, lost_from), lost_from
        elif held < lost_from:
            discarded = (held, lost_from)
        lake_stop = min(lake or 0, damage.stop)
        lost = (max(lost_from, lake_stop), damage.stop)
        yield RangePlan(
            bucket=bucket.bucket,
            partition=bucket.partition,
            damage=damage,
            to_tier=to_tier,
            in_lake=_range(damage.start, lake_stop),
            in_remote=_range(damage.start, lost_from),
            lost=_range(*lost),
            discarded=discarded,
            anew=is_keyed and lake is not None and lost[0] < lost[1],
            rows_offset=bucket.rows_offset,
            lake_rows=bucket.lake_rows if bucket.needs_lake_rows else None,
            lake_end=bucket.lake_end,
            is_gone=bucket.is_gone,
        )
        if lost_from < damage.stop:
            start, lake = damage.stop, None if lake is None else max(lake, damage.stop)


def _range(start: int, stop: int) -> Range | None:
    return (start, stop) if start < stop else None
