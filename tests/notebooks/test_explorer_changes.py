"""The explorer's changelog and live tail in a real JupyterLab in a headless browser."""

import os
from pathlib import Path

import pytest

from tests.notebooks.jupyterlab_server import FLAWS, run_page, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")
#: Records of the table that is paged through.
RECORDS = 3_000 + 2 * 429

LAB = """
import fluss_lab as fl, subprocess, sys

lab = fl.Lab.open("changes-NAME", config={"server.grace": "200ms"})
lab.create_database("shop")
planes = lab.create_table("shop.planes", {"tailnum": "string", "seats": "int"}, primary_key=["tailnum"], buckets=2)
for begin in range(0, 3_000, 50):
    planes.upsert([{"tailnum": f"N{n}", "seats": n} for n in range(begin, begin + 50)])
planes.upsert([{"tailnum": f"N{n}", "seats": 1_000 + n} for n in range(0, 3_000, 7)])
wide = lab.create_table("shop.wide", {f"c{n}": "string" for n in range(150)})
wide.append([{f"c{n}": "w" * 190 for n in range(150)} for _ in range(200)])
stream = lab.create_table("shop.stream", {"id": "bigint", "text": "string"}, buckets=2)
stream.append([{"id": n, "text": "before"} for n in range(300)])
WRITER = '''
import time
import pyarrow as pa
import fluss_lab as fl
with fl.Lab.open("changes-NAME") as lab, lab.table("shop.stream").writer() as writer:
    begin, sent = time.monotonic(), 0
    while time.monotonic() - begin < SECONDS:
        rows = pa.table({"id": range(sent, sent + 5_000), "text": ["streamed"] * 5_000})
        writer.append(rows)
        writer.flush()
        sent += 5_000
        time.sleep(max(0, begin + sent / 50_000 - time.monotonic()))
'''
"""
CELLS = [
    LAB,
    'lab.explore("shop.planes")',
    'writer = subprocess.Popen([sys.executable, "-c", WRITER])',
    "writer.terminate(); writer.wait(); None",
]


def notebook(folder: Path, name: str, seconds: float = 90) -> str:
    """Write a notebook with the cells; return its name."""
    cells = (cell.replace("NAME", name).replace("SECONDS", str(seconds)) for cell in CELLS)
    return write_notebook(folder / f"changes-{name}.ipynb", cells)


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, lab_place, tmp_path_factory):
    url, folder = lab_place
    name = notebook(folder, request.param)
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    return run_page("explorer_changes_page", url, name, request.param, pictures) | {"asked": request.param}


@pytest.fixture
def used(seen):
    if seen["asked"] == "dark":
        pytest.skip("one theme is used, the other only looked at")
    return seen


def test_nothing_goes_wrong(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["errors"] == []
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_older_and_newer_records_slide_in_the_order_of_time(used):
    assert used["sorted"]
    assert used["seen"] == RECORDS
    assert 800 <= used["kept"] <= 1_000
    assert used["oldest"][1] == 0
    assert used["focuses"] == ["older", "tr"], "a button has the focus for as long as it is there"


def test_what_is_typed_and_what_is_wide(used):
    assert used["net"].split("\n")[:2] == ["the first 400 net changes of 1,000 records", "what was shown"]
    assert used["typed"] == used["stay"] == 1_000
    assert "expected an offset such as 1,234" in used["wrong"]
    assert 0 <= used["wide_ms"] < 15_000
    assert used["whole"] == "w" * 190
    assert used["fields"] == 150


def test_a_live_tail_of_many_records_a_second(used):
    held = used["held"]
    print(held, {name: used[name] for name in ("rate", "skipped", "full_ms", "resumed_ms")})
    assert used["mixed_in"] == 0, "no answer of the changelog mixes into it"
    assert used["rate"] > 1_000
    assert "more came, not shown" in used["skipped"]
    assert max(each["rows"] for each in held) <= 60
    assert max(each["nodes"] for each in held) < 3_000
    assert used["tail_kept"] == 500
    assert used["away"], "what is read stays where it is"
    assert max(each["heap_mb"] for each in held[2:]) < held[1]["heap_mb"] + 20, "the tab's memory stays flat"
    assert "buffer full: reading has stopped, nothing is lost" in used["full"]
    assert used["still"]
    assert used["resumed_ms"] >= 0
