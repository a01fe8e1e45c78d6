"""What the doctor says of the lake before a round or a read runs into it, and what a round says of a file that is gone."""

import shutil
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import lake_storage
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench.health.deep_findings import deep_checks
from fluss_lab.workbench.health.doctor import checks
from fluss_lab.workbench.health.lake_findings import look_at_lake
from tests.unit.cli.shell_kit import call
from tests.unit.tiering.kit import Tables
from tests.unit.tiering.repairs import Keyed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A primary-key table of two rounds, whose rows were updated."""
    with EmbeddedCluster(tmp_path_factory.mktemp("lake") / "my lab") as cluster:
        tables = Tables(cluster)
        keyed = Keyed(tables, buckets=1, **{"table.datalake.auto-maintenance": False})
        tables.create("never_tiered")
        for ids in (range(5), range(3)):
            keyed.upsert(ids, f"{len(ids)}-")
            tables.tier(keyed.info)
        keyed.upsert(range(5), "more-")
        yield keyed


def lake_checks(folder):
    return [each for each in checks(folder) if each.name == "lake"]


def file_of(lake, kind):
    """Return a file that the newest snapshot of a lake table needs."""
    task = next(each for each in lake.scan().plan_files() if each.delete_files)
    manifest = next(each for each in lake.current_snapshot().manifests(lake.io) if each.content == ManifestContent.DATA)
    locations = {
        "metadata": lake.metadata_location,
        "list": lake.current_snapshot().manifest_list,
        "manifest": manifest.manifest_path,
        "data": task.file.file_path,
        "deletes": next(iter(task.delete_files)).file_path,
    }
    return Path(locations[kind].removeprefix("file://"))


@pytest.mark.parametrize("kind", ["metadata", "list", "manifest", "data", "deletes"])
def test_a_file_of_the_lake_that_is_gone_is_found_with_what_mends_it(keyed, kind):
    """Seen: of a manifest rounds said to plan again, and the doctor, once one had failed, to tier; before that it said nothing."""
    connection, folder = keyed.tables.connection, keyed.tables.cluster.folder
    path = file_of(keyed.tables.lake(keyed.info), kind)
    (well,) = lake_checks(folder)
    assert (well.is_ok, well.found) == (True, "2 tables, whose newest snapshots can be read")
    shutil.move(path, folder / "kept")
    try:
        (check,) = lake_checks(folder)
        shown = call("repair", "db.keyed", "--adopt", "-f", folder)  # "lake and cluster fit together", it said
        assert (shown.code, shown.out, path.name in shown.err) == (1, "", True)
        known = connection.lake_storage()
        if kind != "deletes":  # which a round does not open
            with pytest.raises(CorruptDataError, match=rf"{path.name}.*estore it"):
                keyed.tables.tier(keyed.info, storage=lake_storage(known.format_name, known.properties))
    finally:
        shutil.move(folder / "kept", path)
    assert (check.is_ok, check.severity, check.error_class, check.table) == (
        False, "problem", "CorruptDataError", "db.keyed",
    )  # fmt: skip
    assert path.name in check.found
    assert "restore the file that the text names" in check.found
    assert check.command == f"fluss-lab repair db.keyed --adopt --folder '{folder}'"


def test_a_catalog_that_is_gone_is_found(keyed):
    folder = keyed.tables.cluster.folder
    catalog = folder / "lake" / "catalog.db"
    shutil.move(catalog, folder / "kept")
    try:
        (check,) = lake_checks(folder)
    finally:
        shutil.move(folder / "kept", catalog)
    assert (check.is_ok, check.error_class, check.command) == (False, "TableNotFoundError", None)
    assert "restore it from a backup" in check.found


def test_a_look_ends_in_time_and_says_what_it_left_out(keyed):
    connection = keyed.tables.connection
    infos = [keyed.info, connection.admin().table_info(keyed.info.path)]
    assert look_at_lake(connection, infos, 0.0)[:2] == (1, 1)
    assert look_at_lake(connection, [])[:2] == (0, 0)


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_catalog_that_a_copy_of_the_lab_lacks_is_found_in_its_files(tmp_path, damage):
    """Seen: of a backup without it the deep look found nothing."""
    with EmbeddedCluster(tmp_path / "lab") as cluster:
        tables = Tables(cluster)
        info = tables.create()
        tables.append(info, 5)
        tables.tier(info)
    catalog = tmp_path / "lab" / "lake" / "catalog.db"
    deep = [each for each in deep_checks(tmp_path / "lab") if not each.is_ok or str(catalog) in each.found]
    assert [each.found for each in deep] == [f"{catalog}: 0 problems"]
    if damage == "gone":
        catalog.unlink()
    else:
        catalog.write_bytes(catalog.read_bytes()[:9000] if damage == "cut" else b"")
    (found,) = [each for each in deep_checks(tmp_path / "lab") if not each.is_ok]
    assert (found.severity, found.error_class) == ("problem", "CorruptDataError")
    assert f"{catalog}: " in found.found
    assert "What the lake holds of db.events cannot be read or tiered to. Restore the file from a copy" in found.found
