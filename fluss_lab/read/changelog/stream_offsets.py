"""The position of a stream of a table: an offset in every bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_lab.errors import CorruptDataError, InvalidRequestError
from fluss_lab.model import TableBucket
from fluss_lab.model.format_versions import check_format
from fluss_lab.model.json_codec import check_checksum, with_checksum

_VERSION: Final = 1
#: What no partition's id is.
NO_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a stream stands. Plain data, which Spark keeps in its checkpoints as JSON.

    Attributes:
        table: Path of the table, for people.
        table_id: Its id: a table of the same path made later is another.
        offsets: By bucket: the offset of the next record.
        partitions: Name of each partition that has a bucket in `offsets`, by its id.
        newest_partition: Partitions of larger ids are new, and read from their beginning; of those up to it, only the ones
            listed are read. -1 while there was none.
        created_ms: When the table was made: one of a lab whose folder was made anew may have the same id. None: an older
            release wrote the offset.
        origin: The offsets at which the stream began: of where it begins, and of its first batch's end. Spark keeps where batches
            end, and asks anew where the first one starts. None: it has got on since, or an older release wrote the offset.
        lossy_drops: The number of the table's newest drop of a partition by which records were lost: of those up to it the
            stream's records were read, or their loss was reported. None: there are no partitions, or an older release
            wrote the offset.
    """

    table: str
    table_id: int
    offsets: Mapping[TableBucket, int]
    partitions: Mapping[int, str] = field(default_factory=dict)
    newest_partition: int = NO_PARTITION
    created_ms: int | None = None
    origin: Mapping[TableBucket, int] | None = None
    lossy_drops: int | None = None

    @property
    def is_origin(self) -> bool:
        """Return whether the stream begins here."""
        return self.origin == self.offsets

    def name(self, bucket: TableBucket) -> str | None:
        """Return the name of a bucket's partition; None without partitions."""
        return None if bucket.partition_id is None else self.partitions[bucket.partition_id]

    def begin(self, bucket: TableBucket) -> int | None:
        """Return the offset of the next record of a bucket: of one of a partition made since, 0; None: it is not read."""
        is_new = bucket.partition_id is not None and bucket.partition_id > self.newest_partition
        return self.offsets.get(bucket, 0 if is_new else None)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as a JSON object; equal offsets give equal texts."""
        return with_checksum(self._value())

    def _value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"version": _VERSION, "table": self.table, "table_id": self.table_id}
        if self.created_ms is not None:
            value["created_ms"] = self.created_ms
        if self.origin is not None:
            # By partition, bucket and offset: an older release, which does not know of it, reads the rest as ever.
            value["origin"] = [[each.partition_id, each.bucket, offset] for each, offset in _ascending(self.origin)]
        if self.lossy_drops is not None:
            value["lossy_drops"] = self.lossy_drops
        if self.newest_partition == NO_PARTITION and not self.partitions:
            return value | {"offsets": {str(each.bucket): offset for each, offset in _ascending(self.offsets)}}
        value |= {"newest_partition": self.newest_partition, "partitions": {}}
        for number, name in sorted(self.partitions.items()):
            value["partitions"][str(number)] = {"name": name, "offsets": {}}
        for bucket, offset in _ascending(self.offsets):
            value["partitions"][str(bucket.partition_id)]["offsets"][str(bucket.bucket)] = offset
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> StreamOffset:
        """Read an offset.

        Raises:
            InvalidRequestError: It is none.
            CorruptDataError: It is not as it was written.
            UnsupportedError: A newer version wrote it.
        """
        try:
            check_format("offset of a stream, in the query's checkpoint", value["version"], _VERSION)
            if value["version"] != _VERSION:
                raise InvalidRequestError(
                    f"offset of a stream: expected version {_VERSION}, found {value['version']!r}: this checkpoint was "
                    "written by another release of fluss_lab; go on with that, or start the stream in a new checkpoint"
                )
            _check_unchanged(value)
            table_id = int(value["table_id"])
            offsets: dict[TableBucket, int] = {}
            partitions: dict[int, str] = {}
            for bucket, offset in value.get("offsets", {}).items():
                offsets[TableBucket(table_id, None, int(bucket))] = _check_offset(offset)
            for number, partition in value.get("partitions", {}).items():
                partitions[int(number)] = str(partition["name"])
                for bucket, offset in partition["offsets"].items():
                    offsets[TableBucket(table_id, int(number), int(bucket))] = _check_offset(offset)
            origin = None if value.get("origin") is None else _origin(table_id, value["origin"])
            newest = int(value.get("newest_partition", NO_PARTITION))
            made = None if value.get("created_ms") is None else int(value["created_ms"])
            drops = None if value.get("lossy_drops") is None else int(value["lossy_drops"])
            return StreamOffset(str(value["table"]), table_id, offsets, partitions, newest, made, origin, drops)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequestError(f"not the offset of a stream ({error!r}): {str(value)[:200]}") from error


def _check_unchanged(value: Mapping[str, Any]) -> None:
    """Refuse what was changed since it was written: Spark keeps no checksum of its own that goes with a copy."""
    try:
        check_checksum("offset of a stream, in the query's checkpoint", value)
    except ValueError as error:
        raise CorruptDataError(
            f"{error}; restore the checkpoint from a backup, or start the stream in a new one: {str(value)[:200]}"
        ) from error


def _origin(table_id: int, value: Iterable[tuple[Any, Any, Any]]) -> dict[TableBucket, int]:
    return {
        TableBucket(table_id, None if number is None else int(number), int(bucket)): _check_offset(offset)
        for number, bucket, offset in value
    }


def _ascending(offsets: Mapping[TableBucket, int]) -> Iterable[tuple[TableBucket, int]]:
    return sorted(offsets.items(), key=lambda item: (item[0].partition_id or 0, item[0].bucket))


def _check_offset(offset: Any) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ValueError(f"expected an offset of at least 0, found {offset!r}")
    return offset
