"""A primary-key table as a person uses it: Table's own words, in the forms that people have rows in."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fluss_lab import errors
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Table
from fluss_lab.workbench.lab_spark import LabSpark

COLUMNS = {"id": "bigint", "month": "string", "delay": "int", "dest": "string"}


class _ClusterLab:
    """As much of a lab as a table without Spark and lake needs, over a cluster in this process."""

    def __init__(self, cluster):
        self.connection = cluster.connection
        self.compute = LabSpark(cluster.connection)

    def create(self, path, schema, **definition):
        self.connection.admin().create_table(TablePath.parse(path), make_descriptor(schema, **definition))
        return Table(self, TablePath.parse(path))


@pytest.fixture(scope="module")
def lab():
    with EmbeddedCluster(lake=False) as cluster:
        cluster.connection.admin().create_database("nyc")
        yield _ClusterLab(cluster)


_NUMBERS = itertools.count()


@pytest.fixture
def flights(lab):
    return lab.create(
        f"nyc.flights{next(_NUMBERS)}", COLUMNS, primary_key=["id", "month"], partitioned_by=["month"], buckets=2
    )


def row(number, delay, dest="ATL", month="2013-01"):
    return {"id": number, "month": month, "delay": delay, "dest": dest}


def test_rows_go_in_change_and_come_back(flights):
    result = flights.upsert([row(1, 5), row(2, 7)])
    assert (result.rows, sum(end - base for ranges in result.offsets.values() for base, end in ranges)) == (2, 2)
    flights.upsert(pd.DataFrame([{"id": 1, "month": "2013-01", "delay": 60}]), columns=["id", "month", "delay"])
    flights.upsert(pa.Table.from_pylist([row(3, 1, month="2013-02")]))
    flights.delete({"id": [2], "month": ["2013-01"]})
    keys = [{"id": number, "month": "2013-01"} for number in (1, 2)] + [{"id": 3, "month": "2013-02"}]
    assert flights.lookup(keys).to_pylist() == [row(1, 60), dict.fromkeys(COLUMNS), row(3, 1, month="2013-02")]
    assert flights.lookup(keys[0], columns=["dest"]).to_pylist() == [{"dest": "ATL"}]
    assert flights.lookup(pd.DataFrame(keys)).num_rows == 3
    assert flights.partitions() == ["2013-01", "2013-02"]


def test_a_key_may_be_of_numpys_numbers(flights):
    """As the cell of a frame has them: they have a type of their own, and are no column."""
    key = {"id": np.int64(1), "month": "2013-01"}
    flights.upsert(key | {"delay": np.int32(5), "dest": "ATL"})
    assert flights.lookup(key).to_pylist() == [row(1, 5)]
    assert flights.history(key).to_arrow().num_rows == 1
    flights.delete(key)
    assert flights.lookup(key).to_pylist() == [dict.fromkeys(COLUMNS)]


def test_prefixes_are_looked_up(lab):
    legs = lab.create(
        "nyc.legs", {"origin": "string", "id": "int"}, primary_key=["origin", "id"], bucket_key=["origin"]
    )
    legs.upsert([{"origin": origin, "id": number} for origin in ("JFK", "LGA") for number in range(3)])
    assert sorted(legs.prefix_lookup({"origin": "JFK"})["id"].to_pylist()) == [0, 1, 2]
    assert legs.prefix_lookup([{"origin": "LGA"}, {"origin": "?"}], columns=["id"]).schema.names == ["id"]


def test_the_changelog_says_what_changed(flights):
    flights.upsert([row(1, 5)])
    flights.upsert([row(1, 6)])
    flights.delete([{"id": 1, "month": "2013-01"}])
    log = flights.changelog(columns=["id", "delay"]).to_arrow()
    assert log["_change_type"].to_pylist() == ["+I", "-U", "+U", "-D"]
    assert log["delay"].to_pylist() == [5, 5, 6, 6]
    assert log["_log_offset"].to_pylist() == [0, 1, 2, 3]
    assert set(log["_partition"].to_pylist()) == {"2013-01"}
    with flights.subscribe(start="earliest", columns=["delay"]) as scanner:
        found = []
        while len(found) < 4:
            found += [change for batch in scanner.poll(30) for change in batch.records.change_types.to_pylist()]
    assert found == [1, 2, 3, 4]


def test_net_changes_and_differences_say_what_that_came_to(flights):
    flights.upsert([row(1, 5), row(2, 5)])
    before = flights.read_point()
    flights.upsert([row(1, 6), row(3, 1)])
    flights.upsert([row(1, 7)])
    flights.delete([{"id": 2, "month": "2013-01"}])
    net = flights.changelog(before, columns=["id", "delay"], net=True).to_pandas()
    found = sorted(zip(net["_change_type"], net["id"], net["delay"], strict=True))
    expected = [("DELETE", 2, 5), ("INSERT", 3, 1), ("UPDATE_AFTER", 1, 7), ("UPDATE_BEFORE", 1, 5)]
    assert found == expected
    difference = flights.diff(before)
    assert (difference.added["id"].to_pylist(), difference.removed["id"].to_pylist()) == ([3], [2])
    assert difference.changed.select(["id", "before.delay", "after.delay"]).to_pylist() == [
        {"id": 1, "before.delay": 5, "after.delay": 7}
    ]
    assert "1 added, 1 removed, 1 changed" in repr(difference)
    html = difference._repr_html_()
    assert html.index("+U") < html.index("+I") < html.index("-D")
    assert '<s style="opacity:.72">5</s>' in html
    assert flights.diff(flights.read_point(), before).added["id"].to_pylist() == [2]


def test_columns_are_added_to_the_live_table(flights):
    flights.upsert([row(1, 5)])
    flights.alter(add_columns={"note": "string", "x": pa.float64()})
    flights.upsert([{"id": 1, "month": "2013-01", "note": "late"}], columns=["id", "month", "note"])
    assert flights.schema.names == [*COLUMNS, "note", "x"]
    assert flights.lookup({"id": 1, "month": "2013-01"}).to_pylist() == [{**row(1, 5), "note": "late", "x": None}]
    assert flights.changelog().to_arrow()["note"].to_pylist() == [None, None, "late"]
    with pytest.raises(errors.InvalidSchemaError):
        flights.alter(add_columns={"note": "int"})


def test_writers_stream(flights):
    with flights.writer() as writer:
        futures = [writer.upsert([row(number % 3, number)]) for number in range(30)]
        writer.delete([row(0, None)])
        writer.flush()
        assert all(future.done() for future in futures)
    with flights.writer(columns=["id", "month", "dest"]) as writer:
        writer.upsert([{"id": 1, "month": "2013-01", "dest": "JFK"}])
    found = flights.lookup([{"id": number, "month": "2013-01"} for number in range(3)])
    assert found["delay"].to_pylist() == [None, 28, 29]
    assert found["dest"].to_pylist() == [None, "JFK", "ATL"]


def test_partitions_are_dropped_also_from_the_lake(flights):
    flights.upsert([row(1, 5)])
    flights.drop_partition(month="2013-01")
    assert flights.partitions() == []
    assert flights.lookup({"id": 1, "month": "2013-01"})["id"].to_pylist() == [None]
    flights.upsert([row(2, 5)])
    flights.drop_partition(month="2013-01", lake=True)
    assert flights.partitions() == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda table: table.append([row(1, 1)]), "call upsert"),
        (lambda table: table.prefix_lookup({"id": 1, "month": "a"}), "proper prefix"),
    ],
)
def test_what_a_primary_key_table_does_not_do_is_said(flights, call, says):
    with pytest.raises(errors.UnsupportedError, match=says):
        call(flights)


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.upsert([{"id": 1}]),
        lambda table: table.delete([{"id": 1}]),
        lambda table: table.lookup({"id": 1}),
        lambda table: table.prefix_lookup({"id": 1}),
        lambda table: table.writer(columns=["id"]),
    ],
)
def test_what_needs_a_primary_key_says_so(lab, call):
    table = lab.create(f"nyc.log{next(_NUMBERS)}", {"id": "bigint"})
    with pytest.raises(errors.UnsupportedError, match="no primary key"):
        call(table)


def test_tables_show_their_key(flights, lab):
    assert "primary-key table (id, month), 4 columns, 2 buckets" in repr(flights)
    html = flights._repr_html_()
    assert "primary key, bucket key" in html
    assert "primary key, partition" in html
    assert "log table" in repr(lab.create(f"nyc.plain{next(_NUMBERS)}", {"id": "int"}))


# -- pandas -----------------------------------------------------------------------------------------------------------

BIG = 2**60 + 1


def test_what_comes_out_as_pandas_has_its_types_and_goes_back_in(lab):
    table = lab.create(
        f"nyc.frames{next(_NUMBERS)}", {"id": "bigint", "n": "bigint", "ok": "boolean"}, primary_key=["id"]
    )
    table.upsert([{"id": BIG, "n": BIG, "ok": True}, {"id": 2}])
    start = table.read_point()
    frame = table.scan().to_pandas()
    assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "Int64", "boolean"]
    assert set(frame["id"]) == {BIG, 2}
    table.upsert(frame)
    assert table.scan().to_pandas().equals(frame)
    log = table.changelog().to_pandas()
    assert [str(dtype) for dtype in log.dtypes[["_bucket", "_log_offset", "id", "n", "ok"]]] == [
        "Int32", "Int64", "Int64", "Int64", "boolean",
    ]  # fmt: skip
    found = table.lookup(pd.concat([frame[["id"]], pd.DataFrame({"id": [7]})])).to_pandas()
    assert found["n"].dtype == "Int64"
    assert BIG in set(found["n"].dropna())
    assert table.lookup([{"id": frame["id"].max()}]).to_pandas()["n"].tolist() == [BIG]
    table.delete(frame[frame["n"].isna()])
    difference = table.diff(start)
    assert difference.removed.to_pandas()["n"].dtype == difference.to_pandas()["n"].dtype == "Int64"
    assert (
        table.buckets().to_pandas()["lake_end"].dtype
        == table.seek(start.moment_ms).to_pandas()["offset"].dtype
        == "Int64"
    )
