"""Key-value snapshots read by a client from their files: each live row once, as asked, or an error that says what to do."""

from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab.client.kv.kv_snapshot_reader import KvSnapshotMetadata, read_snapshot
from fluss_lab.errors import CorruptDataError, InvalidSchemaError, KvSnapshotNotFoundError, StorageError
from fluss_lab.records.kv_manifest import read_manifest
from tests.unit.server.kv.snapshot_kit import BUCKET, SCHEMA, SCHEMAS, WIDER, Puts, rows_of, store, write


def metadata_of(folder, snapshot_id):
    """What the coordinator tells of a snapshot."""
    manifest = read_manifest(folder / f"{snapshot_id:010d}.manifest")
    files = {name: str(folder / name) for name in manifest.file_names}
    return KvSnapshotMetadata(BUCKET, snapshot_id, manifest.log_offset, files)


@pytest.fixture
def puts():
    made = Puts()
    made.put(*range(100))
    made.put(*range(90, 120), schema_id=2)
    made.delete(*range(10, 20, 2))
    return made


@pytest.fixture
def metadata(tmp_path, puts):
    write(store(tmp_path), puts.image())
    return metadata_of(tmp_path, 0)


def test_each_live_row_is_read_once(metadata, puts):
    runs = list(read_snapshot(metadata, SCHEMAS, rows_max=7))
    assert all(0 < len(run) <= 7 and run.rows.schema.equals(WIDER) for run in runs)
    found = [
        row
        for run in runs
        for row in zip(
            run.rows["id"].to_pylist(), run.rows["name"].to_pylist(), run.offsets.to_pylist(),
            run.timestamps_ms.to_pylist(), strict=True,
        )
    ]  # fmt: skip
    assert sorted(found) == [tuple(row[:4]) for row in rows_of(puts.image())]
    for run in runs:
        assert run.offsets.to_pylist() == sorted(set(run.offsets.to_pylist()))
        assert run.rows["note"].null_count == len(run)


def test_only_the_columns_asked_come_in_the_order_asked(metadata, puts):
    runs = list(read_snapshot(metadata, SCHEMAS, columns=["note", "id"]))
    assert [field.name for field in runs[0].rows.schema] == ["note", "id"]
    ids = sorted(each for run in runs for each in run.rows["id"].to_pylist())
    assert ids == sorted(puts.ids())
    # A chunk of the older schema has nothing of this column.
    only = list(read_snapshot(metadata, SCHEMAS, columns=["note"]))
    assert sum(len(run) for run in only) == len(ids)
    assert all(run.rows.num_rows == len(run) for run in only)


def test_an_older_schema_can_be_asked(metadata, puts):
    runs = list(read_snapshot(metadata, SCHEMAS, schema_id=1))
    assert all(run.rows.schema.equals(SCHEMA) for run in runs)
    assert sum(len(run) for run in runs) == len(puts.ids())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"schema_id": 9}, "schema 9 is not known"),
        ({"columns": ["id", "nme"]}, "'nme' is unknown; expected id, name, note"),
    ],
)
def test_what_is_unknown_is_refused(metadata, arguments, text):
    with pytest.raises(InvalidSchemaError, match=text):
        list(read_snapshot(metadata, SCHEMAS, **arguments))


def test_a_schema_of_the_rows_must_be_known(metadata):
    with pytest.raises(InvalidSchemaError, match="rows of schema 2"):
        list(read_snapshot(metadata, {1: SCHEMA}))


def test_an_expired_snapshot_says_so(tmp_path, puts, metadata):
    snapshots = store(tmp_path, retained=1)
    write(snapshots, puts.image())
    with pytest.raises(KvSnapshotNotFoundError, match="fetch the latest one"):
        list(read_snapshot(metadata, SCHEMAS))
    assert sum(len(run) for run in read_snapshot(metadata_of(tmp_path, 1), SCHEMAS)) == len(puts.ids())


def test_one_that_expires_while_it_is_read_says_so(tmp_path, metadata):
    reading = read_snapshot(metadata, SCHEMAS, rows_max=1)
    next(reading)
    for path in sorted(tmp_path.iterdir()):
        path.unlink()
    with pytest.raises(KvSnapshotNotFoundError):
        list(reading)


@pytest.mark.parametrize(
    "name", ["0000000000.live", "0000000000-0.chunks", "0000000000-1.chunks", "0000000000.manifest"]
)
def test_a_damaged_file_is_never_read(tmp_path, metadata, name):
    path = tmp_path / name
    data = path.read_bytes()
    for at in range(0, len(data), 11):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(CorruptDataError, match=name):
            list(read_snapshot(metadata, SCHEMAS))


def test_another_snapshot_in_its_place_is_refused(metadata):
    for changed in (
        replace(metadata, log_offset=metadata.log_offset + 1),
        replace(metadata, bucket=replace(BUCKET, bucket=3)),
    ):
        with pytest.raises(CorruptDataError, match="expected a snapshot of"):
            list(read_snapshot(changed, SCHEMAS))


def test_files_out_of_reach_are_no_damage(metadata):
    """A task on another machine without the shared folder."""
    away = replace(metadata, files={name: f"/nowhere/at/all/{name}" for name in metadata.files})
    with pytest.raises(StorageError, match="cannot be read from here"):
        list(read_snapshot(away, SCHEMAS))


def test_a_null_in_a_key_is_damage(tmp_path):
    """The files come from elsewhere: what Arrow's own checks do not see is checked too."""
    from fluss_lab.server.kv.row_chunks import KvChunk
    from fluss_lab.server.kv.store_view import KvImage

    puts = Puts()
    puts.put(1, 2)
    chunk = puts.image().chunks[0]
    nulls = pa.RecordBatch.from_arrays([pa.array([1, None]), chunk.rows.column(1)], schema=SCHEMA)
    image = KvImage(2, (KvChunk(0, 1, nulls, chunk.offsets, chunk.timestamps_ms),), puts.image().live, 1)
    write(store(tmp_path), image)
    with pytest.raises(CorruptDataError, match="null"):
        list(read_snapshot(metadata_of(tmp_path, 0), SCHEMAS))
