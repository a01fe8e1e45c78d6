"""Stock Spark with Iceberg's own runtime reads our tables, and its procedures leave them as they were."""

import pytest

from tests.readers.stock_spark import StockSpark
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.commit.test_round_commit import COLUMNS, rows

pytestmark = [pytest.mark.maven, pytest.mark.slow]

#: What the catalog of `Lake` is called; Spark's must have the same name.
TABLE = "test.db.t"


def test_rows_and_procedures(stock: StockSpark, tmp_path):
    lake = Lake(tmp_path / "a lab")
    info = lake.table(COLUMNS, buckets=2)
    for first in range(0, 30, 5):
        snapshot = lake.append(info, rows(info, 5, first), first)
    properties = lake.storage.properties
    expected = lake.rows(info, snapshot).sort_by("id").to_pylist()

    def read() -> list:
        return stock.rows(lake.load(info).metadata_location).select(info.schema.names).sort_by("id").to_pylist()

    assert read() == expected
    assert (
        stock.rows(lake.load(info).metadata_location, "select count(*) as n from lake where __offset < 7")[0][0].as_py()
        == 7
    )
    assert stock.sql(properties, f"select count(*) from {TABLE}")[0][0].as_py() == 30
    assert stock.call(properties, "remove_orphan_files", "db.t", dry_run=True, older_than="2020-01-01 00:00:00") == {}
    rewritten = stock.call(properties, "rewrite_data_files", "db.t", options={"rewrite-all": "true"})
    assert rewritten["rewritten_data_files_count"] == 6
    assert read() == expected
    for procedure, arguments in [
        ("rewrite_position_delete_files", {}),
        ("rewrite_manifests", {}),
        ("expire_snapshots", {"retain_last": 1, "older_than": "2099-01-01 00:00:00"}),
    ]:
        stock.call(properties, procedure, "db.t", **arguments)
        assert read() == expected, procedure
    assert len(list(lake.folder.rglob("*.parquet"))) == 1


def test_two_lakes_with_one_catalog_name_are_kept_apart(stock: StockSpark, tmp_path):
    for number in (1, 2):
        lake = Lake(tmp_path / str(number))
        info = lake.table(COLUMNS, buckets=2)
        lake.append(info, rows(info, number))
        assert stock.sql(lake.storage.properties, f"select count(*) from {TABLE}")[0][0].as_py() == number


def test_an_error_is_reported_and_the_session_goes_on(stock: StockSpark, tmp_path):
    lake = Lake(tmp_path)
    lake.table(COLUMNS)
    with pytest.raises(AssertionError, match="TABLE_OR_VIEW_NOT_FOUND"):
        stock.sql(lake.storage.properties, f"select * from {TABLE}_of_nobody")
    assert stock.sql(lake.storage.properties, "select 1 as one").to_pylist() == [{"one": 1}]
