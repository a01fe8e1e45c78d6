"""Where tables of a REST catalog are put, and whose files are removed: no other table's, and none that others may use."""

from pathlib import Path

import pyarrow as pa
import pytest

from fluss_lab.errors import AuthenticationError, UnsupportedError
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.commit.test_rest_commits import RestLake
from tests.unit.lake.rest_server import Fault, RestServer
from tests.unit.lake.upkeep import COLUMNS, HOUR_MS, Upkeep


@pytest.fixture
def rest(tmp_path):
    with RestServer(tmp_path / "rest") as found:
        yield found


def rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": 1, "name": "x"}], pa.schema([("id", pa.int64()), ("name", pa.string())]))


def folder(lake: Lake, info) -> Path:
    return Path(lake.load(info).location().removeprefix("file://"))


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


def orphans_of(lake: Lake, info, **options):
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * HOUR_MS)
    assert upkeep.maintenance.orphans_due(1) or options.pop("refused", False)
    return upkeep.orphans(dry_run=False, **options)


def test_a_table_of_a_rest_catalog_is_put_where_no_other_one_is(rest):
    lake = RestLake(rest)
    kept = lake.table(COLUMNS)
    lake.append(kept, rows())
    first = folder(lake, kept)
    assert first.parent == rest.folder / "warehouse" / "db"
    assert first.name.startswith("t-7-")
    before = files(first)
    lake.catalog.drop_table(kept.path, kept.table_id, keep=True)
    # The same name, and the same id in another cluster.
    again = lake.table(COLUMNS)
    lake.append(again, rows())
    second = folder(lake, again)
    assert second != first
    (second / "data" / "stray.parquet").write_bytes(b"x")
    assert [Path(path).name for path in orphans_of(lake, again)] == ["stray.parquet"]
    lake.catalog.drop_table(again.path, again.table_id)
    assert files(first) == before
    assert not second.exists()


def test_altering_a_table_leaves_where_it_was_asked_to_be(rest):
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    asked = lake.load(info).properties["fluss.location"]
    assert asked == lake.load(info).location()
    lake.catalog.alter_table(lake.info(COLUMNS, properties={"iceberg.custom.x": "y"}))
    assert lake.load(info).properties["fluss.location"] == asked
    assert lake.load(info).properties["custom.x"] == "y"


@pytest.mark.parametrize("way", ["disregarded", "refused", "no location"])
def test_where_the_catalog_chooses_nothing_is_cleared(rest, way):
    """A table that was kept may have its files there."""
    rest.chooses_location = way == "disregarded"
    rest.namespace_location = way != "no location"
    rest.faults = [Fault("create table", 400)] if way == "refused" else []
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    lake.append(info, rows())
    place = folder(lake, info)
    assert place.name == "t"
    (place / "data" / "kept.parquet").write_text("of the table that had the name before")
    with pytest.raises(UnsupportedError, match="the catalog chose that location"):
        orphans_of(lake, info, refused=True)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * HOUR_MS)
    assert not upkeep.maintenance.orphans_due(1)
    lake.catalog.drop_table(info.path, info.table_id)
    assert files(place) == ["kept.parquet"]


def test_who_may_not_make_tables_learns_it(rest):
    rest.faults = [Fault("create table", 403), Fault("create table", 403)]
    with pytest.raises(AuthenticationError, match=r"create lake table db\.t"):
        RestLake(rest).table(COLUMNS)


def test_a_creation_whose_answer_was_lost_is_taken_over(rest):
    lake = RestLake(rest)
    rest.faults = [Fault("create table", 503, done=True)]
    with pytest.raises(Exception, match="catalog"):
        lake.table(COLUMNS)
    info = lake.table(COLUMNS)
    lake.append(info, rows())
    assert orphans_of(lake, info) == []


def test_files_of_a_table_whose_catalog_removes_them_itself_stay(rest):
    """As a Nessie server says of every table: other branches may use them."""
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties={"iceberg.gc.enabled": "false"})
    for number in range(3):
        lake.append(info, rows(), number)
    place = folder(lake, info)
    (place / "data" / "stray.parquet").write_bytes(b"x")
    with pytest.raises(UnsupportedError, match=r"gc\.enabled=false"):
        orphans_of(lake, info, refused=True)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * HOUR_MS)
    before = files(place)
    done = upkeep.expire(keep=1, older_than_ms=upkeep.clock.now_ms())
    assert len(done.snapshot_ids) == 3
    assert (done.files, done.size_bytes) == (0, 0)
    assert set(before) <= set(files(place))
    lake.catalog.drop_table(info.path, info.table_id)
    assert set(before) <= set(files(place))
