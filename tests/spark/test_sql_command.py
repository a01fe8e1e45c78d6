"""``fluss-lab sql``: a statement's result as a table and as JSON, and what is refused."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab
from tests.unit.cli.shell_kit import assert_refused, call

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("sql command") / "lab"
    with EmbeddedCluster(path), Lab.open(path) as lab:
        lab.create_database("nyc")
        lab.create_table("nyc.flights", {"a": "bigint", "f": "double", "b": "bytes"}).append(
            [{"a": 2**62, "f": float("nan"), "b": b"\xff"}, {"a": 1, "f": 0.5, "b": None}]
        )
        yield path


def test_a_result_as_json_and_as_a_table(folder):
    text = "select a, f, b, timestamp'2013-01-01 00:00:00Z' t from nyc.flights order by a"
    found = call("sql", text, "--json", "-f", folder)
    assert found.code == 0, found.err
    assert [(row["a"], row["f"], row["b"]) for row in found.rows] == [(1, 0.5, None), (2**62, "NaN", "/w==")]
    assert found.rows[0]["t"] == "2013-01-01T00:00:00.000000Z"
    shown = call("sql", text, "--rows", 1, "-f", folder)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["a", "1"]
    for rows in (2**31 - 2, 2**31 - 1, 10**20):
        assert len(call("sql", text, "--rows", rows, "--json", "-f", folder).rows) == 2
    none = call("sql", "select a from nyc.flights where a < 0", "-f", folder)
    assert (none.code, none.out) == (0, "a\n")


@pytest.mark.parametrize(
    "statement",
    [
        "", "selec 1", "select nope from nyc.flights", "select * from nyc.none", "select 1 a, 2 a", "select 1; select 2",
        "insert into nyc.flights values (1, 2, null)", "drop table nyc.flights", "select raise_error('x\ny')", "\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_refused(folder, statement):
    assert_refused(call("sql", "-f", folder, "--", statement))
    assert_refused(call("sql", "select 1", "--as-of", "soon", "-f", folder))
    assert call("tables", "-f", folder).out == "nyc.flights\n"
