"""Read points: a moment of a table, to read it there again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import FlussError, InvalidRequestError, error_from_code
from fluss_lab.model import TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment

_VERSION: Final = 1
#: Of a point with buckets that were not known: a reader of version 1 would take them for empty.
_VERSION_UNKNOWN: Final = 2


class PointBucket(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One bucket at a read point: its records are those with offsets in ``[start, stop)``.

    Attributes:
        partition: Name of its partition; None without partitions.
        partition_id: The partition's id: one of the same name made later is another.
        bucket: Its number.
        start: The first offset that was held anywhere when the point was taken; at most `stop`.
        stop: The offset after the last record.
    """

    partition: str | None
    partition_id: int | None
    bucket: int
    start: int
    stop: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)


class UnknownPointBucket(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A bucket of which it was not known how far it went when the point was taken. Reading it raises the error.

    Attributes:
        partition: Name of its partition; None without partitions.
        partition_id: The partition's id.
        bucket: Its number.
        code: The error's code on the wire.
        message: Its text.
    """

    partition: str | None
    partition_id: int | None
    bucket: int
    code: int
    message: str

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)

    @property
    def error(self) -> FlussError:
        """Return the error, to be raised."""
        return error_from_code(self.code, self.message)


@check_arguments
@dataclass(frozen=True, slots=True, repr=False)
class ReadPoint:
    """A moment of a table. Reading at it gives the same rows whenever it is done, as long as they are held.

    Attributes:
        path: The table.
        table_id: Its id: a table of the same path made later is another.
        schema_id: The schema that rows are read in.
        moment_ms: When it was taken; for one in the past, that time; of a lake snapshot, its newest record's.
        as_of: Whether it was asked for by time: all records with a timestamp up to `moment_ms`.
        snapshot_id: The lake snapshot to begin with; a hint, for when it is gone any newer one gives the same rows.
        buckets: Every bucket that had been made, by partition name and bucket.
        unknown: Those of them of which it was not known how far they went. Only a scan of other buckets or partitions
            takes a point with such.
        created_ms: When the table was made: another lab's may have the same path and id. None: an older release wrote the point.
        lossy_drops: The number of the table's newest drop of a partition by which records were lost: the point has nothing of
            it. None: it was not asked for, or an older release wrote the point.
    """

    path: TablePath
    table_id: int
    schema_id: int
    moment_ms: int
    as_of: bool
    snapshot_id: int | None
    buckets: tuple[PointBucket, ...]
    unknown: tuple[UnknownPointBucket, ...] = ()
    created_ms: int | None = None
    lossy_drops: int | None = None

    def check_known(self) -> None:
        """Raise the error of the first bucket of which it was not known how far it went, if there is one."""
        if self.unknown:
            raise self.unknown[0].error

    @property
    def keys(self) -> list[BucketKey]:
        """Return every bucket, known or not."""
        return [*(each.key for each in self.buckets), *(each.key for each in self.unknown)]

    @property
    def stops(self) -> Mapping[BucketKey, int]:
        """Return the offset after the last record, by (partition name or None, bucket).

        Raises:
            FlussError: That of one was not known.
        """
        self.check_known()
        return {each.key: each.stop for each in self.buckets}

    @property
    def records(self) -> int:
        """Return how many records the table had.

        Raises:
            FlussError: That of one bucket was not known.
        """
        self.check_known()
        return sum(each.stop - each.start for each in self.buckets)

    def to_json(self) -> str:
        """Return the point as text that `from_json` reads: to keep it, or to hand it to another process."""
        form = _Form(
            str(self.path), self.table_id, self.schema_id, self.moment_ms, self.as_of, self.snapshot_id, self.buckets,
            self.unknown, self.created_ms, self.lossy_drops,
        )  # fmt: skip
        return encode(form, version=_VERSION_UNKNOWN if self.unknown else _VERSION, indent=0).decode()

    @staticmethod
    def from_json(text: str) -> ReadPoint:
        """Read a point.

        Raises:
            InvalidRequestError: The text is none.
            UnsupportedError: A newer version wrote it.
        """
        form = decode(
            _Form, text, "read point in JSON", version=_VERSION_UNKNOWN, oldest=_VERSION, error=InvalidRequestError,
            shown=True,
        )  # fmt: skip
        values = [getattr(form, name) for name in form.__struct_fields__[1:]]
        return ReadPoint(TablePath.parse(form.table), *values)

    def __repr__(self) -> str:
        kind = "as of" if self.as_of else "taken"
        lake = "" if self.snapshot_id is None else f", lake snapshot {self.snapshot_id}"
        unknown = f", {len(self.unknown)} not known" if self.unknown else ""
        return (
            f"<ReadPoint {self.path} {kind} {format_moment(self.moment_ms)}: "
            f"{sum(b.stop - b.start for b in self.buckets):,} records in {len(self.buckets)} buckets{unknown}{lake}>"
        )

    def _repr_html_(self) -> str:
        notes = [f"bucket {each.bucket} is not known: {each.message}" for each in self.unknown]
        rows = [[b.partition, b.bucket, b.start, b.stop, b.stop - b.start] for b in self.buckets[:CARD_ROWS_MAX]]
        return card(
            "ReadPoint",
            f"{self.path} {'as of' if self.as_of else 'at'} {format_moment(self.moment_ms)}",
            [
                ("records", sum(each.stop - each.start for each in self.buckets)),
                ("buckets", len(self.buckets)),
                ("lake snapshot", None if self.snapshot_id is None else str(self.snapshot_id)),
            ],
            notes=notes,
            grid=Grid(["partition", "bucket", "start", "stop", "records"], rows),
            total=len(self.buckets),
            noun="bucket",
            calls=["table.scan(read_point=point)"],
        )


class _Form(msgspec.Struct, omit_defaults=True):
    """The JSON form: the fields of a point, its table as a path."""

    table: str
    table_id: int
    schema_id: int
    moment_ms: int
    as_of: bool
    snapshot_id: int | None
    buckets: tuple[PointBucket, ...]
    unknown: tuple[UnknownPointBucket, ...] = ()
    created_ms: int | None = None
    lossy_drops: int | None = None

    def __post_init__(self) -> None:
        TablePath.parse(self.table)
        for each in self.buckets:
            if not 0 <= each.start <= each.stop:
                raise ValueError(f"expected offsets of at least 0 and ascending, found {each.start} and {each.stop}")
