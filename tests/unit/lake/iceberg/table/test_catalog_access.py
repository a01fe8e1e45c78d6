"""Access to a catalog: what is asked of it, and that a file that this machine does not have is not made by who only reads."""

import os
import shutil
import socket
import traceback

import pyarrow as pa
import pytest
from sqlalchemy import event

from fluss_lab.errors import FlussError, InvalidPropertyError, StorageError, TableNotFoundError
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess, sqlite_file
from fluss_lab.model import TablePath


def test_the_file_of_a_catalog_that_is_elsewhere_is_not_made_by_a_reader(tmp_path):
    file = tmp_path / "lake" / "catalog.db"
    access = CatalogAccess({"type": "sql", "uri": f"sqlite:///{file}", "warehouse": "s3://bucket/lake"})
    with pytest.raises(TableNotFoundError, match=r"another machine has it.*restore it") as caught:
        access.load_table(TablePath("db", "t"))
    assert str(file) in str(caught.value)
    assert socket.gethostname() in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["why?", "c#"])
def test_a_lab_in_a_folder_whose_name_ends_a_location_gets_a_remedy(tmp_path, name):
    warehouse = f"file://{tmp_path}/{name}/lab/lake/warehouse"
    with pytest.raises(InvalidPropertyError, match=r"lab in whose folder it is.*without them") as caught:
        CatalogAccess({"type": "sql", "warehouse": warehouse})
    assert warehouse in str(caught.value)
    assert "datalake.iceberg.warehouse" in str(caught.value)


@pytest.fixture
def table(lake):
    return lake.table({"id": "bigint"})


def set_property(access, path, **properties):
    with access.load_table(path).transaction() as change:
        change.set_properties(properties)


def test_a_catalog_s_file_is_asked_again_only_when_it_has_changed(lake, table):
    access, statements = lake.storage.access, []
    event.listen(access.catalog().engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    first = access.load_table(table.path)
    assert statements
    statements.clear()
    assert access.load_table(table.path).metadata is first.metadata
    assert not statements
    set_property(CatalogAccess(lake.properties), table.path, of="others")
    assert access.load_table(table.path).properties["of"] == "others"
    assert statements


def test_every_change_by_another_connection_is_seen_at_once(lake, table):
    access, other = lake.storage.access, CatalogAccess(lake.properties)
    for number in range(20):
        set_property(other, table.path, number=str(number))
        assert access.load_table(table.path).properties["number"] == str(number)
    other.catalog().drop_table(("db", "t"))
    with pytest.raises(TableNotFoundError):
        access.load_table(table.path)


def test_a_file_that_was_replaced_is_the_one_that_is_read_and_committed_to(lake, table, tmp_path):
    access = lake.storage.access
    file = sqlite_file(lake.properties["uri"])
    set_property(access, table.path, kept="1")
    shutil.copy(file, tmp_path / "backup")
    set_property(access, table.path, kept="2")
    os.replace(tmp_path / "backup", file)
    assert access.load_table(table.path).properties["kept"] == "1"
    set_property(access, table.path, kept="3")
    assert CatalogAccess(lake.properties).load_table(table.path).properties["kept"] == "3"


def test_a_file_that_is_gone_takes_no_commits_and_is_not_made(lake, table):
    access = lake.storage.access
    file, before = sqlite_file(lake.properties["uri"]), access.load_table(table.path)
    file.unlink()
    with (
        pytest.raises(StorageError, match=r"lake\.db: No such file.*nothing was changed"),
        before.transaction() as change,
    ):
        change.set_properties({"lost": "yes"})
    with pytest.raises(StorageError, match="restore it from a backup"):
        access.load_table(table.path)
    assert not file.exists()


def test_who_changes_a_table_that_he_loaded_changes_no_other_s(lake, table):
    access = lake.storage.access
    first, mine, theirs = (access.load_table(table.path) for _ in range(3))
    with mine.transaction() as change:
        change.set_properties({"mine": "yes"})
    assert mine.properties["mine"] == "yes"
    assert not {"mine"} & {*first.properties, *theirs.properties}


def test_a_table_s_files_are_reached_as_before_until_its_properties_change(lake, table):
    first = lake.load(table).io
    lake.append(table, pa.record_batch({"id": pa.array([1], pa.int64())}))
    assert lake.load(table).io is first
    set_property(lake.storage.access, table.path, **{"s3.region": "elsewhere"})
    other = lake.load(table).io
    assert other is not first
    assert other.properties["s3.region"] == "elsewhere"


@pytest.mark.parametrize(
    "properties",
    [
        {"uri": "nosuch+driver://me:SUPERSECRET@h/db"},
        {"uri": "postgresql:/me:SUPERSECRET@h/db", "type": "sql"},
        {"uri": "http://me:SUPERSECRET/x@127.0.0.1:1/x", "type": "rest"},
        {"uri": "http://127.0.0.1:1/?access_token=SUPERSECRET", "type": "rest"},
    ],
)
def test_no_error_of_a_catalog_quotes_a_password(properties, tmp_path):
    """A library quotes an address that it cannot read, or parts of it; tracebacks show that too."""
    with pytest.raises(FlussError) as caught:
        CatalogAccess({"warehouse": f"file://{tmp_path}", **properties}).catalog()
    assert "SUPERSECRET" not in "".join(traceback.format_exception(caught.value))
