"""Commits of primary-key tables: what other people's readers make of any history of them."""

import json
import random
import time

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import StaticTable

from fluss_lab.lake.iceberg.metadata import merging_manifest_writer
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files
from fluss_lab.lake.iceberg.write.lake_write_result import FILE_FORMS
from fluss_lab.model.json_codec import to_plain
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.rounds import KeyedLake, starts, tags

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint", "name": "string"}
MERGING = {"iceberg.commit.manifest.min-count-to-merge": "3"}


def keyed(lake, buckets=2, **properties) -> KeyedLake:
    info = lake.table(COLUMNS, primary_key=["id"], buckets=buckets, properties=MERGING | properties)
    return KeyedLake(lake, info, buckets)


def check(table: KeyedLake, *, quickly: bool = False) -> None:
    """Compare what pyiceberg and, unless quickly, DuckDB read with the model."""
    location = table.lake.load(table.info).metadata_location
    expected = table.all_rows().sort_by([("__offset", "ascending"), ("__bucket", "ascending")])
    readers = [lambda path: StaticTable.from_metadata(path).scan().to_arrow(), duckdb_rows]
    for found in (read(location) for read in readers[: 1 if quickly else 2]):
        columns = [found.column(name).cast(expected.schema.field(name).type) for name in expected.schema.names]
        ordered = type(found).from_arrays(columns, names=expected.schema.names)
        ordered = ordered.sort_by([("__offset", "ascending"), ("__bucket", "ascending")])
        assert ordered.to_pylist() == expected.to_pylist()


@pytest.mark.slow
def test_random_histories_read_the_same_everywhere(lake, seed):
    rng = random.Random(seed)
    table = keyed(lake)
    for turn in range(14):
        table.change(rng, rng.randrange(30))
        action = rng.random()
        if action < 0.5:
            table.round(rng.choice([1, 1, 3]))
        elif table.lake.load(table.info).metadata.current_snapshot_id is None:
            continue
        elif action < 0.65:
            table.compact(rng.randrange(2))
        elif action < 0.8:
            table.compact(rng.randrange(2), ours=False)
        else:
            planned = table.plan(rng.choice([1, 3]))
            for _ in range(rng.randrange(1, 3)):
                table.compact(rng.randrange(2), ours=False)
            table.commit(planned)
        check(table, quickly=turn % 4 > 0)
    table.round()
    check(table)
    assert table.replayed() == {bucket: list(range(log.end)) for bucket, log in table.logs.items()}
    assert_totals(lake, table.info)


def assert_totals(lake, info) -> None:
    """The summary's totals are those of the files that the manifests list."""
    loaded = lake.load(info)
    snapshot = loaded.metadata.current_snapshot()
    files = [
        entry.data_file
        for manifest in snapshot.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io)
    ]
    by_content = {kind: [file for file in files if file.content == kind] for kind in DataFileContent}
    data, positions, equality = (by_content[kind] for kind in DataFileContent)
    found = {key: int(value) for key, value in snapshot.summary.additional_properties.items() if key[:6] == "total-"}
    assert found == {
        "total-data-files": len(data),
        "total-records": sum(file.record_count for file in data),
        "total-delete-files": len(positions) + len(equality),
        "total-position-deletes": sum(file.record_count for file in positions),
        "total-equality-deletes": sum(file.record_count for file in equality),
        "total-files-size": sum(file.file_size_in_bytes for file in files),
    }


def header_of(loaded, path: str) -> dict:
    """Return the metadata of an Avro file."""
    opened: AvroFile = AvroFile(loaded.io.new_input(path))
    with opened as file:
        return dict(file.header.meta)


def equality_id_types(avro_schema: str) -> set[tuple[str, int]]:
    """Return the Avro types and ids of the elements of ``equality_ids`` in a manifest's schema."""
    data_file = next(each for each in json.loads(avro_schema)["fields"] if each["name"] == "data_file")["type"]
    ids = next(each for each in data_file["fields"] if each["name"] == "equality_ids")
    lists = [each for each in ids["type"] if isinstance(each, dict)]
    return {(each["items"], each["element-id"]) for each in lists}


def test_manifests_are_as_java_reads_them(lake):
    table = keyed(lake, buckets=1, **{"table.datalake.delete-mode": "equality"})
    table.change(random.Random(1), 40, keys=5)
    table.round()
    table.change(random.Random(2), 40, keys=5)
    table.round()
    loaded = lake.load(table.info)
    manifests = loaded.metadata.current_snapshot().manifests(loaded.io)
    kinds = []
    for manifest in manifests:
        meta = header_of(loaded, manifest.manifest_path)
        kinds.append((manifest.content, meta["content"], meta["format-version"]))
        assert equality_id_types(meta["avro.schema"]) == {("int", 136)}
        contents = {entry.data_file.content for entry in manifest.fetch_manifest_entry(loaded.io)}
        assert (DataFileContent.DATA in contents) == (manifest.content == ManifestContent.DATA)
        assert len(contents) == 1 or DataFileContent.DATA not in contents
    assert set(kinds) == {(ManifestContent.DATA, "data", "2"), (ManifestContent.DELETES, "deletes", "2")}
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io)]
    by_key = [entry.data_file.equality_ids for entry in entries if entry.data_file.equality_ids]
    assert by_key
    assert set(map(tuple, by_key)) == {(1,)}


def test_operations_are_those_of_icebergs_own_row_delta(lake):
    table = keyed(lake, buckets=1)
    log = table.logs[0]

    def operation() -> str:
        table.round()
        return lake.load(table.info).metadata.current_snapshot().summary.operation.value

    assert operation() == "append"
    log.upsert({"id": 1, "name": "a"})
    assert operation() == "append"
    log.upsert({"id": 1, "name": "b"})
    assert operation() == "overwrite"
    log.delete((1,))
    assert operation() == "delete"
    assert operation() == "append"
    check(table)
    assert_totals(lake, table.info)


def test_what_was_written_is_kept_as_it_would_be_read(lake, seed):
    rng = random.Random(seed)
    table = keyed(lake)
    for _ in range(6):
        table.change(rng, 20)
        table.round()
    table.compact(0)
    loaded = lake.load(table.info)
    cache = lake.storage._entry_cache()
    for manifest in loaded.metadata.current_snapshot().manifests(loaded.io):
        kept, read = (each.entries(loaded.io, manifest) for each in (cache, EntryCache()))
        assert [plain(entry) for entry in kept] == [plain(entry) for entry in read]
    assert len(cache._kept) > 4


def plain(entry) -> tuple:
    numbers = (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    return (*numbers, to_plain(entry.data_file, forms=FILE_FORMS))


def test_manifests_of_both_kinds_are_merged_and_sequence_numbers_kept(lake):
    table = keyed(lake, buckets=1)
    log, expected = table.logs[0], {}
    for turn in range(12):
        log.upsert({"id": turn % 3, "name": str(turn)})
        table.round()
        loaded = lake.load(table.info)
        snapshot = loaded.metadata.current_snapshot()
        manifests = snapshot.manifests(loaded.io)
        for content in ManifestContent:
            assert len([each for each in manifests if each.content == content]) < 3
        found = {
            entry.data_file.file_path: entry.sequence_number
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(loaded.io)
        }
        expected |= {path: snapshot.sequence_number for path in found if path not in expected}
        assert found == expected
    check(table)


def test_merging_can_be_turned_off(lake):
    table = keyed(lake, buckets=1, **{"iceberg.commit.manifest-merge.enabled": "false"})
    for turn in range(5):
        table.logs[0].upsert({"id": turn, "name": "x"})
        table.round()
    loaded = lake.load(table.info)
    assert len(loaded.metadata.current_snapshot().manifests(loaded.io)) == 5
    check(table)


def test_full_manifests_are_not_written_again(lake, monkeypatch):
    """By entries: those of small files compress so well that by bytes they would never be full."""
    monkeypatch.setattr(merging_manifest_writer, "_FULL_ENTRIES", 4)
    table = keyed(lake, buckets=1)
    names = []
    for turn in range(16):
        table.logs[0].upsert({"id": turn, "name": "x"})
        table.round()
        loaded = lake.load(table.info)
        names.append({each.manifest_path for each in loaded.metadata.current_snapshot().manifests(loaded.io)})
    assert len(names[-1] & names[-4]) >= 2
    check(table)


def test_deletes_of_cut_splits_are_placed_and_nothing_else_is_left(lake, seed):
    rng = random.Random(seed)
    table = keyed(lake, buckets=1)
    table.change(rng, 60, keys=8)
    done = table.plan(splits=4)
    unplaced = {file.file_path for result in done.results for file in result.unplaced}
    assert unplaced
    table.commit(done)
    check(table)
    assert not unplaced & table.paths()
    assert table.paths() == {f"file://{path}" for path in referenced(lake, table.info)}


def referenced(lake, info) -> set[str]:
    return {path.removeprefix("file://") for path in referenced_files(lake.load(info), EntryCache())}


@pytest.mark.parametrize("mode", ["position", "equality"])
def test_cut_splits_in_either_mode_lose_no_event(lake, mode):
    table = keyed(lake, buckets=1, **{"table.datalake.delete-mode": mode})
    rng = random.Random(3)
    for _ in range(3):
        table.change(rng, 40, keys=6)
        table.round(splits=3)
    assert table.replayed() == {0: list(range(table.logs[0].end))}


def test_an_empty_row_delta_carries_offsets_and_starts(lake):
    table = keyed(lake)
    given = json.dumps([{"bucket": 1, "offset": 17}])
    first = table.round(**{"fluss-replay-start": given})
    second = table.round()
    loaded = lake.load(table.info)
    assert starts(loaded.properties["fluss.replay-start"]) == {(None, 1): 17}
    for snapshot_id in (first, second):
        summary = loaded.metadata.snapshot_by_id(snapshot_id).summary
        assert starts(summary["fluss-replay-start"]) == {(None, 1): 17}
        assert summary["total-records"] == "0"
    table.round(**{"fluss-replay-start": json.dumps([{"bucket": 0, "offset": 3}, {"bucket": 1, "offset": 5}])})
    # What cannot be replayed does not come back.
    assert starts(lake.load(table.info).properties["fluss.replay-start"]) == {(None, 0): 3, (None, 1): 17}


def test_tables_without_starts_say_nothing_of_them(lake):
    table = keyed(lake)
    table.round()
    loaded = lake.load(table.info)
    assert "fluss.replay-start" not in loaded.properties
    assert loaded.metadata.current_snapshot().summary["fluss-replay-start"] is None


def test_a_clock_that_was_set_back_does_not_take_snapshots_back(lake, monkeypatch):
    """Java refuses a table whose snapshots go back in time by more than a minute."""
    table = keyed(lake)
    table.round()
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    table.round()
    stamps = [snapshot.timestamp_ms for snapshot in lake.load(table.info).metadata.snapshots]
    assert stamps[0] <= stamps[1]


def test_nor_the_time_of_the_last_change(lake, monkeypatch):
    """Java, Rust and Go refuse a table whose last snapshot is a minute or more newer than that."""
    table, real = keyed(lake), time.time
    with monkeypatch.context() as ahead:
        ahead.setattr("time.time", lambda: real() + 3600)
        table.round()
    table.round()
    with lake.load(table.info).transaction() as change:
        change.set_properties({"owner": "somebody"})
    table.round()
    metadata = lake.load(table.info).metadata
    logged = [each.timestamp_ms for each in metadata.snapshot_log]
    assert logged == sorted(logged)
    assert metadata.last_updated_ms >= logged[-1]


def test_no_tags_without_compactions(lake):
    table = keyed(lake)
    table.change(random.Random(4), 30)
    table.round()
    table.round()
    assert tags(lake, table.info) == {}
