"""The Data screen in a headless browser: what stays when something goes wrong, and what a notebook keeps."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel
from tests.notebooks.explorer_loopback import loopback
from tests.notebooks.jupyterlab_server import FLAWS, PAGE_TIMEOUT_S, ROOT, BrowserUnavailableError, browser
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")
LARGE = 650_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        flights = lab.create_table(
            "shop.flights", {"id": "bigint", "dest": "string", "delay": "int"}, buckets=2, properties=LAKE
        )
        rows = [{"id": n, "dest": "ATL" if n % 2 else "ORD", "delay": n % 100} for n in range(6_900)]
        flights.append(rows[:6_000])
        tier(flights)
        flights.append(rows[6_000:])
        large = lab.create_table("shop.large", {"id": "bigint"}, buckets=2)
        large.append(pa.table({"id": np.arange(LARGE)}))
        lab.create_table("shop.texts", {f"c{n}": "string" for n in range(30)}).append(
            [{f"c{n}": f"{row} " + "語" * 190 for n in range(30)} for row in range(400)]
        )
        nested = lab.create_table("shop.nested", {"id": "int", "tags": "array<string>"})
        nested.append([{"id": n, "tags": ["x" * 5_000]} for n in range(5)])
        yield lab


@pytest.fixture(scope="module")
def seen(lab, tmp_path_factory):
    """What a visit of the Data screen has seen."""
    try:
        python, chromium = browser()
    except BrowserUnavailableError as error:
        pytest.skip(str(error))
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    script = "tests.notebooks.explorer_data_page"
    with loopback(lambda: ExplorerModel(lab, "my lab")) as url:
        done = subprocess.run(
            [python, "-m", script, chromium, url, pictures], capture_output=True, text=True, timeout=PAGE_TIMEOUT_S, cwd=ROOT
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_breaks(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)


def test_the_last_good_rows_stay_and_can_be_used_after_a_wrong_condition(seen):
    assert seen["wrong_scrolled_ms"] >= 0
    assert "dely" in seen["wrong_status"]
    assert "shown: where delay > 10" in seen["wrong_status"]
    assert seen["wrong_opened_ms"] >= 0
    assert int(seen["wrong_delay"]) > 10


def test_the_scroll_bar_works_when_rows_have_become_more_than_it_has_pixels_for(seen):
    assert seen["grown_ms"] >= 0
    assert seen["dragged_ms"] >= 0
    assert abs(seen["dragged"] - LARGE / 2) < 1_000
    assert seen["wheeled"] == 10


def test_what_failed_is_asked_again(seen):
    assert seen["mended_ms"] >= 0
    assert "no server answered" in seen["away"]
    assert (seen["away_retry"], seen["away_grid"]) == (1, True)
    assert seen["back_ms"] >= 0
    assert "no server answered" not in seen["back"]


def test_a_saved_view_says_what_its_rows_are(seen):
    assert seen["saved_where"] == "delay > 10 and dest = 'ATL'"
    assert "where delay > 10 and dest = 'ATL'" in seen["saved"]
    assert "as of " in seen["saved"]
    assert "(now)" in seen["saved"]
    assert " ".join(seen["saved"].split()).startswith("200 of 3,105 of 6,900 rows saved")
    assert seen["saved_rows"] > 10
    assert seen["saved_facts"] > 1


def test_a_saved_view_of_large_rows_has_some(seen):
    size_bytes, rows = seen["saved_large"]
    assert size_bytes <= 256_000
    assert rows > 5


def test_a_long_value_within_another_is_cut_and_whole_in_the_detail(seen):
    assert seen["nested"].endswith("…")
    assert seen["nested_whole"] == 5_004
