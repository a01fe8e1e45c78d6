"""The rows of one primary-key bucket as the lake has them, in the form in which its server takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import SYSTEM_FIELDS, LakeStorage
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.records.kv_files import stored_schema

#: Bytes of rows that are sent in one piece, about.
PART_BYTES: Final = 4 << 20


def lake_bucket_rows(
    storage: LakeStorage, table: TableInfo, snapshot_id: int, place: tuple[str | None, int], stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bucket that were live at an offset of its log, ascending by their own.

    Args:
        storage: The lake.
        table: The table.
        snapshot_id: A snapshot that holds the bucket's log up to `stop` at least.
        place: Partition name and bucket.
        stop: The offset.

    Raises:
        LakeSnapshotNotFoundError: There is no such snapshot (any more).
        CorruptDataError: A file of the lake is damaged, or two rows have the same offset.

    Cost: memory for all rows of the bucket, as its server needs for them too.
    """
    source = storage.create_lake_source(table)
    stops = {place: stop}
    splits = source.plan(snapshot_id, stops=stops)
    user = table.descriptor.schema.arrow()
    names = [*user.names, OFFSET_COLUMN, TIMESTAMP_COLUMN]
    system = [field for field in SYSTEM_FIELDS if field.name in names]
    found = pa.Table.from_batches(
        [batch.cast(pa.schema([*user, *system])) for _, batch in source.read(splits, names, stops=stops)],
        pa.schema([*user, *system]),
    )
    found = found.take(pc.sort_indices(found.column(OFFSET_COLUMN))).combine_chunks()
    offsets = found.column(OFFSET_COLUMN).to_numpy()
    if bool((offsets[1:] == offsets[:-1]).any()):
        raise CorruptDataError(f"table {table.path}, bucket {place[1]}: two rows in the lake have the same offset")
    times = found.column(TIMESTAMP_COLUMN).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    found = found.set_column(len(names) - 1, TIMESTAMP_COLUMN, times).cast(stored_schema(user))
    for batch in found.to_batches():
        yield from _pieces(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield halves of halves of a batch, until each is small enough or one row."""
    if batch.num_rows > 1 and batch.nbytes > PART_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch
