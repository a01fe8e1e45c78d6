"""The search of one record in a lake table: file and position, of rows in data files and of events in delete files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CommitConflictError
from fluss_lab.lake.iceberg.metadata.replay_chain import ChainLink
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeFile
from fluss_lab.lake.iceberg.read.delete_event_reader import EventFile
from fluss_lab.lake.iceberg.read.lake_table import LakeTable
from fluss_lab.lake.iceberg.read.pk_log import gap
from fluss_lab.lake.iceberg.write.row_locator import NOWHERE, RowLocator, offset_files
from fluss_lab.lake.reader_interfaces import LakeRecordPlace
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model.names import BucketKey


def locate(table: LakeTable, key: BucketKey, offset: int, snapshot_id: int) -> LakeRecordPlace | None:
    """Return where a record of a bucket's log lies in a snapshot, or in one that is kept for replay; None: in neither.

    Raises:
        LakeSnapshotNotFoundError: No such snapshot; or another one was expired meanwhile: ask again.
        CorruptDataError: Of a primary-key table: the record should be there, and is not; or it is there twice.
    """
    link = _link(table, key, offset, snapshot_id)
    if link is None:
        return None
    try:
        place = _in_data(table, link, offset) or _in_events(table, link, offset)
    except (FileNotFoundError, CommitConflictError) as error:
        raise table.missing(link.snapshot_id, FileNotFoundError(str(error))) from error
    if place is None and not table.info.is_log_table:
        raise gap(f"table {table.info.path}, partition {key[0]}, bucket {key[1]}", offset, offset + 1)
    return place


def _link(table: LakeTable, key: BucketKey, offset: int, snapshot_id: int) -> ChainLink | None:
    """Return what should hold a record; None when nothing does. A log table has gaps: there its files say it."""
    if table.info.is_log_table:
        return ChainLink(snapshot_id, 0, offset + 1, BucketFiles(table.snapshot_files(snapshot_id).data(key)))
    chain = table.chain(snapshot_id)
    if offset < chain.replay_start(snapshot_id, key):
        return None
    return next((link for link in chain.links(snapshot_id, key) if link.start <= offset < link.stop), None)


def _in_data(table: LakeTable, link: ChainLink, offset: int) -> LakeRecordPlace | None:
    files = [file for file in link.state.data if file.min_offset <= offset <= file.max_offset]
    if not files:
        return None
    locator = RowLocator(table.io(), offset_files(files), table.columns().layout.system_ids[1])
    (number,), (position,) = locator.locate(np.array([offset], dtype=np.int64))
    if number == NOWHERE:
        return None
    file = files[int(number)]
    time_ms = _time_ms(table, file, link.snapshot_id, offset)
    return LakeRecordPlace(link.snapshot_id, file.file.file_path, "data", int(position), time_ms)


def _time_ms(table: LakeTable, file: LakeFile, snapshot_id: int, offset: int) -> int:
    where = pc.field(OFFSET_COLUMN) == pa.scalar(offset, pa.int64())
    with table.open(file.file.file_path, snapshot_id) as reader:
        groups = [group for group in reader.groups if group.min_offset <= offset <= group.max_offset]
        rows = reader.read(groups, [TIMESTAMP_COLUMN], where)
    return int(rows.column(0).cast(pa.int64())[0].as_py()) // 1000


def _in_events(table: LakeTable, link: ChainLink, offset: int) -> LakeRecordPlace | None:
    deletes = [delete for known, delete in link.events if known.min_offset <= offset <= known.max_offset]
    for delete in deletes:
        path = delete.file.file_path
        with EventFile(table.io(), path, table.columns()) as file:
            if (found := file.place(offset)) is not None:
                content = "equality deletes" if delete.is_equality else "position deletes"
                return LakeRecordPlace(link.snapshot_id, path, content, *found)
    return None
