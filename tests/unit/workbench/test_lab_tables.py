"""What a person tries first: tables by their paths, their first rows, their names completed."""

import time

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import DatabaseNotFoundError, InvalidNameError, InvalidSchemaError, TableNotFoundError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab


@pytest.fixture(scope="module")
def lab():
    with EmbeddedCluster() as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        for database in ("nyc", "empty", "abc"):
            lab.create_database(database)
        rows = [{"id": number, "dest": "ATL", "delay": number} for number in range(25)]
        lab.create_table("nyc.flights", rows=rows)
        lab.create_table("nyc.planes", {"tailnum": "string"}, primary_key=["tailnum"])
        lab.create_table("abc.z", {"a": "int"})
        yield lab


def test_tables_of_one_database_and_of_all(lab):
    assert lab.tables("nyc") == ["flights", "planes"]
    assert lab.tables() == list(lab) == ["abc.z", "nyc.flights", "nyc.planes"]
    assert lab.tables("empty") == []
    with pytest.raises(DatabaseNotFoundError):
        lab.tables("none")


def test_a_table_by_its_path(lab):
    assert lab["nyc.flights"].path == lab.table("nyc.flights").path
    assert [path in lab for path in ("nyc.flights", "nyc.none", "none.x", "nyc", "", "a\0b.c", None, 3, [])] == [
        True
    ] + [False] * 8
    for path in ("nyc", "", None, 3, "a.b.c"):
        with pytest.raises(InvalidNameError):
            lab[path]
    assert bool(lab), "also a lab without tables is one"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nyc.flihgts", "does not exist; is nyc.flights meant?"),
        ("flights.nyc", "does not exist"),
        ("qqqq.wwww", "does not exist; the tables are abc.z, nyc.flights, nyc.planes"),
    ],
)
def test_what_is_meant_is_said(lab, path, words):
    with pytest.raises(TableNotFoundError) as raised:
        lab[path]
    assert words in str(raised.value)


def test_a_lab_without_tables_says_so():
    with EmbeddedCluster() as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        with pytest.raises(TableNotFoundError, match="the lab has no tables yet"):
            lab["nyc.flights"]
        assert (lab.tables(), list(lab), bool(lab)) == ([], [], True)


def test_first_rows_all_rows_and_how_many(lab):
    flights = lab["nyc.flights"]
    assert flights.head()["id"].tolist() == list(range(10))
    assert len(flights.head(3)) == 3
    assert len(flights.head(0)) == 0
    assert len(flights.head(1000)) == flights.count() == len(flights.to_pandas()) == 25
    assert isinstance(flights.to_pandas(), pd.DataFrame)
    assert lab["nyc.planes"].head().columns.tolist() == ["tailnum"]
    assert lab["nyc.planes"].count() == 0


def test_columns_make_conditions_and_scans(lab):
    flights = lab["nyc.flights"]
    assert flights.scan(where=(flights["delay"] > 20) & (flights["dest"] == "ATL")).count() == 4
    assert flights["delay"].equals(pc.field("delay"))
    assert flights[["delay", "id"]].to_arrow().schema.names == ["delay", "id"]
    assert flights["delay", "id"].schema.names == flights[pd.Index(["delay", "id"])].schema.names == ["delay", "id"]
    for wrong in (5, None, pd.DataFrame({"id": [1]}), b"id", np.array([[1]])):
        with pytest.raises(InvalidSchemaError):
            flights[wrong].schema  # noqa: B018
    for name in ("nope", "", 3, None):
        with pytest.raises(InvalidSchemaError):
            flights[name]
    with pytest.raises(InvalidSchemaError):
        flights[["nope"]]
    for ask in (iter, list, lambda table: "delay" in table):
        with pytest.raises(TypeError, match="not iterable"):
            ask(flights)


def test_names_are_completed(lab):
    assert lab._ipython_key_completions_() == lab.tables()
    assert lab["nyc.flights"]._ipython_key_completions_() == ["id", "dest", "delay"]


def test_completion_neither_fails_nor_waits_when_the_server_is_away():
    with EmbeddedCluster() as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        lab.create_database("db")
        table = lab.create_table("db.t", {"a": "int"})
        assert table._ipython_key_completions_() == ["a"]
        lab.close()
        began_s = time.monotonic()
        assert lab._ipython_key_completions_() == []
        table._ipython_key_completions_()
        assert time.monotonic() - began_s < 10  # a call has 30 s
