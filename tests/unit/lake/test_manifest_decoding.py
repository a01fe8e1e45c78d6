"""Manifests decoded as far as is needed say what pyiceberg says of them, whoever wrote them, and the rest when asked."""

import json
import random

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestFile

from fluss_lab.lake.iceberg.metadata import avro_file
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.lake.iceberg.metadata.manifest_rows import HeldManifest
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, live_state
from fluss_lab.lake.iceberg.table.layout import known_layout
from tests.unit.lake.changelogs import commit_files
from tests.unit.lake.conftest import records
from tests.unit.lake.foreign import equality_deletes
from tests.unit.lake.test_compaction import rows
from tests.unit.lake.upkeep import COLUMNS, Upkeep, keyed_lake


def manifests(table) -> list[tuple[ManifestFile, bytes]]:
    """Return the manifests of every snapshot, removed files among theirs, with their bytes."""
    found = []
    all_of_them = {each for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)}
    for manifest in sorted(all_of_them, key=lambda each: each.manifest_path):
        with table.io.new_input(manifest.manifest_path).open() as stream:
            found.append((manifest, stream.read()))
    return found


def known(file) -> tuple:
    return (
        file.content,
        file.file_path,
        file.file_format,
        list(file.partition._data),
        file.record_count,
        file.file_size_in_bytes,
        file.spec_id,
    )


def check_manifest(manifest, data, ids, monkeypatch=None) -> None:
    """Check that rows say what pyiceberg says; with `monkeypatch` that it is not asked for them."""
    whole = HeldManifest(manifest, data).entries()
    held = HeldManifest(manifest, data)
    with pytest.MonkeyPatch.context() as patch:
        if monkeypatch is not None:
            patch.setattr(ManifestFile, "fetch_manifest_entry", None)
        found = held.rows(ids)
    assert [known(row.file) for row in found] == [known(entry.data_file) for entry in whole]
    assert [row.sequence_number for row in found] == [entry.sequence_number for entry in whole]
    for row, entry in zip(found, whole, strict=True):
        file = entry.data_file
        if ids[1] in (file.upper_bounds or {}):
            raw = (file.lower_bounds[ids[0]], file.upper_bounds[ids[0]], file.upper_bounds[ids[1]])
            assert row.bounds == tuple(int.from_bytes(each, "little", signed=True) for each in raw)
        else:
            assert row.bounds is None
        # What was not decoded comes when it is asked for.
        assert row.file.value_counts == file.value_counts
        assert row.file.upper_bounds == file.upper_bounds
        assert row.file.equality_ids == file.equality_ids
        assert row.file == file
        assert row.file[1] == file.file_path
    assert [known(row.file) for row in found] == [known(entry.data_file) for entry in whole]


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


def test_rows_say_what_pyiceberg_says(tables, monkeypatch):
    removed = 0
    for info, table in tables:
        ids = known_layout(info, table).system_ids[1:]
        for manifest, data in manifests(table):
            check_manifest(manifest, data, ids, monkeypatch)
            removed += manifest.deleted_files_count
    assert removed


def test_other_writers_manifests(tables, monkeypatch):
    """Other codecs, blocks of one entry, arrays that tell their size."""

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
    for info, table in tables:
        ids = known_layout(info, table).system_ids[1:]
        for manifest, data in manifests(table):
            parsed = AvroFile.parse(data, "m")
            parsed.blocks[:] = [[value] for block in parsed.blocks for value in block]
            for codec in (b"null", b"deflate", b"zstandard"):
                given = AvroFile({**parsed.header, "avro.codec": codec}, parsed.sync, parsed.blocks).to_bytes()
                if codec == b"zstandard":
                    check_quick_only(manifest, given, data, ids)
                else:
                    check_manifest(manifest, given, ids, monkeypatch)


def check_quick_only(manifest, given, data, ids) -> None:
    """pyiceberg of this environment may have no such codec: the rows come all the same."""
    found = HeldManifest(manifest, given).rows(ids)
    assert [known(row.file) for row in found] == [known(row.file) for row in HeldManifest(manifest, data).rows(ids)]


def test_manifests_without_metrics_are_read_by_pyiceberg_and_files_opened(tables):
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
        held = HeldManifest(manifest, given.to_bytes())
        assert all(row.bounds is None for row in held.rows(layout.system_ids[1:]))
        cache._keep(manifest.manifest_path, held)
    found = live_state(table, info.path, layout, table.current_snapshot(), cache)
    assert found == expected


def test_damaged_manifests_are_told_by_pyiceberg(tables):
    info, table = tables[0]
    ids = known_layout(info, table).system_ids[1:]
    manifest, data = manifests(table)[0]
    for cut in (data[: len(data) // 2], data[:-40] + bytes(40)):
        with pytest.raises(Exception):  # noqa: B017, PT011 - of a library, whichever it is
            HeldManifest(manifest, cut).rows(ids)
