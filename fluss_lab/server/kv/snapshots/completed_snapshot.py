"""The description of a completed key-value snapshot, which the tablet server sends to the coordinator as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.json_codec import Whole, decode, encode
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
        retained: Ids of the snapshots that there were at its report, ascending; this one among them.
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

    def to_json(self) -> bytes:
        """Return what is reported to the coordinator, as JSON."""
        names = _Report.__struct_fields__[3:]
        report = _Report(
            self.bucket.table_id, self.bucket.partition_id, self.bucket.bucket, *(getattr(self, name) for name in names)
        )
        return encode(report, version=FORMAT, indent=0)

    @staticmethod
    def from_json(data: bytes | str) -> CompletedSnapshot:
        """Read what `to_json` returned.

        Raises:
            InvalidRequestError: It is nothing of that form.
            UnsupportedError: A newer version wrote it.
        """
        report = decode(_Report, data, "completed snapshot in JSON", version=FORMAT, error=InvalidRequestError)
        values = msgspec.structs.asdict(report)
        bucket = TableBucket(values.pop("table_id"), values.pop("partition_id"), values.pop("bucket_id"))
        return CompletedSnapshot(bucket, **values)


class _Report(msgspec.Struct, rename={"location": "snapshot_location", "new_bytes": "snapshot_incremental_size"}):
    """The JSON form: names as in Apache Fluss."""

    table_id: Whole
    partition_id: Whole | None
    bucket_id: Whole
    snapshot_id: Whole
    location: str
    log_offset: Whole
    row_count: Whole
    size_bytes: Whole
    new_bytes: Whole
    created_ms: Whole
    retained: tuple[Whole, ...]
    broken: tuple[Whole, ...]
