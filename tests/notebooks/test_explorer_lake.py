"""The explorer's screens Lake and Diff in a real JupyterLab in a headless browser without a network."""

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
from fluss_lab.workbench.lake_upkeep import LakeUpkeep

LakeUpkeep._executor = lambda upkeep: LocalTieringExecutor()

def tier(table):
    run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)

lab = fl.Lab.open("lake-explored", config={"server.grace": "200ms"})
lab.create_database("shop")
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s", "table.datalake.auto-maintenance": False}
IMAGE = "<img src=x onerror='window.wronged=1'>"
flights = lab.create_table(
    "shop.flights", {"id": "bigint", "month": "string", "carrier": "string", "dest": "string"},
    partitioned_by=["month"], buckets=2, properties=LAKE,
)
import random
chance = random.Random(7)
def rows(count):
    return [{"id": n, "month": f"2013-{1 + n % 6:02}", "carrier": chance.choice(["UA", "B6"]), "dest": chance.choice(["ATL", "ORD"])} for n in range(count)]
for turn in range(14):
    flights.append(rows(chance.randrange(300, 2_500)))
    tier(flights)
    if turn == 4:
        flights.alter(add_columns={"distance": "int"})
    if turn in (5, 9):
        flights.compact()
lake = lab.iceberg("shop.flights")
for snapshot in list(lake.snapshots())[:3]:
    lake.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
with lab.iceberg("shop.flights").manage_snapshots() as manage:
    manage.create_tag(lab.iceberg("shop.flights").current_snapshot().snapshot_id, IMAGE)
flights.append(rows(400))
planes = lab.create_table("shop.planes", {"tailnum": "string", "model": "string", "seats": "int", "engine": "string", "year": "int"}, primary_key=["tailnum"], buckets=3, properties=LAKE)
def plane(n, **more):
    return {"tailnum": f"N{100 + n}", "model": ["A321-231", "MD-88", "757-222"][n % 3], "seats": 50 + n % 200, "engine": "Turbo-fan", "year": 1985 + n % 30} | more
planes.upsert([plane(n) for n in range(900)])
tier(planes)
planes.upsert([plane(n, seats=391, engine="Turbo-jet" if n % 4 else "Turbo-fan") for n in range(0, 900, 2)])
tier(planes)
planes.upsert([plane(n, year=None) for n in range(1, 100, 9)])
planes.delete([{"tailnum": f"N{100 + n}"} for n in range(300, 340)])
planes.upsert([plane(2_000 + n) for n in range(25)])
notes = lab.create_table("shop.notes", {"id": "bigint", "author": "string", "text": "string"}, primary_key=["id"], properties=LAKE)
notes.upsert([{"id": 1, "author": IMAGE, "text": "</td></table><script>window.wronged=2</script>"}, {"id": 2, "author": "W" * 400, "text": ""}])
tier(notes)
notes.upsert([{"id": 1, "author": "'; drop table notes;--", "text": IMAGE}, {"id": 2, "author": "V" * 400, "text": "a\\x00\\u202eb"}])
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
long = lab.create_table("shop.long", {"id": "int"}, buckets=1, properties=LAKE)
long.append([{"id": 1}])
tier(long)
lake = lab.iceberg("shop.long")
last, updates = lake.current_snapshot(), []
for number in range(1_100):
    parent = last.snapshot_id
    last = last.model_copy(update={"snapshot_id": parent + 1, "parent_snapshot_id": parent, "sequence_number": last.sequence_number + 1, "timestamp_ms": last.timestamp_ms + chance.randrange(1, 90_000)})
    updates.append(AddSnapshotUpdate(snapshot=last))
lake.catalog.commit_table(lake, (), (*updates, SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=last.snapshot_id)))
lab.create_table("shop.outside", {"id": "int"}).append([{"id": 1}])
lab.create_table("shop.fresh", {"id": "int"}, properties=LAKE).append([{"id": 1}])
"""
TAKE_AWAY = """
import pathlib
place = pathlib.Path(lab.iceberg("shop.flights").metadata_location.removeprefix("file://"))
held = place.read_bytes()
place.unlink()
access = lab.lake_storage().access
access._loaded.clear()
access.catalog()._kept.clear()
"""


def notebook(folder, name):
    cells = [
        LAB.replace("lake-explored", f"explored-{name}"),
        'lab.explore("shop.flights")',
        TAKE_AWAY,
        "_ = place.write_bytes(held)",
        "lab.close()",
    ]
    return write_notebook(Path(folder) / f"lake-{name}.ipynb", cells)


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, lab_place, tmp_path_factory):
    """What a visit of the two screens in one theme has seen."""
    url, folder = lab_place
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    name = notebook(folder, request.param)
    return run_page("explorer_lake_page", url, name, request.param, pictures) | {"asked": request.param}


def test_nothing_goes_wrong_and_nothing_is_loaded_from_elsewhere(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["errors"] == []


def test_no_value_becomes_markup(seen):
    assert seen["markup"] == [None, 0]


def test_every_text_can_be_read(seen):
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_the_time_line_by_keys_and_by_the_mouse(used):
    assert 0 <= used["lake_ms"] < 5_000
    assert used["status"].startswith("13 snapshots held, 3 expired")
    assert used["options"] == 13
    assert used["newest"] == used["end"] != used["oldest"] == used["clicked"]
    assert used["newest"].startswith("round at ")
    assert used["second"] not in {used["newest"], used["oldest"]}
    assert used["active"]
    assert used["focus_stays"] == "Lake snapshots by time"


def test_older_snapshots_come_by_demand(used):
    assert used["long"] == [f"{some} of 1,101" for some in ("602–1,101", "102–601", "1–101", "602–1,101")]
    assert not used["cut"]
    assert used["older_focus"] == "older"
    assert used["long_options"] == 500
    assert 0 <= used["long_ms"] < 5_000


@pytest.mark.parametrize("name", ["code", "rows_code", "diff_code"])
def test_a_chosen_snapshot_is_read_and_compared(used, name):
    shown, expected = used[name]
    assert shown == expected


def test_a_log_table_only_grows(used):
    assert "rows were added" in used["grown"]
    assert "a log table only grows" in used["grown"]


def test_two_moments_compared(used):
    assert used["counts"] == ["Added 25", "Removed 40", "Changed 436"]
    assert used["first"][0] != used["first"][1]
    assert (used["shown"], used["more"]) == (200, 400)
    assert used["by_key"] == "-D"
    assert used["swapped"] == ["Added 40", "Removed 25", "Changed 436"]
    assert used["wrong"].split("\n")[0] == "The two moments cannot be compared"
    assert "InvalidTimestampError" in used["wrong"]
    assert used["nothing"].split("\n")[0] == "No row was changed"
    assert "Rows that are the same at both moments are left out." in used["nothing"]
    assert used["compares_again"] >= 0


def test_a_lake_that_cannot_be_read_is_the_error_and_is_read_again(used):
    assert used["damaged"].split("\n")[0] == "The lake cannot be read"
    assert "CorruptDataError" in used["damaged"]
    assert "restore it from a copy" in used["damaged"]
    assert used["again_ms"] >= 0


def test_no_control_is_cut_off_at_any_width_beside_the_tree(used):
    assert used["cut_off"] == []


def test_a_compaction_by_hand_is_on_the_time_line(used):
    assert used["compacted_ms"] >= 0
    added, status = used["compacted"]
    assert added == 1
    assert "Compaction: " in status
