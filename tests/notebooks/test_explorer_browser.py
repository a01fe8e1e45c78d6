"""The table explorer in a real JupyterLab in a headless browser without a network."""

import os
from pathlib import Path

import pytest

from tests.notebooks.jupyterlab_server import FLAWS, run_page, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")

LAB = """
import fluss_lab as fl
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

def tier(table):
    run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)

lab = fl.Lab.open("explored", config={"server.grace": "200ms"})
lab.create_database("shop")
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s"}
IMAGE = "<img src=x onerror='window.wronged=1'>"
flights = lab.create_table(
    "shop.flights", {"id": "bigint", "month": "string", "carrier": "string", "dest": "string", "delay": "int", "gain": "double", "at": "timestamp(3)"},
    partitioned_by=["month"], buckets=2, properties=LAKE,
)
import datetime as dt, random
chance = random.Random(7)
def rows(count, start):
    return [{"id": start + n, "month": f"2013-{1 + n % 6:02}", "carrier": chance.choice(["UA", "B6", "DL", "AA"]), "dest": chance.choice(["ATL", "ORD", "LAX"]),
             "delay": chance.choice([None, *range(-20, 180)]), "gain": chance.random() * 10, "at": dt.datetime(2013, 1, 1) + dt.timedelta(minutes=n)} for n in range(count)]
flights.append(rows(6_000, 0))
tier(flights)
flights.append(rows(900, 6_000))
planes = lab.create_table("shop.planes", {"tailnum": "string", "seats": "int", "email": "string"}, primary_key=["tailnum"], buckets=3, properties=LAKE)
planes.upsert([{"tailnum": f"N{n}", "seats": n, "email": "a@example.org"} for n in range(2_000)])
tier(planes)
planes.upsert([{"tailnum": f"N{n}", "seats": 1_000 + n} for n in range(0, 2_000, 7)])
notes = lab.create_table("shop.notes", {"id": "bigint", "author": "string", "text": "string", "score": "double"}, primary_key=["id"], comment=IMAGE)
notes.upsert([
    {"id": 1, "author": IMAGE, "text": "</td></table><script>window.wronged=2</script>", "score": 0.1},
    {"id": 2, "author": "'; drop table notes;--", "text": "{{7*7}} ${7*7} %s %n", "score": float("nan")},
    {"id": 3, "author": "\\u202egnp.exe", "text": "a\\x00b\\tc\\nd", "score": -0.0}, {"id": 4, "author": "W" * 400, "text": "", "score": 1e308}, {"id": 5, "author": "", "score": float("inf")},
])
lab.create_table("shop.empty", {"id": "int"}, buckets=2)
wide = lab.create_table("shop.wide", {f"signal_{n:03}": "string" if n % 5 == 4 else "double" for n in range(200)})
wide.append([{f"signal_{n:03}": "idle" if n % 5 == 4 else n / 7 + k for n in range(200)} for k in range(300)])
many = lab.create_table("shop.many", {"id": "int"}, buckets=200, properties=LAKE)
many.append([{"id": n} for n in range(20_000)])
tier(many)
many.append([{"id": n} for n in range(2_000)])
lab.create_table("shop.brief", {"id": "int"})
"""
BUSY = """
import time
print("busy since", time.time())
end = time.monotonic() + 12
while time.monotonic() < end:
    sum(range(1000))
"""


def notebook(folder, name):
    cells = [
        LAB.replace("explored", f"explored-{name}"),
        'lab.explore("shop.flights")',
        BUSY,
        'lab.drop_table("shop.brief")',
        "lab.close()",
    ]
    return write_notebook(Path(folder) / f"explorer-{name}.ipynb", cells)


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, lab_place, tmp_path_factory):
    """What a visit of the explorer in one theme has seen."""
    url, folder = lab_place
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    name = notebook(folder, request.param)
    return run_page("explorer_page", url, name, request.param, pictures) | {"asked": request.param}


def test_nothing_goes_wrong_and_nothing_is_loaded_from_elsewhere(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["errors"] == []


def test_no_value_becomes_markup(seen):
    assert seen["markup"] == [None, 0]


def test_every_text_can_be_read(seen):
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_buckets_that_the_lake_has_nothing_of_lag_by_all_they_have(seen):
    assert "lag 900" in " ".join(seen["bucket_lag"].split())


def test_conditions(used):
    assert used["filtered"].split()[1:5] == ["of", "6,900", "rows", "read"]
    assert (
        used["filtered_code"] == """flights.scan(where="delay > 60 and dest = 'ATL'", with_source=True).to_pandas()"""
    )
    assert "dely" in used["wrong"]
    assert "shown: where delay > 60" in used["wrong"]
    assert used["rows_stay"]
    assert used["none"].split("\n")[0] == "No row fits the filter"
    assert "All 6,900 rows were looked at." in used["none"]
    assert used["added"].startswith("id")
    assert "No table’s path contains “nothing of this”." in used["search"]


def test_by_keys_alone(used):
    assert used["arrow_tab"] == "Data"
    assert used["slash"] == "Filter"
    assert int(used["cell"]) > 10
    assert used["end"] >= 0
    assert used["row"] == "Where did this row come from"
    assert used["closed"]
    assert used["alt"] == "Overview"
    assert used["cells"] == 5, "no key reaches the notebook's own shortcuts"


def test_a_cell_that_runs_does_not_keep_it_waiting(used):
    assert used["is_busy"] == used["still_busy"] == "[*]:"
    assert 0 <= used["busy_rows_ms"] < 5_000


def test_a_table_that_is_dropped_is_said_to_be(used):
    assert used["dropped"].startswith("shop.brief was dropped at ")
