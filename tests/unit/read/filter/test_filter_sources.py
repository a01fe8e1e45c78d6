"""A filter keeps the same rows whether they lie in the lake or in the log, for every type and for nulls."""

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.read.kit import rows_of, same
from tests.unit.read.types import ALL_TYPES, all_types_row, all_types_rows

pytestmark = pytest.mark.slow

ROWS = 60


@pytest.fixture(scope="module")
def sources(cluster):
    """Two tables of the same rows: one all in the lake, one all in the log."""
    connection = cluster.connection
    connection.admin().create_database("db", if_not_exists=True)
    readers = []
    for name in ("filtered_lake", "filtered_log"):
        path = TablePath("db", name)
        descriptor = make_descriptor(ALL_TYPES, buckets=1, properties={"table.datalake.enabled": True})
        info = connection.admin().create_table(path, descriptor)
        with connection.append_writer(path) as writer:
            writer.append(all_types_rows(info, ROWS))
        if name == "filtered_lake":
            run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
        readers.append(TableReader(connection, path))
    return readers


def literal(value):
    """Return a value as SQL writes it; None when SQL has no literal for it."""
    match value:
        case None | list() | dict():
            return None
        case bool() | int() | Decimal():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else None
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime() | dt.date() | dt.time():
            return f"'{value.isoformat()}'"
    raise AssertionError(value)


@pytest.mark.parametrize(
    ("where", "expected"),
    [("r.x is null", [1, 2]), ("not (r.x is not null)", [1, 2]), ("r.x is not null", [0]), ("r is null", [1, 2])],
)
def test_a_field_that_is_not_null_is_null_within_a_null_row(cluster, where, expected):
    connection = cluster.connection
    path = TablePath("db", "null_rows")
    connection.admin().create_database("db", if_not_exists=True)
    descriptor = make_descriptor({"id": "int", "r": "row<x int not null>"}, properties={"table.datalake.enabled": True})
    info = connection.admin().create_table(path, descriptor, if_not_exists=True)
    reader = TableReader(connection, path)
    if not reader.scan().count():
        with connection.append_writer(path) as writer:
            writer.append([{"id": 0, "r": {"x": 1}}, {"id": 1, "r": None}, {"id": 2, "r": None}])
        run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    found = reader.scan(where=where, with_source=True).to_arrow()
    assert sorted(found["id"].to_pylist()) == expected
    assert set(found["_source"].to_pylist()) == {"lake"}
    assert reader.scan(where=where).count() == len(expected)


def conditions(rng):
    """Yield SQL over every column."""
    rows = [all_types_row(n) for n in range(ROWS)]
    for name, dtype in ALL_TYPES.items():
        yield f"{name} is null"
        yield f"not {name} is null"
        if dtype.startswith(("array", "map", "row")):
            continue
        values = [text for row in rows if (text := literal(row.get(name))) is not None]
        for operator in ("=", "!=") if name == "flag" else ("=", "!=", "<", "<=", ">", ">="):
            yield f"{name} {operator} {rng.choice(values)}"
            yield f"not ({name} {operator} {rng.choice(values)})"
        yield f"{name} in ({', '.join(rng.sample(values, 3))})"
        yield f"{name} not in ({', '.join(rng.sample(values, 3))})"
    yield from ("flt is nan", "dbl is not nan", "not dbl is nan", "rec.x > 4", "rec.y < '2013-01-20'")
    yield from ("txt like 'x%'", "txt not like 'x%'", "txt like 'x_'", "chr like 'a1%'")
    yield from ("__offset < 7", "__bucket = 0", "__bucket != 0", "__timestamp >= '2000-01-01'", "__offset in (3, 5)")


def kept(reader, where):
    scan = reader.scan(list(ALL_TYPES), where, with_source=True)
    found = scan.to_arrow()
    assert scan.count() == found.num_rows
    return rows_of(found.drop_columns("_source")), set(found["_source"].to_pylist())


def test_a_sql_filter_keeps_the_same_rows_in_lake_and_log(sources, seed):
    lake, log = sources
    everything = log.scan().to_arrow()
    for where in conditions(random.Random(seed)):
        from_lake, one = kept(lake, where)
        from_log, other = kept(log, where)
        assert one <= {"lake"}
        assert other <= {"log"}
        same(from_lake, from_log)
        made = compile_filter(where, log.info.schema)
        if not any(name.startswith("__") for name in made.columns):
            same(from_log, rows_of(everything.filter(made.expression)))


@pytest.mark.parametrize(
    "where",
    [
        pc.field("tiny") + pc.scalar(pa.scalar(1, pa.int8())) > 0,
        ~pc.field("num").isin([1, 2]),
        pc.field("rec", "x") == 3,
        pc.field("dbl") != 0.0,
        pc.field("tod0") > dt.time(12),
        pc.utf8_length(pc.field("chr")) == 3,
        pc.field("txt") == "x3",
        pc.field("fixed") == bytes([3, 252]),
    ],
    ids=str,
)
def test_an_arrow_filter_keeps_the_rows_that_arrow_keeps_of_the_tables_own_types(sources, where):
    lake, log = sources
    try:
        expected = log.scan().to_arrow().filter(where)
    except pa.ArrowInvalid as overflow:
        for reader in (lake, log):
            with pytest.raises(InvalidFilterError, match=f"cannot be computed for some row: {overflow}"):
                kept(reader, where)
        return
    same(kept(lake, where)[0], rows_of(expected))
    same(kept(log, where)[0], rows_of(expected))


@pytest.mark.parametrize(
    "where", ["v is nan", "v != 2.25", "not (v = 2.25)", "v > 1", "not (v > 9)", "v not in (2.25)"]
)
def test_a_nan_beside_one_number_is_not_lost_in_a_file(cluster, where):
    # Statistics of Parquet files leave NaN out: the file's smallest and largest value are both 2.25.
    connection = cluster.connection
    path = TablePath("db", "nan_beside")
    connection.admin().create_database("db", if_not_exists=True)
    info = connection.admin().create_table(
        path, make_descriptor({"v": "double"}, properties={"table.datalake.enabled": True}), if_not_exists=True
    )
    reader = TableReader(connection, path)
    if not reader.scan().count():
        with connection.append_writer(path) as writer:
            writer.append(pa.table({"v": [2.25, float("nan"), None]}))
        run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    found = [repr(value) for value in reader.scan(where=where).to_arrow()["v"].to_pylist()]
    assert found == {"v > 1": ["2.25"], "not (v > 9)": ["2.25", "nan"]}.get(where, ["nan"])
