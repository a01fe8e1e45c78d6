"""Orphan files: found when nothing refers to them, and never otherwise."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.files.file_seals import AVRO_KEY
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.lake.iceberg.table.layout import new_layout
from fluss_lab.lake.iceberg.table.table_properties import lake_properties
from tests.unit.lake.changelogs import written
from tests.unit.lake.conftest import Lake, records
from tests.unit.lake.iceberg.maintenance.expiry_kit import check_no_orphan
from tests.unit.lake.iceberg.maintenance.test_compaction import history, rows
from tests.unit.lake.upkeep import COLUMNS, DAY_MS, HOUR_MS, Upkeep, keyed_lake


@pytest.fixture
def info(lake):
    return lake.table(COLUMNS, buckets=1)


def in_folder(upkeep, name, data=b"x") -> str:
    location = f"{upkeep.lake.load(upkeep.info).location()}/{name}"
    with upkeep.lake.load(upkeep.info).io.new_output(location).create() as stream:
        stream.write(data)
    return location


def later(upkeep):
    upkeep.clock.advance(HOUR_MS)
    return upkeep


def test_a_healthy_table_has_none(lake, seed):
    rng = random.Random(seed)
    keyed = keyed_lake(lake, 2)
    history(keyed, rng, 4)
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    history(keyed, rng, 2)
    assert later(upkeep).orphans() == []


def test_files_of_a_dead_round_are_found_and_removed(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(1), 2)
    dead = written(lake, keyed.info, keyed.logs[0].run(0, keyed.logs[0].end), files=[])
    paths = sorted(file.file_path for file in dead.all_files)
    upkeep = later(Upkeep(lake, keyed.info))
    assert upkeep.orphans(dry_run=True) == paths
    assert upkeep.orphans(dry_run=True, ours_only=True) == paths
    assert upkeep.orphans(dry_run=False, ours_only=True) == paths
    check_no_orphan(lake, keyed.info)
    assert upkeep.orphans() == []


def test_files_younger_than_the_grace_stay(lake, info):
    lake.append(info, rows(info, 2))
    under_way = lake.write(info, records(rows(info, 2, 2), 2))
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(3 * DAY_MS - HOUR_MS)
    assert upkeep.orphans(age_ms=3 * DAY_MS, dry_run=False) == []
    lake.commit(info, under_way)
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == [0, 1, 2, 3]


def test_a_file_that_is_committed_while_others_are_looked_for_stays(lake, info, monkeypatch):
    from fluss_lab.lake.iceberg.maintenance import iceberg_maintenance

    lake.append(info, rows(info, 2))
    under_way = lake.write(info, records(rows(info, 2, 2), 2))
    real = iceberg_maintenance.list_files

    def then_committed(table, folders):
        files = real(table, folders)
        lake.commit(info, under_way)
        return files

    monkeypatch.setattr(iceberg_maintenance, "list_files", then_committed)
    assert later(Upkeep(lake, info)).orphans(dry_run=False) == []
    assert Upkeep(lake, info).rows(names=["__offset"])["__offset"].to_pylist() == [0, 1, 2, 3]


def test_only_files_of_our_names_when_nobody_asked(lake, info):
    lake.append(info, rows(info, 2))
    upkeep = Upkeep(lake, info)
    theirs = [in_folder(upkeep, name) for name in ("data/part-0.parquet", "notes.txt", "metadata/x.stats")]
    ours = [
        in_folder(upkeep, "data/abc-b00000-s00001-o0000000000000000000-0123456789abcdef0123456789abcdef.parquet"),
        in_folder(upkeep, "metadata/0f0e0d0c-0000-0000-0000-000000000000-m0.avro"),
        in_folder(upkeep, "metadata/00007-0f0e0d0c-0000-0000-0000-000000000000.metadata.json"),
    ]
    later(upkeep)
    assert upkeep.orphans(ours_only=True) == sorted(ours)
    assert upkeep.orphans() == sorted([*ours, *theirs])


def test_nothing_outside_of_the_tables_folder_is_looked_at(lake, info):
    lake.append(info, rows(info, 2))
    other = lake.table(COLUMNS, buckets=1, name="other", table_id=8)
    lake.append(other, rows(other, 2))
    stray = lake.folder / "warehouse" / "db" / "stray.parquet"
    stray.write_bytes(b"x")
    assert later(Upkeep(lake, info)).orphans(dry_run=False) == []
    assert stray.exists()
    assert Upkeep(lake, other).rows(names=["__offset"]).num_rows == 2


def test_locations_may_be_written_in_another_way(lake, info):
    """Engines call the same file ``file:/x`` or ``file:///x``."""
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    lake.append(info, rows(info, 2))
    table = lake.load(info)
    snapshot = table.current_snapshot()
    # As another engine writes its lists: without the seal, which says whose a list is.
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    parsed = AvroFile.parse(path.read_bytes(), path.name)
    header = {key: value for key, value in parsed.header.items() if key != AVRO_KEY}
    path.write_bytes(AvroFile(header, parsed.sync, parsed.blocks).to_bytes())
    copy = snapshot.model_copy(
        update={
            "snapshot_id": 5,
            "sequence_number": 2,
            "parent_snapshot_id": snapshot.snapshot_id,
            "manifest_list": snapshot.manifest_list.replace("file:///", "file:/"),
        }
    )
    updates = (
        AddSnapshotUpdate(snapshot=copy),
        SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": 5}),
    )
    lake.storage.access.commit("test", table, (), updates)
    table = lake.load(info)
    table.manage_snapshots().remove_tag("none") if "none" in table.metadata.refs else None
    assert later(Upkeep(lake, info)).orphans() == []


def test_statistics_files_and_the_metadata_log_are_in_use(lake, info):
    from pyiceberg.table.statistics import StatisticsFile

    lake.append(info, rows(info, 2))
    lake.append(info, rows(info, 2, 2), 2)
    upkeep = Upkeep(lake, info)
    path = in_folder(upkeep, "metadata/x.stats")
    table = lake.load(info)
    statistics = {
        "snapshot-id": table.metadata.current_snapshot_id, "statistics-path": path, "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1, "blob-metadata": [],
    }  # fmt: skip
    with table.update_statistics() as update:
        update.set_statistics(StatisticsFile.model_validate(statistics))
    in_folder(upkeep, "metadata/version-hint.text")
    assert later(upkeep).orphans() == []


def test_a_missing_manifest_means_that_nothing_is_removed(lake, info):
    lake.append(info, rows(info, 2))
    upkeep = Upkeep(lake, info)
    stray = in_folder(upkeep, "data/stray.parquet")
    table = lake.load(info)
    from pyiceberg.manifest import clear_manifest_cache

    clear_manifest_cache()
    upkeep.lake.storage._entries = None
    table.io.delete(table.current_snapshot().manifests(table.io)[0].manifest_path)
    with pytest.raises(CorruptDataError, match="manifest is missing"):
        later(upkeep).orphans(dry_run=False)
    assert os.path.exists(stray.removeprefix("file://"))


def test_they_are_due_once_a_day(lake, info):
    upkeep = Upkeep(lake, info)
    assert not upkeep.maintenance.orphans_due(DAY_MS)  # an empty table
    lake.append(info, rows(info, 2))
    assert not upkeep.maintenance.orphans_due(DAY_MS)
    upkeep.clock.advance(DAY_MS + HOUR_MS)
    assert upkeep.maintenance.orphans_due(DAY_MS)
    upkeep.orphans(dry_run=True)
    assert upkeep.maintenance.orphans_due(DAY_MS)
    upkeep.orphans(dry_run=False)
    assert not upkeep.maintenance.orphans_due(DAY_MS)
    upkeep.clock.advance(DAY_MS)
    assert upkeep.maintenance.orphans_due(DAY_MS)


def test_a_clock_that_was_ahead_puts_them_off_no_longer_than_a_day(lake, info):
    lake.append(info, rows(info, 2))
    upkeep = Upkeep(lake, info)
    now_ms = upkeep.clock.now_ms()
    upkeep.clock.advance(365 * DAY_MS)
    upkeep.orphans(dry_run=False)
    upkeep.clock.set_wall(now_ms)
    assert upkeep.maintenance.orphans_due(DAY_MS)


def test_ending_between_two_removals_is_harmless(lake, info):
    lake.append(info, rows(info, 2))
    upkeep = Upkeep(lake, info)
    for number in range(3):
        in_folder(upkeep, f"data/stray-{number}.parquet")
    later(upkeep)
    failpoints.arm("maintenance.orphans.after_file", "error@2")
    with pytest.raises(FailpointError):
        upkeep.orphans(dry_run=False)
    failpoints.disarm()
    # Several are removed at a time.
    assert len(upkeep.orphans(dry_run=False)) <= 1
    assert upkeep.orphans() == []
    check_no_orphan(lake, info)


def test_partitions_of_any_name_are_distinguished_from_orphans(lake):
    columns = {"id": "bigint not null", "name": "string", "p": "string"}
    info = lake.table(columns, buckets=1, partitioned_by=["p"])
    for number, name in enumerate(("a b", "50%", "x=y", "ü", "q?r", "s#t")):
        values = [{"id": number, "name": "n", "p": name}]
        rows = pa.RecordBatch.from_pylist(values, schema=info.schema.arrow_schema)
        lake.commit(info, lake.write(info, records(rows), partition=name))
    upkeep = Upkeep(lake, info)
    stray = in_folder(upkeep, "data/p=a+b/stray.parquet")
    assert later(upkeep).orphans(dry_run=False) == [stray]
    assert lake.load(info).scan().to_arrow().num_rows == 6
    check_no_orphan(lake, info)


def test_files_behind_fsspec_are_listed_too(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    assert fsspec.filesystem("file")
    lake = Lake(tmp_path / "a lab", **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
    info = lake.table(COLUMNS, buckets=1)
    lake.append(info, rows(info, 2))
    upkeep = Upkeep(lake, info)
    stray = in_folder(upkeep, "data/stray.parquet")
    assert upkeep.orphans(age_ms=HOUR_MS) == []
    assert later(upkeep).orphans(dry_run=False) == [stray]
    check_no_orphan(lake, info)


def test_files_that_nobody_can_list_are_reported_as_such(lake, info):
    from fluss_lab.errors import UnsupportedError
    from fluss_lab.lake.iceberg.files.file_locations import files_below

    class Blind:
        def __init__(self):
            self.properties = {}

    with pytest.raises(UnsupportedError, match="Blind offers no listing"):
        list(files_below(Blind(), "s3://bucket/table"))


def test_a_location_that_the_catalog_chose_is_not_cleared(lake):
    """Seen with a REST catalog: a table of the name of one that was dropped and kept removed the kept one's files."""
    info = lake.info(COLUMNS)
    layout = new_layout(info)
    catalog = lake.storage.access.catalog()
    catalog.create_namespace("db")
    place = lake.folder / "warehouse" / "db" / "t"
    catalog.create_table(
        ("db", "t"), layout.schema, location=f"file://{place}", partition_spec=layout.spec, sort_order=layout.sort_order,
        properties=lake_properties(info, layout),
    )  # fmt: skip
    lake.append(info, rows(info, 2))
    (place / "data").mkdir(exist_ok=True)
    (place / "data" / "kept.parquet").write_text("of the table that had the name before")
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * HOUR_MS)
    with pytest.raises(UnsupportedError, match="dropped and kept"):
        upkeep.orphans(dry_run=False)
    assert not upkeep.maintenance.orphans_due(1)
    lake.catalog.drop_table(info.path, info.table_id)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["kept.parquet"]


def test_places_that_properties_name_are_looked_through(lake):
    outside = lake.folder / "elsewhere"
    info = lake.table(COLUMNS, properties={"iceberg.write.data.path": f"file://{outside}"})
    lake.append(info, rows(info, 2))
    left = outside / "db" / "t-7" / "left.parquet"
    left.write_text("of a dead round")
    (outside / "others.parquet").write_text("not ours")
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * HOUR_MS)
    assert upkeep.orphans(dry_run=False) == [f"file://{left}"]
    assert lake.rows(info, lake.load(info).metadata.current_snapshot_id).num_rows == 2
