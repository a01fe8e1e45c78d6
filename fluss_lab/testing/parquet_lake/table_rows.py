"""The rows of a table's snapshot; of a primary-key table those that no later change has ended."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.lake import SYSTEM_FIELDS
from fluss_lab.lake.format_interfaces import BUCKET_COLUMN, OFFSET_COLUMN
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.testing.parquet_lake.parquet_source import read_file
from fluss_lab.testing.parquet_lake.parquet_storage import ParquetLakeStorage
from fluss_lab.testing.parquet_lake.parquet_writer import CHANGE_TYPE, PREVIOUS_OFFSET, file_schema
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder


def read_state(storage: ParquetLakeStorage, table: TableInfo, snapshot_id: int | None = None) -> pa.Table:
    """Return the rows of a snapshot, user's and system columns, by partition, bucket and offset.

    Args:
        storage: The lake.
        table: The table.
        snapshot_id: Which snapshot; None: the newest, no rows without any.

    Cost: the whole table in memory.
    """
    folder = LakeFolder(storage.warehouse, table.path)
    newest = folder.owned(table.table_id)
    wanted = newest.snapshot_id if snapshot_id is None else snapshot_id
    files = () if wanted is None else folder.snapshot(table.table_id, wanted).files
    buckets: dict[tuple[str, int], list[LakeFile]] = {}
    for file in files:
        buckets.setdefault((file.partition or "", file.bucket), []).append(file)
    schema = pa.schema([*table.schema.arrow(), *SYSTEM_FIELDS])
    parts = [_live(folder, table, buckets[key]).select(schema.names) for key in sorted(buckets)]
    return pa.concat_tables([schema.empty_table(), *parts])


def _live(folder: LakeFolder, table: TableInfo, files: list[LakeFile]) -> pa.Table:
    schema = file_schema(table)
    batches = [batch for file in files for batch in read_file(folder.data_file(file.name), schema, schema.names)]
    rows = pa.Table.from_batches(batches, schema).sort_by(OFFSET_COLUMN)
    assert pc.count_distinct(rows[BUCKET_COLUMN]).as_py() <= 1
    if table.is_log_table:
        return rows
    # Every change but +I names the row that it ends, by the offset that the row has kept.
    ended = rows[PREVIOUS_OFFSET.name]
    adds = pc.is_in(rows[CHANGE_TYPE.name], pa.array([ChangeType.INSERT, ChangeType.UPDATE_AFTER], pa.int8()))
    return rows.filter(pc.and_(adds, pc.invert(pc.is_in(rows[OFFSET_COLUMN], ended.combine_chunks()))))
