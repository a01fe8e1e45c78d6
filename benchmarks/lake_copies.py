"""Copies of a lake table that differ in nothing but their deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace

#: A position-delete file as everybody writes it: these two columns and no other.
BARE: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def delete_files(table: Table) -> list[tuple[DataFile, int]]:
    """Return the live delete files of the newest snapshot with their data sequence numbers."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        (entry.data_file, entry.sequence_number or 0)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content is not DataFileContent.DATA
    ]


def with_bare_deletes(catalog: Catalog, table: Table, name: str) -> Table:
    """Return a second table over the same data files whose position deletes are the same, without their rows.

    Args:
        catalog: Where the copy is registered, in the table's namespace.
        table: It stays as it is, and so do its files.
        name: Of the copy.
    """
    copied = catalog.register_table((*table.name()[:-1], name), table.metadata_location)
    deletes = delete_files(copied)
    added = [(_bare(file, number), sequence) for number, (file, sequence) in enumerate(deletes)]
    staged = stage_replace(copied, removed=[file for file, _ in deletes], added=added, summary={})
    catalog.commit_table(copied, staged.requirements, staged.updates)
    return catalog.load_table((*table.name()[:-1], name))


def _bare(file: DataFile, number: int) -> DataFile:
    """Write a delete file anew with the two columns that every reader knows."""
    location = f"{file.file_path.rpartition('/')[0]}/bare-{number}.parquet"
    path = _local(location)
    deletes = pq.ParquetFile(_local(file.file_path)).read(["file_path", "pos"])
    pq.write_table(deletes.cast(BARE), path, compression="zstd")
    bare = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format="PARQUET",
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=path.stat().st_size,
        # Paths alone: readers prune by them.
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
    )
    bare.spec_id = file.spec_id
    return bare


def _local(location: str) -> Path:
    return Path(unquote(urlparse(location).path))
