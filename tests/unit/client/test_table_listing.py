"""The listing of tables while others are dropped and made."""

import threading

import pytest

from fluss_lab.client.table_listing import look_at_tables, table_paths, tables_by_database
from fluss_lab.errors import TableNotFoundError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab
from fluss_lab.workbench.health.bucket_findings import table_statuses


@pytest.fixture
def lab():
    with EmbeddedCluster(lake=False) as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        for database in ("b", "a"):
            lab.create_database(database)
        for path in ("b.y", "b.x", "b.z"):
            lab.create_table(path, {"id": "int"})
        yield lab


def test_paths_are_sorted_and_databases_without_tables_are_named(lab):
    assert [str(path) for path in table_paths(lab.connection.admin())] == ["b.x", "b.y", "b.z"]
    assert {name: tables for name, tables in tables_by_database(lab.connection.admin()).items() if name in "ab"} == {
        "a": [], "b": ["x", "y", "z"]
    }  # fmt: skip


def test_a_table_that_is_dropped_during_a_look_is_left_out_and_one_made_again_is_looked_at_anew(lab):
    admin, seen = lab.connection.admin(), []

    def look(info):
        if str(info.path) in {"b.x", "b.y"} and info.table_id not in dict(seen).values() and len(seen) < 2:
            seen.append((str(info.path), info.table_id))
            lab.drop_table(info.path)
            if str(info.path) == "b.y":
                lab.create_table(info.path, {"id": "int"})
        return str(info.path), len(admin.buckets(info)), info.table_id

    found = list(look_at_tables(admin, look))
    assert [(path, buckets) for path, buckets, _ in found] == [("b.y", 1), ("b.z", 1)]
    assert found[0][2] != dict(seen)["b.y"], "the table that is there now"


def test_a_table_that_is_there_and_said_not_to_be_is_an_error(lab):
    def look(info):
        raise TableNotFoundError(f"table {info.path} does not exist")

    with pytest.raises(TableNotFoundError, match=r"b\.x"):
        list(look_at_tables(lab.connection.admin(), look))


def test_status_and_doctor_look_while_tables_and_databases_come_and_go(lab):
    ending = threading.Event()

    def churn():
        number = 0
        while not ending.is_set():
            number += 1
            lab.create_database("brief")
            lab.create_table("brief.t", {"id": "int"}, if_not_exists=True)
            lab.create_table("b.brief", {"id": "int"}, if_not_exists=True)
            lab.drop_table("b.brief")
            lab.drop_database("brief", cascade=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        kept = ["b.x", "b.y", "b.z"]
        for _ in range(20):
            assert [row["table"] for row in lab.status().tables if row["table"] in kept] == kept
            assert [str(info.path) for info, _ in table_statuses(lab.connection) if str(info.path) in kept] == kept
            assert [path for path in lab.tables() if path in kept] == kept
            assert "does not exist" not in lab._repr_html_()
            assert list(lab.tier()) == []
    finally:
        ending.set()
        thread.join()
