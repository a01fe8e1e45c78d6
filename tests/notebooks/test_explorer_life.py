"""Explorers in a real JupyterLab: several at once, one at two places, answers lost in a cell's output, a kernel restarted, a notebook opened again."""

import os
from pathlib import Path

import pytest

from tests.notebooks.jupyterlab_server import FLAWS, run_page, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")

LAB = """
import fluss_lab as fl

lab = fl.Lab.open("life", config={"server.grace": "200ms"})
lab.create_database("life", if_not_exists=True)
for name in ("one", "two", "three"):
    table = lab.create_table(f"life.{name}", {"id": "int", "name": "string"}, buckets=2, if_not_exists=True)
    if not table.count():
        table.append([{"id": n, "name": name} for n in range(500)])
"""
#: A kernel says more than JupyterLab's server lets through, for longer than an explorer waits between two questions.
FLOOD = """
import time

until = time.monotonic() + 10
while time.monotonic() < until:
    print("x", flush=True)
lab.table("life.one").append([{"id": 500, "name": "after"}])
"""


@pytest.fixture(scope="module")
def seen(lab_place, tmp_path_factory):
    url, folder = lab_place
    name = write_notebook(folder / "life.ipynb", [LAB, *['lab.explore("life.one")'] * 3, FLOOD, "lab.close()"])
    return run_page("explorer_life_page", url, name, "light", Path(PICTURES or tmp_path_factory.mktemp("pictures")))


def test_nothing_goes_wrong(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["errors"] == []


def test_three_explorers_at_once_show_what_each_was_asked(seen):
    assert seen["three"] == ["life.one", "life.two", "life.three"]


def test_two_views_of_one_explorer_take_their_own_answers(seen):
    assert seen["two"] == [["life.three", "three"], ["life.two", "two"]]
    assert seen["two_banners"] == 0
    assert seen["one_left"] >= 0


def test_answers_that_are_lost_in_a_cells_output_are_asked_for_again(seen):
    assert "message rate exceeded" in seen["flood"]
    assert seen["after_flood_ms"] >= 0


def test_a_lab_that_is_closed_is_said_to_be_in_a_banner_that_shows_all_it_has(seen):
    assert "the lab, or its connection, is closed" in seen["closed"]
    assert "What you see is from" in seen["closed"]
    assert seen["closed_height"] < 70, "a few lines"
    assert seen["closed_room"] >= 0, "the button is not cut off"


def test_a_kernel_that_was_restarted_is_said_and_the_cell_run_again_takes_up(seen):
    assert "The kernel has ended or was restarted." in seen["restarted"]
    assert "Run the cell again" in seen["restarted"]
    assert seen["rows_stay"]
    assert seen["mark"] == "no kernel"
    assert seen["taken_up_ms"] >= 0
    assert seen["others"] == 2, "those whose cells were not run again still say so"


def test_a_notebook_opened_again_shows_what_was_shown(seen):
    assert "Saved view of" in seen["static"]
    assert seen["static_path"] == "life.two"
    assert seen["static_rows"] >= 0
    assert "Not in the saved view" in seen["static_changes"]
