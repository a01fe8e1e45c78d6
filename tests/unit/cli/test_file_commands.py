"""Files loaded into tables and tables exported to files, from the shell."""

import pytest
from pyarrow import parquet

from tests.unit.cli.shell_kit import assert_refused, call


@pytest.fixture
def folder(shell_lab):
    return shell_lab.folder


def test_load_makes_a_table_and_shows_its_types(folder, tmp_path):
    (tmp_path / "orders.csv").write_text("id;price;when\n1;2.50;x\n2;;y\n")
    done = call(
        "load", tmp_path / "orders.csv", "shop.orders", "--primary-key", "id", "--type", "price=decimal(10, 2)",
        "--rename", "when=place", "--json", "-f", folder,
    )  # fmt: skip
    assert done.code == 0, done.err
    (report,) = done.rows
    assert (report["table"], report["rows"], report["created"]) == ("shop.orders", 2, True)
    assert [(each["column"], each["type"]) for each in report["columns"]] == [
        ("id", "BIGINT NOT NULL"), ("price", "DECIMAL(10,2)"), ("place", "STRING"),
    ]  # fmt: skip
    again = call("load", tmp_path / "orders.csv", "shop.orders", "--rename", "when=place", "-f", folder)
    assert_refused(again)
    assert "--append" in again.err
    (tmp_path / "more.jsonl").write_text('{"id": 2, "price": 9, "place": "z"}\n')
    more = call("load", tmp_path / "more.jsonl", "shop.orders", "--append", "-f", folder)
    assert more.out.startswith("1 rows of more.jsonl in table shop.orders"), more.err
    assert call("head", "shop.orders", "--json", "-f", folder).rows == [
        {"id": 1, "price": "2.50", "place": "x"},
        {"id": 2, "price": "9.00", "place": "z"},
    ]


def test_a_tab_is_named_as_people_write_it(folder, tmp_path):
    (tmp_path / "tabs.csv").write_text("a,b\tc\n1,5\tx\n")
    done = call(
        "load", tmp_path / "tabs.csv", "tabs.t", "--delimiter", r"\t", "--rename", "a,b=ab", "--json", "-f", folder
    )
    assert done.code == 0, done.err
    assert [each["column"] for each in done.rows[0]["columns"]] == ["ab", "c"]


@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
def test_what_is_exported_is_loaded_again(folder, tmp_path, end):
    path = tmp_path / f"flights.{end}"
    done = call("export", "nyc.flights", path, "--where", "a < 10 and a <> 1", "-f", folder)
    assert (done.code, done.err) == (0, ""), done
    assert done.out.startswith("5 rows of nyc.flights in ")
    assert_refused(call("export", "nyc.flights", path, "-f", folder))
    (again,) = call("export", "nyc.flights", path, "--overwrite", "--limit", 6, "--json", "-f", folder).rows
    assert (again["rows"], again["bytes"]) == (6, path.stat().st_size)
    if end == "parquet":
        assert parquet.read_table(path).num_rows == 6
    assert call("load", path, f"back.{end}", "-f", folder).code == 0
    rows = [call("head", name, "-n", 6, "--json", "-f", folder).rows for name in ("nyc.flights", f"back.{end}")]
    assert rows[0] == rows[1]
