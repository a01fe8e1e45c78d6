"""Manifests are read as pyiceberg reads them, whoever wrote them and by whichever codec; damage is named."""

import io
import json
import random
from collections.abc import Mapping
from copy import copy

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestFile

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.metadata import avro_file
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.lake.iceberg.metadata.metadata_files import read_manifest
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, live_state
from fluss_lab.lake.iceberg.table.layout import known_layout
from tests.unit.lake.changelogs import commit_files
from tests.unit.lake.conftest import records
from tests.unit.lake.foreign import equality_deletes
from tests.unit.lake.iceberg.maintenance.test_compaction import rows
from tests.unit.lake.upkeep import COLUMNS, Upkeep, keyed_lake


def manifests(table) -> list[tuple[ManifestFile, bytes]]:
    """Return the manifests of every snapshot, removed files among theirs, with their bytes."""
    found = []
    all_of_them = {each for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)}
    for manifest in sorted(all_of_them, key=lambda each: each.manifest_path):
        with table.io.new_input(manifest.manifest_path).open() as stream:
            found.append((manifest, stream.read()))
    return found


class Held:
    """Access to a file whose bytes are at hand."""

    def __init__(self, data) -> None:
        self.data = data

    def new_input(self, location):
        return self

    def open(self, seekable=True):
        return io.BytesIO(self.data)


def read(manifest, data) -> list[tuple]:
    """Return the live entries of a manifest that has some bytes."""
    manifest = copy(manifest)
    manifest[1] = len(data)
    assert manifest.manifest_length == len(data)
    return [plain(entry) for entry in read_manifest(Held(data), manifest)]


def plain(entry) -> tuple:
    numbers = (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    values = [dict(each) if isinstance(each, Mapping) else each for each in entry.data_file._data]
    return (*numbers, entry.data_file.spec_id, values)


@pytest.fixture
def tables(lake, seed):
    """Tables of both kinds, with and without partitions, with deletes of both kinds, compacted."""
    rng = random.Random(seed)
    keyed = keyed_lake(lake, buckets=2)
    for _ in range(3):
        keyed.change(rng, 15)
        keyed.round()
    Upkeep(lake, keyed.info).compact()
    for _ in range(2):
        keyed.change(rng, 15)
        keyed.round()
    table = lake.load(keyed.info)
    commit_files(lake, keyed.info, [], [equality_deletes(table, keyed.info, {"id": [1]})])
    plain = lake.table(
        {"id": "bigint", "name": "string", "p": "string not null"}, name="p", table_id=9, partitioned_by=["p"]
    )
    for number, part in enumerate(["a", "é", "b-1"]):
        batch = rows(lake.info(COLUMNS), 5).append_column("p", pa.array([part] * 5))
        lake.commit(plain, lake.write(plain, records(batch, 5 * number), partition=part))
    return [(info, lake.load(info)) for info in (keyed.info, plain)]


def test_live_entries_are_those_of_pyiceberg(tables):
    removed = 0
    for _, table in tables:
        for manifest, data in manifests(table):
            assert read(manifest, data) == [plain(entry) for entry in manifest.fetch_manifest_entry(Held(data))]
            removed += manifest.deleted_files_count
    assert removed


def test_manifests_of_other_writers(tables, monkeypatch):
    """Other codecs, blocks of one entry, arrays that say their size."""

    def put_items(out, items, put):
        if items:
            start = len(out)
            for item in items:
                put(item)
            inner = bytes(out[start:])
            del out[start:]
            avro_file._put_long(out, -len(items))
            avro_file._put_long(out, len(inner))
            out += inner
        out += b"\x00"

    monkeypatch.setattr(avro_file, "_put_items", put_items)
    for _, table in tables:
        for manifest, data in manifests(table):
            parsed = AvroFile.parse(data, "m")
            parsed.blocks[:] = [[value] for block in parsed.blocks for value in block]
            for codec in (b"null", b"deflate", b"zstandard", b"snappy"):
                given = AvroFile({**parsed.header, "avro.codec": codec}, parsed.sync, parsed.blocks).to_bytes()
                assert given != data
                assert read(manifest, given) == read(manifest, data)


def test_of_manifests_without_metrics_the_files_are_opened(tables):
    """Metrics are optional; of a file without them the offsets are looked up in it."""
    info, table = tables[1]
    layout = known_layout(info, table)
    expected = live_state(table, info.path, layout, table.current_snapshot(), EntryCache())
    cache = EntryCache()
    for manifest, data in manifests(table):
        parsed = AvroFile.parse(data, "m")
        schema = parsed.schema
        file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
        file["fields"] = [field for field in file["fields"] if field["name"] not in {"lower_bounds", "upper_bounds"}]
        given = AvroFile({**parsed.header, "avro.schema": json.dumps(schema).encode()}, parsed.sync, parsed.blocks)
        given = given.to_bytes()
        manifest[1] = len(given)
        entries = read_manifest(Held(given), manifest)
        assert all(entry.data_file.upper_bounds is None for entry in entries)
        cache.keep(manifest.manifest_path, entries)
    found = live_state(table, info.path, layout, table.current_snapshot(), cache)
    assert [each.keys() for each in (found, expected)] == [expected.keys()] * 2
    for key, state in found.items():
        assert [bounds(file) for file in state.data] == [bounds(file) for file in expected[key].data]


def bounds(file) -> tuple:
    return file.file.file_path, file.min_offset, file.max_offset, file.max_timestamp_us, file.data_sequence_number


def test_damaged_manifests_are_named(tables):
    _, table = tables[0]
    manifest, data = manifests(table)[0]
    for cut in (data[: len(data) // 2], data[:-40] + bytes(40)):
        with pytest.raises(CorruptDataError, match=manifest.manifest_path):
            read(manifest, cut)
