"""The place of one record: the lake's file, the log's segments, or both; and what is held where it is in neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fluss_lab.client.log.segment_place import SegmentPlace, segment_places
from fluss_lab.display import LAKE, LOG, Cell, Grid, card, short
from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
)
from fluss_lab.lake import LakeRecordPlace
from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.log_retention import bucket_text, held_ranges, time_at
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState

#: Ranges of offsets that an error names.
_NAMED_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where one record lives. At least one of `lake`, `local` and `remote` is there; several while it is held twice.

    Attributes:
        path: The table.
        partition: Name of the partition; None without partitions.
        bucket: The bucket's number.
        offset: The record's offset.
        timestamp_ms: Its timestamp.
        lake: File, row and snapshot, where the lake holds it.
        local: Segment and batch on its server's disk, while they are there.
        remote: Segment and batch in remote storage, while they are there.
        remote_error: Why it is not known whether remote storage holds it too; None: it is known.
    """

    path: TablePath
    partition: str | None
    bucket: int
    offset: int
    timestamp_ms: int
    lake: LakeRecordPlace | None
    local: SegmentPlace | None
    remote: SegmentPlace | None
    remote_error: str | None = None

    @property
    def log(self) -> SegmentPlace | None:
        """Return where the cluster reads the record: on the server's disk, else in remote storage; None in neither."""
        return self.local or self.remote

    def __repr__(self) -> str:
        places = [text for _, text in self._places()]
        where = bucket_text((self.partition, self.bucket))
        return f"<RecordPlace {self.path}, bucket {where}, offset {self.offset}: {'; '.join(places)}>"

    def _places(self) -> list[tuple[str, str]]:
        found = []
        if self.lake is not None:
            lake = self.lake
            found.append(
                ("lake", f"lake {lake.content} {short(lake.file, 80)} row {lake.position}, snapshot {lake.snapshot_id}")
            )
        for each in (self.local, self.remote):
            if each is not None:
                kind = "remote" if each.is_remote else "log"
                found.append(
                    (kind, f"{kind} segment {short(each.file, 80)} at byte {each.position}, server {each.server}")
                )
        if self.remote_error is not None:
            found.append(("remote", f"remote storage not known: {short(self.remote_error, 120)}"))
        return found

    def _repr_html_(self) -> str:
        rows: list[list[object]] = []
        if self.lake is not None:
            rows.append([
                Cell("lake", LAKE), self.lake.file, f"row {self.lake.position:,}",
                f"{self.lake.content}, snapshot {self.lake.snapshot_id}",
            ])  # fmt: skip
        for each in (self.local, self.remote):
            if each is not None:
                held = "remote storage" if each.is_remote else f"disk of server {each.server}"
                rows.append([
                    Cell("remote" if each.is_remote else "log", LOG), each.file, f"byte {each.position:,}",
                    f"{held}, segment [{each.base_offset}, {each.end_offset})",
                ])  # fmt: skip
        return card(
            "RecordPlace",
            self.path,
            [
                ("bucket", bucket_text((self.partition, self.bucket))),
                ("offset", self.offset),
                ("time", format_moment(self.timestamp_ms)),
            ],
            notes=[self.remote_error and f"Whether remote storage holds it is not known: {self.remote_error}"],
            grid=Grid(["in", "file", "position", "of"], rows),
            noun="place",
        )


def locate(source: TableSource, partition: str | None, bucket: int, offset: int) -> RecordPlace:
    """Return where one record lives. See `TableReader.locate`."""
    info = source.info
    if (partition is None) is bool(info.descriptor.partitioned_by):
        expected = "the name of its partition" if info.descriptor.partitioned_by else "no partition (None)"
        raise InvalidRequestError(f"table {info.path}: locate: expected {expected}, found {partition!r}")
    if not 0 <= bucket < info.descriptor.buckets:
        raise BucketNotFoundError(
            f"table {info.path}: expected a bucket in [0, {info.descriptor.buckets}), found {bucket}"
        )
    if offset < 0:
        raise InvalidRequestError(f"table {info.path}: locate: expected an offset of at least 0, found {offset}")
    key = partition, bucket

    def look(state: TableState) -> tuple[RecordPlace | None, TableState]:
        return _locate(source, state, key, offset), state

    found, state = source.answer(look)
    while found is None:
        # It may have left the cluster since the look, for the lake; or for good.
        before = state.snapshot_id
        found, state = source.answer(look)
        if found is None and state.snapshot_id == before:
            raise _gone_error(source, state, _bucket(source, state, key), offset)
    return found


def _bucket(source: TableSource, state: TableState, key: BucketKey) -> BucketState:
    bucket = next((each for each in state.buckets if each.key == key), None)
    if bucket is None:
        raise PartitionNotFoundError(f"table {source.info.path}: no partition {key[0]!r}, in cluster or lake")
    return bucket


def _locate(source: TableSource, state: TableState, key: BucketKey, offset: int) -> RecordPlace | None:
    """Return where a record is by a look at the table; None where neither lake nor cluster has it."""
    bucket = _bucket(source, state, key)
    if offset >= bucket.end:
        raise OffsetOutOfRangeError(
            f"table {source.info.path}, bucket {bucket_text(key)}: expected the offset of a record, below its end "
            f"{bucket.end}, found {offset}: no record has it yet"
        )
    lake = None
    if offset < bucket.lake_end and state.snapshot is not None:
        lake = source.log_source.locate_record(*key, offset, state.snapshot.snapshot_id)
    local, remote, remote_error = None, None, None
    if not bucket.is_dropped:
        local, remote, remote_error = segment_places(source.connection, source.info, bucket.bucket, offset)
    times = [each.timestamp_ms for each in (local, remote, lake) if each is not None]
    if not times:
        return None
    return RecordPlace(source.info.path, *key, offset, times[0], lake, local, remote, remote_error)


def _gone_error(source: TableSource, state: TableState, bucket: BucketState, offset: int) -> OffsetOutOfRangeError:
    """Return the error that says from where on records are held."""
    held = held_ranges(source, state, bucket)
    named = [f"[{start}, {stop}){time_at(source, state, bucket, start)}" for start, stop in held[:_NAMED_MAX]]
    more = f" and {len(held) - _NAMED_MAX} more ranges" if len(held) > _NAMED_MAX else ""
    left = (
        f"; held are the offsets {', '.join(named)}{more}" if held else f": nothing is held before its end {bucket.end}"
    )
    return OffsetOutOfRangeError(
        f"table {source.info.path}, bucket {bucket_text(bucket.key)}: the record with offset {offset} is held neither in the "
        f"cluster nor in the lake any more{left}"
    )
