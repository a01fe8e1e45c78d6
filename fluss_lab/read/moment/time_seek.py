"""The seek of a time in a table's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.display import LAKE as LAKE_HUE
from fluss_lab.display import LOG as LOG_HUE
from fluss_lab.display import Cell, Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState

if TYPE_CHECKING:
    import pandas as pd

#: Where an offset lives.
LOCAL: Final = "local"
REMOTE: Final = "remote"
LAKE: Final = "lake"
END: Final = "end"

_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("lives", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SeekBucket:
    """Where a time lies in one bucket.

    Attributes:
        partition: Name of its partition; None without partitions.
        bucket: Its number.
        offset: The first offset at or after the time; the bucket's end when there is none.
        timestamp_ms: Timestamp of the record there; None at the end.
        lives: ``local`` (the cluster's disk), ``remote`` (the remote log), ``lake``, or ``end``.
        partition_id: The partition's id: one of the same name made later is another.
    """

    partition: str | None
    bucket: int
    offset: int
    timestamp_ms: int | None
    lives: str
    partition_id: int | None = None


class Seek(Mapping[int | BucketKey, SeekBucket]):
    """Where a time lies, by bucket; in a partitioned table by (partition, bucket). Fit to start a changelog from.

    Made by `Table.seek`.
    """

    def __init__(
        self,
        path: TablePath,
        table_id: int,
        moment_ms: int,
        buckets: list[SeekBucket],
        *,
        created_ms: int | None = None,
    ) -> None:
        self.path = path
        self.table_id = table_id
        #: When the table was made: another lab's may have the same path and id.
        self.created_ms = created_ms
        self.moment_ms = moment_ms
        self.buckets = tuple(buckets)
        self._by_key = {_key(each): each for each in buckets}

    def __getitem__(self, key: int | BucketKey) -> SeekBucket:
        if isinstance(key, tuple) and key[0] is None:
            key = key[1]
        return self._by_key[key]

    def __iter__(self) -> Iterator[int | BucketKey]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def offsets(self) -> dict[BucketKey, int]:
        """Return the offsets by (partition name or None, bucket)."""
        return {(each.partition, each.bucket): each.offset for each in self.buckets}

    def to_arrow(self) -> pa.Table:
        """Return one row per bucket: partition, bucket, offset, timestamp, lives."""
        columns = {
            "partition": [each.partition for each in self.buckets],
            "bucket": [each.bucket for each in self.buckets],
            "offset": [each.offset for each in self.buckets],
            "timestamp": [each.timestamp_ms for each in self.buckets],
            "lives": [each.lives for each in self.buckets],
        }
        arrays = [
            pa.array(columns[f.name], pa.int64()).cast(f.type)
            if f.name == "timestamp"
            else pa.array(columns[f.name], f.type)
            for f in _SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_arrow` as a pandas frame."""
        return to_pandas(self.to_arrow())

    def __repr__(self) -> str:
        lives = [each.lives for each in self.buckets]
        where = ", ".join(f"{lives.count(kind)} {kind}" for kind in (LOCAL, REMOTE, LAKE, END) if kind in lives)
        return f"<Seek {self.path} to {format_moment(self.moment_ms)}: {len(self)} buckets ({where or 'none'})>"

    def _repr_html_(self) -> str:
        hues = {LOCAL: LOG_HUE, REMOTE: LOG_HUE, LAKE: LAKE_HUE}
        # Where there is something to read first.
        order = sorted(self.buckets, key=lambda each: each.lives == END)
        rows = [
            [each.partition, each.bucket, each.offset,
             None if each.timestamp_ms is None else format_moment(each.timestamp_ms),
             Cell(each.lives, hues.get(each.lives))]
            for each in order[:CARD_ROWS_MAX]
        ]  # fmt: skip
        lives = [each.lives for each in self.buckets]
        places = [(kind, lives.count(kind)) for kind in (LOCAL, REMOTE, LAKE, END) if kind in lives]
        return card(
            "Seek",
            f"{self.path} to {format_moment(self.moment_ms)}",
            [("buckets", len(self)), *places],
            grid=Grid(_SCHEMA.names, rows),
            total=len(self),
            noun="bucket",
            calls=["table.changelog(start=seek)"],
        )


def _key(each: SeekBucket) -> int | BucketKey:
    return each.bucket if each.partition is None else (each.partition, each.bucket)


def seek(source: TableSource, moment_ms: int) -> Seek:
    """Return, per bucket, the first offset at or after a time; the bucket's end when there is none, now or not yet."""
    buckets = source.answer(lambda state: _sought(source, state, moment_ms))
    return Seek(source.info.path, source.info.table_id, moment_ms, buckets, created_ms=source.info.created_ms)


def _sought(source: TableSource, state: TableState, moment_ms: int) -> list[SeekBucket]:
    answers = source.offsets_by_time(state, moment_ms)
    found = []
    for each in state.buckets:
        answer = answers[each.key]
        lives = _lives(each, answer.offset, answer.timestamp_ms)
        found.append(
            SeekBucket(
                each.partition, each.bucket.bucket, answer.offset, answer.timestamp_ms, lives, each.bucket.partition_id
            )
        )
    return found


def _lives(bucket: BucketState, offset: int, timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return END
    if bucket.is_dropped:
        return LAKE
    if bucket.local_start is not None and offset >= bucket.local_start:
        return LOCAL
    return REMOTE if bucket.holds_from(offset) else LAKE
