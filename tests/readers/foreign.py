"""Compactions by somebody else: the same live rows in other files, committed as an engine does that knows nothing of us."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace
from fluss_lab.model.values.required_fields import cast_column
from tests.readers.lake_files import live_files


def compact(table: Table, rng: random.Random) -> None:
    """Rewrite all rows of a table, each bucket to one or two files whose offsets interleave, without its deletes.

    The files ascend by offset, as the table's sort order says; the deletes go with the rows that they ended.
    """
    snapshot = table.current_snapshot()
    assert snapshot is not None
    removed = list(live_files(table, snapshot))
    template: dict[tuple[Any, ...], DataFile] = {}
    for file in removed:
        if file.content is DataFileContent.DATA:
            template.setdefault(tuple(file.partition[index] for index in range(len(file.partition))), file)
    added = [
        (_write(table, part, template[key], statistics=rng.random() < 0.7), snapshot.sequence_number)
        for key, rows in _buckets(table).items()
        for part in _parts(rows, rng)
    ]
    staged = stage_replace(table, removed=removed, added=added, summary={"engine-name": "another"})
    table.catalog.commit_table(table, staged.requirements, staged.updates)


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in a schema, what is NOT NULL within a null ROW included, which other engines write as they please."""
    columns = [cast_column(rows.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _buckets(table: Table) -> dict[tuple[Any, ...], pa.Table]:
    """Return the live rows by partition values, which end with the bucket."""
    rows = table.scan().to_arrow().sort_by("__offset")
    partitions = [each.name for each in table.spec().fields[:-1]]
    keys = list(zip(*[rows[name].to_pylist() for name in [*partitions, "__bucket"]], strict=True))
    places: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        places[key].append(index)
    return {key: rows.take(indices) for key, indices in places.items()}


def _parts(rows: pa.Table, rng: random.Random) -> list[pa.Table]:
    chosen = pa.array([rng.random() < 0.5 for _ in range(len(rows))])
    if rng.random() < 0.5:
        return [rows]
    both = [rows.filter(chosen), rows.filter(pa.compute.invert(chosen))]
    return [part for part in both if len(part)]


def _write(table: Table, rows: pa.Table, template: DataFile, *, statistics: bool) -> DataFile:
    location = f"{template.file_path.rpartition('/')[0]}/{uuid.uuid4().hex}.parquet"
    schema = table.schema().as_arrow()
    fields = [
        # Within a nested type are field ids too, which what pyiceberg has read lacks.
        field if pa.types.is_nested(field.type) else field.with_type(rows.schema.field(field.name).type)
        for field in map(schema.field, rows.column_names)
    ]
    with table.io.new_output(location).create() as stream:
        pq.write_table(_cast(rows, pa.schema(fields)), stream)
    with table.io.new_input(location).open() as stream:
        metadata = pq.read_metadata(stream)
    found: dict[str, Any] = {}
    if statistics:
        found = data_file_statistics_from_parquet_metadata(
            metadata,
            compute_statistics_plan(table.schema(), table.properties),
            parquet_path_to_id_mapping(table.schema()),
        ).to_serialized_dict()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=template.partition,
        file_size_in_bytes=len(table.io.new_input(location)),
        **{**found, "record_count": len(rows)},
    )
    file.spec_id = table.spec().spec_id
    return file
