"""The rows of a primary-key table in a lake that others changed, held against those that the cluster has.

Such a table's rows are those of its log. A row that another program deleted, changed or added in the lake is another one to
whoever looks it up, and the changelog does not have the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client import Connection
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError
from fluss_lab.lake import SYSTEM_FIELDS, FetchContext, LakeSource, LakeStorage, SupportsCreateFlussLogSource
from fluss_lab.lake.system_columns import OFFSET_COLUMN
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.read.changelog.net_changes import same_values
from fluss_lab.read.union.change_masks import end_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Offsets that are named of a bucket.
_NAMED_MAX: Final = 5
_OFFSET: Final = pa.field(OFFSET_COLUMN, pa.int64())


@dataclass(frozen=True, slots=True)
class RowDifference:
    """How the rows of a bucket in the lake differ from the cluster's; each by the offsets of rows.

    Attributes:
        key: Partition name and bucket.
        missing: Of rows that the lake does not have.
        changed: Of rows with other values there.
        added: Of rows that the cluster does not have.
    """

    key: BucketKey
    missing: NDArray[np.int64]
    changed: NDArray[np.int64]
    added: NDArray[np.int64]

    def __bool__(self) -> bool:
        return bool(len(self.missing) or len(self.changed) or len(self.added))

    def __str__(self) -> str:
        partition, bucket = self.key
        found = [
            f"{len(offsets)} row(s) {what} (offset {', '.join(map(str, offsets[:_NAMED_MAX].tolist()))}"
            f"{', ...' if len(offsets) > _NAMED_MAX else ''})"
            for what, offsets in (
                ("deleted", self.missing), ("with other values", self.changed), ("that the table does not have", self.added)
            )
            if len(offsets)
        ]  # fmt: skip
        return f"bucket {bucket}{'' if partition is None else f' of partition {partition}'} has {' and '.join(found)}"


class RowCheck:
    """Compares the rows of one primary-key table. Used by one thread.

    Args:
        connection: To the cluster.
        storage: The lake.
        table: The table.
        known_id: The lake snapshot that the cluster knows.
        newest_id: The one that is compared.
    """

    def __init__(
        self, connection: Connection, storage: LakeStorage, table: TableInfo, known_id: int, newest_id: int
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._table = table
        self._newest_id = newest_id
        self._source = storage.create_lake_source(table)
        self._files = _files(self._source, newest_id)
        try:
            self._known: dict[BucketKey, set[object]] | None = _files(self._source, known_id)
        except (LakeSnapshotNotFoundError, CorruptDataError):  # expired, or without its manifests
            self._known = None

    def is_changed(self, key: BucketKey) -> bool:
        """Return whether a bucket may have other rows than in the snapshot that the cluster knows."""
        return self._known is None or self._known.get(key) != self._files.get(key)

    def difference(self, bucket: TableBucket, partition: str | None, stop: int) -> RowDifference:
        """Return how the lake's rows of a bucket differ from those that were live at an offset of its log.

        Raises:
            OffsetOutOfRangeError: The log does not reach back to that offset any more.
            CorruptDataError: A file of the lake is damaged, or two rows have the same offset.
            FlussError: As `Connection.scan_kv` and `read_range`.

        Cost: memory for all rows of the bucket, twice.
        """
        key = (partition, bucket.bucket)
        names = self._table.schema.names
        lake = rows_in_lake(self._source, self._table, self._newest_id, key, stop, [*names, OFFSET_COLUMN])
        ours = _rows_in_cluster(self._connection, self._table, bucket, partition, stop)
        theirs, wanted = _offsets(lake), _offsets(ours)
        both = np.intersect1d(theirs, wanted, assume_unique=True)
        one, other = (
            rows.take(pa.array(np.searchsorted(offsets, both))) for rows, offsets in ((lake, theirs), (ours, wanted))
        )
        same = np.ones(len(both), dtype=np.bool_)
        for name in names:
            same = same_values(one.column(name).combine_chunks(), other.column(name).combine_chunks(), same)
        return RowDifference(
            key, np.setdiff1d(wanted, both, True), both[~same], np.setdiff1d(theirs, both, True)
        )  # fmt: skip

    def can_replay(self, key: BucketKey, start: int, stop: int) -> bool:
        """Return whether the lake holds every record of a range of a bucket's log.

        Cost: the files that hold them are read.
        """
        if not isinstance(self._storage, SupportsCreateFlussLogSource):
            return True
        source = self._storage.create_fluss_log_source(self._table)
        earliest = source.earliest_offset(*key, self._newest_id)
        context = FetchContext(max(start, earliest or 0), stop, *key, self._newest_id, ())
        try:
            for _ in source.fetch_log_records(context):
                pass
        except CorruptDataError:
            return False
        return True


def rows_in_lake(
    source: LakeSource, table: TableInfo, snapshot_id: int, key: BucketKey, stop: int, names: Sequence[str]
) -> pa.Table:
    """Return the rows of a bucket that were live at an offset of its log, ascending by their own.

    Args:
        source: Of the table.
        table: The table.
        snapshot_id: A snapshot that holds the bucket's log up to `stop` at least.
        key: Partition name and bucket.
        stop: The offset.
        names: Columns wanted, user's and system, ``__offset`` among them.

    Raises:
        LakeSnapshotNotFoundError: There is no such snapshot (any more).
        CorruptDataError: A file of the lake is damaged, or two rows have the same offset.
    """
    fields = {field.name: field for field in (*table.schema.arrow_schema, *SYSTEM_FIELDS)}
    schema = pa.schema([fields[name] for name in names])
    stops = {key: stop}
    found = source.read(source.plan(snapshot_id, stops=stops), names, stops=stops)
    rows = pa.Table.from_batches([batch.cast(schema) for _, batch in found], schema)
    rows = rows.take(pc.sort_indices(rows.column(OFFSET_COLUMN))).combine_chunks()
    offsets = _offsets(rows)
    if bool((offsets[1:] == offsets[:-1]).any()):
        raise CorruptDataError(f"table {table.path}, bucket {key[1]}: two rows in the lake have the same offset")
    return rows


def _files(source: LakeSource, snapshot_id: int) -> dict[BucketKey, set[object]]:
    """Return what holds the rows of each bucket in a snapshot."""
    found: dict[BucketKey, set[object]] = {}
    for split in source.plan(snapshot_id):
        found.setdefault((split.partition, split.bucket), set()).update((split.path, *split.deletes))
    return found


def _offsets(rows: pa.Table) -> NDArray[np.int64]:
    offsets: NDArray[np.int64] = rows.column(OFFSET_COLUMN).to_numpy()
    return offsets


def _rows_in_cluster(
    connection: Connection, table: TableInfo, bucket: TableBucket, partition: str | None, stop: int
) -> pa.Table:
    """Return the rows of a bucket that were live at an offset of its log, ascending by their own: later changes undone."""
    schema = pa.schema([*table.schema.arrow_schema, _OFFSET])

    def batch(rows: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, offsets], schema=schema)

    with connection.scan_kv(table, bucket) as scan:
        moment = scan.log_offset
        live = [batch(run.rows, run.offsets) for run in scan]
    ended = []
    for records in read_range(
        connection, table, bucket, stop, moment, partition=partition, lake=False, previous_offsets=True
    ):
        assert records.previous_offsets is not None, "asked for"
        mask = pa.array(end_mask(records))
        ended.append(batch(records.rows, records.previous_offsets).filter(mask))
    rows = pa.Table.from_batches([*live, *ended], schema)
    rows = rows.filter(pc.field(OFFSET_COLUMN) < stop)
    return rows.take(pc.sort_indices(rows.column(OFFSET_COLUMN))).combine_chunks()
