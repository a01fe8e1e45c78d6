"""The description of a completed key-value snapshot, which the tablet server sends to the coordinator as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from fluss_lab.model.format_versions import check_format
from fluss_lab.model.names import TableBucket

#: Of the JSON form.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """A snapshot that is complete and durable.

    Attributes:
        bucket: Whose state it is.
        snapshot_id: Never used twice within the bucket.
        log_offset: All changes below it are in the snapshot, none from it on.
        row_count: Live rows.
        size_bytes: Of its files, those that it shares with other snapshots too.
        new_bytes: Of the files that were written for it.
        location: The folder of its files.
        created_ms: When its state was taken.
        retained: Ids of the snapshots that there were when this was said, ascending; this one among them.
        broken: Ids of the snapshots found broken and set aside (the last few), ascending.
        writers: The bucket's writers at the log offset, as given to `SnapshotStore.write`. Not part of the JSON.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    row_count: int
    size_bytes: int
    new_bytes: int
    location: str
    created_ms: int
    retained: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    writers: object = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return what the coordinator is told: plain values."""
        return {
            "version": FORMAT,
            "table_id": self.bucket.table_id,
            "partition_id": self.bucket.partition_id,
            "bucket_id": self.bucket.bucket,
            "snapshot_id": self.snapshot_id,
            "snapshot_location": self.location,
            "log_offset": self.log_offset,
            "row_count": self.row_count,
            "size_bytes": self.size_bytes,
            "snapshot_incremental_size": self.new_bytes,
            "created_ms": self.created_ms,
            "retained": list(self.retained),
            "broken": list(self.broken),
        }

    @staticmethod
    def from_json(value: Any) -> CompletedSnapshot:
        """Read what `to_json` returned.

        Raises:
            ValueError, TypeError, KeyError: It is nothing of that form.
            UnsupportedError: A newer version wrote it.
        """
        check_format("completed snapshot in JSON", value["version"], FORMAT)
        if value["version"] != FORMAT:
            raise ValueError(f"version: expected {FORMAT}, found {value['version']!r}")
        partition_id = value["partition_id"]
        bucket = TableBucket(
            _whole(value["table_id"]),
            None if partition_id is None else _whole(partition_id),
            _whole(value["bucket_id"]),
        )
        if not isinstance(value["snapshot_location"], str):
            raise TypeError("snapshot_location: expected a string")
        return CompletedSnapshot(
            bucket,
            snapshot_id=_whole(value["snapshot_id"]),
            log_offset=_whole(value["log_offset"]),
            row_count=_whole(value["row_count"]),
            size_bytes=_whole(value["size_bytes"]),
            new_bytes=_whole(value["snapshot_incremental_size"]),
            location=value["snapshot_location"],
            created_ms=_whole(value["created_ms"]),
            retained=tuple(map(_whole, value["retained"])),
            broken=tuple(map(_whole, value["broken"])),
        )


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"expected a whole number of at least 0, found {value!r}")
    return value
