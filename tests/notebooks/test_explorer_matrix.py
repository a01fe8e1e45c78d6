"""Every screen of the explorer on every kind of table, in a real JupyterLab in a headless browser; then without server, table, column."""

import os
from pathlib import Path

import pytest

from fluss_lab.server import cluster
from tests.notebooks.jupyterlab_server import FLAWS, run_page, write_notebook

KINDS = (
    "every",
    "every_keyed",
    "wide",
    "wide_keyed",
    "empty",
    "empty_keyed",
    "hostile",
    "hostile_keyed",
    "many",
    "big",
)
pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")
IMAGE = "<img src=x onerror='window.wronged=1'>"
#: Of the largest table.
ROWS = int(os.environ.get("EXPLORER_ROWS", "200000"))

LAB = """
import datetime as dt, decimal
from pathlib import Path
import numpy as np, pyarrow as pa
import fluss_lab as fl
from fluss_lab.testing.clusters import ServerProcess
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.lab_place import LabPlace

# A server that a test may kill: no lab starts it again.
server = ServerProcess(Path("matrix"), client={"client.request-timeout": "2s"})
server.start()
lab = fl.Lab._from_place(LabPlace(server.connection, server.folder, None, {}))

def tier(*tables):
    for table in tables:
        run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)

for name in ("matrix", "gone", "changing"):
    lab.create_database(name)
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s"}
IMAGE = "<img src=x onerror='window.wronged=1'>"

def both(name, schema, key, rows, **more):
    "A log table and a primary-key table of the same rows: some in the lake, changed since."
    made = [lab.create_table(f"matrix.{name}", schema, properties=LAKE, **more),
            lab.create_table(f"matrix.{name}_keyed", schema, primary_key=key, properties=LAKE, **more)]
    if rows:
        made[0].append(rows)
        made[1].upsert(rows)
        tier(*made)
        made[0].append(rows[:3])
        made[1].upsert(rows[:2])
        made[1].delete([{name: rows[-1][name] for name in key}])
    return made

UTC = dt.timezone.utc
every = {"a_key": "string", "a_boolean": "boolean", "a_tinyint": "tinyint", "a_smallint": "smallint", "an_int": "int", "a_bigint": "bigint", "a_float": "float",
    "a_double": "double", "a_decimal": "decimal(38, 10)", "a_char": "char(3)", "a_bytes": "bytes", "a_binary": "binary(2)", "a_date": "date", "a_time": "time(3)",
    "a_timestamp": "timestamp(6)", "a_moment": "timestamp_ltz(6)", "an_array": "array<int>", "a_map": "map<string, double>", "a_row": "row<a int, b string>"}
full = {"a_boolean": True, "a_tinyint": -128, "a_smallint": 32_767, "an_int": -2**31, "a_bigint": 2**63 - 1, "a_float": 0.1, "a_double": 1e308,
    "a_decimal": decimal.Decimal("-1234567890123456789012345678.0123456789"), "a_char": "abc", "a_bytes": b"\\x00\\xff" * 40, "a_binary": b"\\x01\\x02", "a_date": dt.date(1969, 12, 31),
    "a_time": dt.time(23, 59, 59, 999_000), "a_timestamp": dt.datetime(2026, 2, 28, 12, 0, 0, 123_456), "a_moment": dt.datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
    "an_array": [1, None, 3], "a_map": {"a": 1.5, "b": float("nan")}, "a_row": {"a": 1, "b": "two"}}
both("every", every, ["a_key"], [{"a_key": f"k{n}", **(full if n % 3 else {})} for n in range(30)])
both("wide", {f"signal_{n:03}": "bigint" if n == 0 else "string" if n % 5 == 4 else "double" for n in range(200)}, ["signal_000"],
    [{f"signal_{n:03}": k if n == 0 else "idle" * 12 if n % 5 == 4 else n / 7 + k for n in range(200)} for k in range(300)])
both("empty", {"id": "int", "text": "string"}, ["id"], [], buckets=2)
comment = {"comment": IMAGE}
long = "a_very_long_name_" * 7
hostile = pa.schema([pa.field("id", pa.int64(), False, comment), pa.field("part", pa.string(), False, comment), pa.field("text", pa.string(), metadata=comment), pa.field(long, pa.string())])
texts = [IMAGE, "</td></table><script>window.wronged=2</script>", "'; drop table notes;--", "\\u202egnp.exe", "a\\x00b\\tc\\nd\\u200b", "W" * 400, "", None, "{{7*7}} ${7*7} %s"]
both("hostile", hostile, ["id", "part"], [{"id": n, "part": part, "text": text, long: IMAGE} for part in (IMAGE, "a&b \\"c\\"") for n, text in enumerate(texts)],
    partitioned_by=["part"], comment=IMAGE)
many = lab.create_table("matrix.many", {"id": "int", "name": "string"}, buckets=120, bucket_key=["id"], properties=LAKE)
many.append([{"id": n, "name": f"n{n}"} for n in range(12_000)])
tier(many)
many.append([{"id": n, "name": f"n{n}"} for n in range(1_000)])
ROWS, STEP = ALL_ROWS, 500_000
big = lab.create_table("matrix.big", {"id": "bigint", "name": "string", "price": "double"}, buckets=4, properties=LAKE)
def fill(begin, end):
    for at in range(begin, end, STEP):
        ids = np.arange(at, min(end, at + STEP))
        big.append(pa.table({"id": ids, "name": pa.array(ids % 1_000).cast(pa.string()), "price": ids / 7}))
fill(0, ROWS * 9 // 10)
tier(big)
fill(ROWS * 9 // 10, ROWS)
for n in range(8):
    lab.create_table(f"gone.t{n}", {"id": "int", "text": "string"}, properties=LAKE).append([{"id": k, "text": "x"} for k in range(9)])
    changing = lab.create_table(f"changing.t{n}", {"id": "int", "text": "string"}, primary_key=["id"], properties=LAKE)
    changing.upsert([{"id": k, "text": "x"} for k in range(2)])
    tier(changing)
"""


@pytest.fixture(scope="module")
def seen(lab_place, tmp_path_factory):
    """What a visit of all screens has seen."""
    url, folder = lab_place
    name = write_notebook(folder / "matrix.ipynb", [LAB.replace("ALL_ROWS", str(ROWS)), 'lab.explore("matrix.every")'])
    try:
        return run_page(
            "explorer_matrix_page", url, name, "light", Path(PICTURES or tmp_path_factory.mktemp("pictures")), *KINDS
        )
    finally:
        cluster.stop_server(folder / "matrix")


def texts(seen, kind):
    """Return the texts of the screens of one kind of table: light by screen, then details, then dark."""
    return {name.removeprefix(f"{kind}-"): text for name, text in seen["texts"].items() if name.startswith(f"{kind}-")}


def test_nothing_goes_wrong(seen):
    assert {kind: seen.get(kind) for kind in (*FLAWS, "late", "cut", "dialog")} == dict.fromkeys(
        (*FLAWS, "late", "cut", "dialog")
    )
    assert seen["errors"] == []
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_every_screen_is_looked_at_on_every_kind_of_table(seen):
    screens = [name.lower() for name in seen["tabs"]]
    assert len(screens) >= 8
    for kind in KINDS:
        assert set(texts(seen, kind)) >= {f"{screen} {theme}" for screen in screens for theme in ("light", "dark")}, (
            kind
        )
    assert set(seen["pages"]) == {"Jobs", "Health"}


def test_hostile_text_is_text(seen):
    assert seen["markup"] == [None, 0]
    for kind in ("hostile", "hostile_keyed"):
        shown = texts(seen, kind)
        for screen in (
            "overview",
            "data",
            "data-detail",
            "changelog",
            "changelog-detail",
            "buckets",
            "lake",
            "diff-detail",
        ):
            assert IMAGE in shown[f"{screen} light"], (kind, screen)
        assert "\\u202egnp.exe" in shown["data light"]
        assert "a\\x00b\\tc\\nd\\u200b" in shown["data light"]


def test_an_empty_table_is_said_to_be(seen):
    for kind in ("empty", "empty_keyed"):
        shown = texts(seen, kind)
        assert "No rows yet" in shown["data light"]
        assert "The table has 2 buckets and nothing in them." in shown["data light"]
        assert "No record there" in shown["changelog light"]
        assert "No snapshot yet" in shown["lake light"]


def test_every_row_of_a_large_table_is_counted(seen):
    shown = texts(seen, "big")
    assert f"{ROWS:,} rows" in shown["data light"]
    assert f"200 of {ROWS:,} records" in shown["changelog light"]


def test_a_server_that_is_killed_is_said_to_be_away_and_each_screen_recovers_by_itself(seen):
    assert list(seen["away"]) == [*seen["tabs"], *seen["pages"]]
    for screen, met in seen["away"].items():
        first, second, *_ = met["said"].split("\n")
        assert first == "The server does not answer.", screen
        assert "What you see is from " in second
        assert "attempt 1; your place is kept." in second
        assert met["meanwhile"].strip(), screen
        assert "That cannot be read" not in met["meanwhile"], screen
        assert met["back_ms"] >= 0, screen
        assert met["whole_ms"] >= 0, (screen, met["after"])


def test_a_live_tail_outlives_a_server_that_is_killed_and_a_pause_stays_one(seen):
    away, paused, resumed = seen["tail_away"], seen["tail_paused"], seen["tail_resumed"]
    assert away[0].startswith("The server does not answer")
    assert paused[0].startswith("Paused")
    assert resumed[0].startswith("Following")
    assert [away[1], paused[1], resumed[1]] == [1, 1, 2]


def test_a_table_that_is_dropped_is_said_to_be_and_another_one_of_its_path_is_not_shown(seen):
    assert list(seen["dropped"]) == seen["tabs"]
    for at, text in enumerate(seen["dropped"].values()):
        assert text.startswith(f"gone.t{at} was dropped at ")
        assert (
            "A table of the same path made later is another one; it will not be shown in this place by itself." in text
        )
        assert "other" not in text.replace("another", "")


def test_a_column_that_is_added_is_there_where_columns_are_shown(seen):
    assert list(seen["altered"]) == seen["tabs"]
    for screen, met in seen["altered"].items():
        assert met["heard_ms"] >= 0, screen
        assert met["alerts"] == [], screen
        before, after = (code.partition("(")[0] for code in met["codes"])
        assert before == after, "the lines are those of the screen that is shown"
    assert "added" in seen["altered"]["Overview"]["text"]
    assert "added" in seen["altered"]["Data"]["text"]
    assert "new" in seen["altered"]["Data"]["text"].split()
    assert "added" in seen["altered"]["Write"]["text"]


def test_every_control_is_come_to_by_keys_and_seen_there(seen):
    walks = seen["keys"]["walks"]
    assert list(walks) == seen["tabs"]
    for screen, walk in walks.items():
        assert (walk["missing"], walk["unseen"], walk["is_back"]) == ([], [], True), screen


def test_everything_is_done_by_keys_alone(seen):
    keys = seen["keys"]
    assert (keys["tree"], keys["path"]) == ("hostile_keyed", "matrix.hostile_keyed")
    assert 'where="id > 5"' in keys["condition"]
    assert keys["row"].startswith("Where did this row come from")
    assert keys["row_left"] == "grid"
    assert (keys["record"], keys["record_left"]) == ("Deleted row", "tr")
    assert keys["tail"].startswith("Paused")
    assert "inspect.partitions" in keys["part"]
    text, role = keys["diff"]
    assert "1 key differs" in text
    assert role == "input", "the focus stays where Enter was pressed"
    assert keys["write"][:2] == ["input", "Upsert row"]
    assert keys["write"][2].startswith('hostile_keyed.upsert([{"id": 77, "part": "by keys"')
    assert (keys["pages"], keys["tab"]) == (["Jobs", "Health"], "Overview")
    assert keys["drawer"] == ["Find a table", "Tables"]
