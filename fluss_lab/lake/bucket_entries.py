"""The entries of buckets in a property of a lake snapshot, as text: a list, or packed where there are many.

Up to `LISTED_MAX` buckets the text is a JSON array of objects ``{"partition_id", "partition_name", "bucket", "offset",
"max_timestamp"}``, the first two absent without partitions, the last where it is not known. Of more it is an object
``{"version": 1, "packed": text}``: Base64 of what zlib makes of the JSON array of `_Group`. Table metadata has the text of
every snapshot, and every commit writes it: 10,000 buckets are 1.1 MB as a list, 0.1 MB packed.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import LakeOffset
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.names import BucketKey

VERSION: Final = 1
#: Of so many buckets a text is a list, which other programs and people read.
LISTED_MAX: Final = 256
#: Bytes of a packed text when it is unpacked: some five million buckets. A text that comes to more is none of ours.
_UNPACKED_BYTES_MAX: Final = 256 << 20
#: Most of what a higher level gains, at a third of its time.
_LEVEL: Final = 6
#: How much of a text an error shows.
_SHOWN: Final = 200


class BucketEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a property says of one bucket."""

    partition_id: int | None = None
    partition_name: str | None = None
    bucket: int
    offset: int
    max_timestamp: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return self.partition_name, self.bucket

    def to_offset(self) -> LakeOffset:
        """Return how far the bucket is tiered."""
        timestamp_ms = -1 if isinstance(self.max_timestamp, msgspec.UnsetType) else self.max_timestamp
        return LakeOffset(self.offset, timestamp_ms, self.partition_name)


class _Group(msgspec.Struct, frozen=True, array_like=True):
    """Buckets of one partition, or of a table without partitions, by columns: these compress.

    Attributes:
        partition_id: None without partitions.
        partition_name: Likewise.
        buckets: Ascending, as are the entries.
        offsets: One a bucket.
        timestamps: One a bucket, less `since`; None where it is not known.
        since: The first one that is known; 0 without any.
    """

    partition_id: int | None
    partition_name: str | None
    buckets: list[int]
    offsets: list[int]
    timestamps: list[int | None]
    since: int = 0

    def __post_init__(self) -> None:
        if not len(self.buckets) == len(self.offsets) == len(self.timestamps):
            raise ValueError(f"{len(self.buckets)} buckets, {len(self.offsets)} offsets, {len(self.timestamps)} times")

    @staticmethod
    def of(partition_id: int | None, name: str | None, entries: Sequence[BucketEntry]) -> _Group:
        """Return entries of one partition as a group."""
        times = [None if isinstance(each.max_timestamp, msgspec.UnsetType) else each.max_timestamp for each in entries]
        since = next((time for time in times if time is not None), 0)
        return _Group(
            partition_id,
            name,
            [each.bucket for each in entries],
            [each.offset for each in entries],
            [None if time is None else time - since for time in times],
            since,
        )

    def entries(self) -> Iterator[BucketEntry]:
        """Yield the entries."""
        for bucket, offset, time in zip(self.buckets, self.offsets, self.timestamps, strict=True):
            yield BucketEntry(
                partition_id=self.partition_id,
                partition_name=self.partition_name,
                bucket=bucket,
                offset=offset,
                max_timestamp=msgspec.UNSET if time is None else self.since + time,
            )


class _Packed(msgspec.Struct, frozen=True):
    """The packed form."""

    version: int
    packed: str


def write_entries(entries: Iterable[BucketEntry]) -> str:
    """Return the text of entries, which keeps their order."""
    found = list(entries)
    if len(found) <= LISTED_MAX:
        return encode(found).decode()
    groups = [
        _Group.of(*key, list(some))
        for key, some in groupby(found, key=lambda each: (each.partition_id, each.partition_name))
    ]
    packed = b64encode(zlib.compress(encode(groups), _LEVEL)).decode()
    return encode(_Packed(VERSION, packed)).decode()


def read_entries(text: str, what: str) -> list[BucketEntry]:
    """Return what a text says of each bucket, of either form.

    Args:
        text: From `write_entries`, of this release or an older one.
        what: Names the property in errors.

    Raises:
        CorruptDataError: It is no such text.
        UnsupportedError: A newer release wrote it.
    """
    where = f"{what}: no list of buckets with offsets"
    if not text.startswith("{"):
        return decode(list[BucketEntry], text, where, shown=True)
    packed = decode(_Packed, text, where, version=VERSION, shown=True).packed
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(b64decode(packed, validate=True), _UNPACKED_BYTES_MAX)
    except (ValueError, zlib.error) as error:
        raise CorruptDataError(f"{where}: {error}, found {text[:_SHOWN]!r}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptDataError(f"{where}: expected one whole text of at most {_UNPACKED_BYTES_MAX} bytes, packed")
    return [entry for group in decode(list[_Group], data, where) for entry in group.entries()]
