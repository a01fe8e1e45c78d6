"""Seals: a byte that changed anywhere in a file of tiering's is found, and files without a seal are read as they are."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.file_seals import AVRO_KEY, check_parquet, seal_json
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.lake.iceberg.metadata.metadata_files import read_list, read_metadata
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.conftest import Lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    return Lake(tmp_path_factory.mktemp("seals"))


@pytest.fixture(scope="module")
def table(lake):
    """Nothing is compressed, so that most bytes can change without a file's ceasing to be one of its kind."""
    properties = {f"iceberg.write.{kind}.compression-codec": "uncompressed" for kind in ("avro", "parquet")}
    info = lake.table({"id": "bigint", "text": "string"}, properties=properties)
    for first in (0, 10):
        rows = {"id": list(range(first, first + 10)), "text": [f"t{n}" for n in range(10)]}
        lake.append(info, pa.RecordBatch.from_pydict(rows, info.schema.arrow_schema), first)
    return lake.load(info)


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def damaged(path: Path, rng: random.Random, count: int):
    """Yield a file again and again, each time with another byte changed; and cut off; it is well afterwards."""
    data = path.read_bytes()
    for at in rng.sample(range(len(data)), min(count, len(data))):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        yield f"flipped at {at}"
        path.write_bytes(data[:at])
        yield f"cut at {at}"
    path.write_bytes(data)


def check(path: Path, seed: int, count: int, read) -> int:
    """Check that every damage is found, or changes nothing; return how often it was found."""
    right, found = read(), 0
    for what in damaged(path, random.Random(seed), count):
        try:
            got = read()
        except CorruptDataError as error:
            named = path.name[:12] in str(error)
            found += named
        else:
            assert got == right, what
    assert read() == right
    return found


def test_a_manifest(table, seed):
    (manifest, *_) = EntryCache().manifests(table.io, table.current_snapshot())

    def read():
        return [list(entry.data_file._data) for entry in EntryCache().entries(table.io, manifest)]

    assert check(local(manifest.manifest_path), seed, 150, read) > 280


def test_a_manifest_list(table, seed):
    path, number = table.current_snapshot().manifest_list, table.current_snapshot().snapshot_id

    def read():
        found = read_list(table.io, path, number)
        return [(each.manifest_path, each.manifest_length, each.added_rows_count) for each in found]

    assert check(local(path), seed, 150, read) > 280


def test_table_metadata(table, seed):
    def read():
        return read_metadata(table.io, table.metadata_location)

    assert check(local(table.metadata_location), seed, 150, read) > 290


def test_the_footer_of_a_data_file(table, seed):
    (file, *_) = [task.file for task in table.scan().plan_files()]
    path = local(file.file_path)
    found = 0
    data = path.read_bytes()
    rng = random.Random(seed)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in rng.sample(range(start, data.rindex(b"crc32 of the footer")), 100):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        try:
            check_parquet(path)
        except ValueError:
            found += 1
    path.write_bytes(data)
    check_parquet(path)
    assert found == 100


def test_pages_of_data_files_have_checksums(lake, table):
    (file, *_) = [task.file for task in table.scan().plan_files()]
    path = local(file.file_path)
    data = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(0).column(1)
    at = chunk.data_page_offset + chunk.total_compressed_size - 1
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        source = lake.storage.create_lake_source(lake.info({"id": "bigint", "text": "string"}))
        with pytest.raises(CorruptDataError, match="checksum"):
            list(source.read(source.plan(table.metadata.current_snapshot_id), ["text"]))
    finally:
        path.write_bytes(data)


def test_a_file_that_is_rewritten_is_sealed_anew(table):
    path = local(table.current_snapshot().manifest_list)
    parsed = AvroFile.parse(path.read_bytes(), "list")
    assert AVRO_KEY in parsed.header
    for block in parsed.blocks:
        for record in block:
            record["manifest_path"] += b"x"
    again = AvroFile.parse(parsed.to_bytes(), "list")
    assert again.blocks == parsed.blocks
    assert again.sync != parsed.sync


def test_rows_that_somebody_copies_bring_no_seal_of_the_copy(table, tmp_path):
    (file, *_) = [task.file for task in table.scan().plan_files()]
    copy = tmp_path / "copy.parquet"
    pq.write_table(pq.read_table(local(file.file_path)), copy)
    check_parquet(copy)


def test_another_file_of_ours_in_the_place_of_one_is_found(table):
    """Seen: of the same length and number of rows it was read, and rows were in the answer twice while others were not."""
    one, other = [local(task.file.file_path) for task in table.scan().plan_files()]
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    try:
        with pytest.raises(ValueError, match=f"in its place is {other.name}, another file"):
            check_parquet(one)
    finally:
        one.write_bytes(kept)


def test_another_list_or_manifest_in_the_place_of_one_is_found(table):
    """Seen: an older list was read as the newest, and rows that had ended were in the answer."""
    before, after = table.metadata.snapshots
    lists = local(before.manifest_list), local(after.manifest_list)
    one, other = EntryCache().manifests(table.io, after)
    kept = lists[1].read_bytes()
    lists[1].write_bytes(lists[0].read_bytes())
    swapped = local(one.manifest_path)
    manifest = swapped.read_bytes()
    swapped.write_bytes(local(other.manifest_path).read_bytes())
    try:
        with pytest.raises(
            CorruptDataError, match=f"the list of snapshot {after.snapshot_id}, found that of {before.snapshot_id}"
        ):
            EntryCache().manifests(table.io, after)
        one[1] = swapped.stat().st_size
        with pytest.raises(CorruptDataError, match=f"the manifest of snapshot {one.added_snapshot_id}, found that of"):
            EntryCache().entries(table.io, one)
    finally:
        lists[1].write_bytes(kept)
        swapped.write_bytes(manifest)


def test_other_readers_look_past_seals(table):
    assert duckdb_rows(table.metadata_location).num_rows == 20
    assert table.scan().to_arrow().num_rows == 20


def test_metadata_without_a_seal_is_read(table, tmp_path):
    text = local(table.metadata_location).read_bytes()
    plain = tmp_path / "plain.metadata.json"
    plain.write_bytes(text[: text.rindex(b',"fluss-seal"')] + b"}")
    assert seal_json(plain.read_bytes()) == text
    assert read_metadata(table.io, str(plain)) == table.metadata
