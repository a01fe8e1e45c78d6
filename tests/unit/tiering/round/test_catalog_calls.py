"""How often a round asks the catalog: each call is a trip to a server, and a round may have one row."""

from collections import Counter

import pytest
from sqlalchemy import event

from fluss_lab.testing import EmbeddedCluster
from tests.unit.lake.rest_server import RestServer
from tests.unit.tiering.kit import Tables


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    with RestServer(tmp_path_factory.mktemp("rest")) as found:
        yield found


@pytest.fixture(scope="module")
def tables(rest, tmp_path_factory):
    options = {f"datalake.iceberg.{key}": value for key, value in rest.client().items()}
    with EmbeddedCluster(tmp_path_factory.mktemp("lab"), {"datalake.format": "iceberg"} | options) as cluster:
        yield Tables(cluster)


@pytest.mark.parametrize("key", [None, ["id"]])
def test_a_round_of_one_row_loads_the_table_twice_and_commits_once(rest, tables, key):
    info = tables.create(f"t{len(key or '')}", **({} if key is None else {"primary_key": key}))
    for number in range(3):
        if key is None:
            tables.append(info, 1)
        else:
            with tables.connection.upsert_writer(info.path) as writer:
                writer.upsert([{"id": number, "name": f"n{number}", "month": "x"}])
        tables.tier(info)  # of the first the client asks the catalog what it can do
        if number == 0:
            rest.counts.clear()
    assert rest.counts == {"load table": 4, "commit": 2}
    rest.counts.clear()
    assert tables.tier(info).rows == 0
    assert rest.counts == {"load table": 1}
    assert sorted(tables.lake(info).scan().to_arrow()["name"].to_pylist()) == ["n0", "n1", "n2"]


def test_a_round_reads_the_catalogs_database_a_few_times(tmp_path):
    with EmbeddedCluster(tmp_path) as cluster:
        tables = Tables(cluster)
        info = tables.create()
        tables.append(info, 1)
        tables.tier(info)
        asked: Counter[str] = Counter()

        def count(_connection, _cursor, statement, *_rest) -> None:
            asked[statement.split(None, 1)[0]] += 1

        event.listen(tables.storage.access.catalog().engine, "before_cursor_execute", count)
        tables.append(info, 1)
        tables.tier(info)
        # In the commit, and after it; when it is planned, nobody has changed the catalog since.
        assert asked == {"SELECT": 2, "UPDATE": 1}
