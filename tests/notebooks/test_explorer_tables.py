"""The screens Data and Changelog in a headless browser: tables of every kind, and what happens to a table under them."""

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.testing.mock_clock import wait_until
from tests.notebooks.explorer_loopback import loopback
from tests.notebooks.jupyterlab_server import FLAWS, BrowserUnavailableError, browser, run_page
from tests.unit.explorer.explorer_kit import ask
from tests.unit.model.values.test_row_input import ALL_TYPES, ROW
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")
IMAGE = "<img src=x onerror='window.wronged=1'>"
#: The longest name there may be, and texts that a page could take for something else.
LONG_NAME = "n" * 128
TEXTS = [IMAGE, "", "\u202egnp.exe\x00\t", "W" * 400, None]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        flights = lab.create_table(
            "shop.flights", {"id": "bigint", "month": "string", "carrier": "string", "dest": "string", "delay": "int"},
            partitioned_by=["month"], buckets=2, properties=LAKE,
        )  # fmt: skip
        rows = [
            {"id": n, "month": f"2013-{1 + n % 6:02}", "carrier": ["UA", "B6", "DL"][n % 3], "dest": "ATL" if n % 2 else "ORD", "delay": n % 100 or None}
            for n in range(6_900)
        ]  # fmt: skip
        flights.append(rows[:6_000])
        tier(flights)
        flights.append(rows[6_000:])
        types = lab.create_table("shop.types", ALL_TYPES | {LONG_NAME: "string"}, buckets=1, comment=IMAGE)
        types.append([ROW | {"string": text, LONG_NAME: text} for text in TEXTS] + [dict.fromkeys(ALL_TYPES)])
        wide = lab.create_table("shop.wide", {f"c{n}": "string" if n % 5 == 4 else "double" for n in range(200)})
        wide.append([{f"c{n}": "idle" if n % 5 == 4 else n / 7 + k for n in range(200)} for k in range(300)])
        lab.create_table("shop.empty", {"id": "int"}, buckets=2)
        lab.create_table("shop.brief", {"id": "int"}, buckets=1).append([{"id": n} for n in range(10)])
        lab.create_table("shop.many", {"id": "bigint"}, buckets=1).append(pa.table({"id": np.arange(4_000)}))
        yield lab


def acts(lab):
    """Return what happens to tables and servers while they are shown."""

    def make():
        lab.create_table("shop.gone", {"id": "int"}).append([{"id": n} for n in range(10)])

    def servers():
        return ask(ExplorerModel(lab, "lab"), "health", age_s=0)["servers"].get("rows")

    def kill():
        wait_until(servers)
        os.kill(servers()[0]["process"], signal.SIGKILL)

    return {
        "alter": lambda: lab.table("shop.brief").alter(add_columns={"added": "string"}),
        "append": lambda: lab.table("shop.brief").append([{"id": 10, "added": IMAGE}]),
        "kill": kill,
        "make": make,
        "drop": lambda: lab.drop_table("shop.gone"),
    }


@pytest.fixture(scope="module")
def seen(lab, tmp_path_factory):
    """What a visit has seen."""
    try:
        browser()
    except BrowserUnavailableError as error:
        pytest.skip(str(error))
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    with loopback(lambda: ExplorerModel(lab, "my lab"), acts(lab)) as url:
        return run_page("explorer_tables_page", url, pictures)


@pytest.fixture(scope="module")
def types(lab):
    """The rows of the table of every type as the model answers them: texts, cut ones with their mark."""
    page = ask(ExplorerModel(lab, "my lab"), "page", table="shop.types", count=20)
    for row, column in page["cut"]:
        page["cells"][row][column] += "…"
    return page["columns"], [[said(text) for text in cells] for cells in page["cells"]]


def said(text):
    return {None: "null", "": "empty"}.get(text, text)


def test_nothing_breaks(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)


def test_every_text_can_be_read(seen):
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_values_of_every_type_are_shown(seen, types):
    names, rows = types
    assert set(ALL_TYPES) < set(names)
    assert (seen["type_names"], seen["types"]) == (names, rows)
    assert {name: seen["type_detail"][name] for name in names} == dict(zip(names, rows[0], strict=True))


def test_records_of_every_type_are_shown(seen, types):
    names, rows = types
    shown = [[text if len(text) <= 60 else f"{text[:60]}…" for text in row[:12]] for row in rows]
    assert seen["type_records"] == shown[::-1]
    assert {name: seen["type_record"][name] for name in names} == dict(zip(names, rows[0], strict=True))


def test_no_value_and_no_comment_becomes_markup(seen):
    assert seen["markup"] == [None, 0]
    assert seen["type_detail"]["string"] == IMAGE
    assert seen["type_detail"][LONG_NAME] == IMAGE


def test_the_last_of_200_columns(seen):
    assert seen["wide_ms"] >= 0
    assert seen["wide_drawn"] < 60, "those that can be seen, and some beside them"
    assert [seen[name] for name in ("wide", "wide_detail", "wide_record")] == ["idle"] * 3


def test_an_empty_table_says_so(seen):
    assert seen["empty"].startswith("No rows yet")
    assert "2 buckets and nothing in them" in seen["empty"]
    assert seen["empty_changes"].startswith("No record there")


def test_a_column_that_is_added_under_the_view_is_shown(seen):
    assert seen["altered_ms"] >= 0
    assert seen["altered"] == ["0", "null"]
    assert seen["appended"] == seen["altered_record"] == ["10", IMAGE]


def test_a_server_that_is_killed_under_the_view_and_is_back(seen):
    assert seen["killed_ms"] >= 0
    assert seen["killed_banners"] >= 0
    value, row = seen["killed_rows"]
    assert int(value) == row - 1
    assert seen["killed_changes_ms"] >= 0


@pytest.mark.parametrize("tab", ["data", "changelog"])
def test_a_table_that_is_dropped_under_the_view_is_not_the_next_one_of_its_path(seen, tab):
    assert seen[f"dropped_{tab}"].startswith("shop.gone was dropped at ")
    assert seen[f"made_{tab}"] == [seen[f"dropped_{tab}"], 0]


def test_the_row_that_a_detail_is_of_stays_in_sight(seen):
    assert seen["covered"] == [False] * 2


def test_where_no_row_fits_no_rows_are_counted(seen):
    assert seen["none"].startswith("0 of 6,000 rows")
    assert "rows 1" not in seen["none"]


def test_the_changelog_by_keys_alone(seen):
    assert (seen["key_row"], seen["key_detail"]) == (2, "Close record (Esc)")
    assert seen["key_back"] == [2, False]
    assert seen["key_end"] == 0
    assert seen["key_before"] == "Live tail", "all rows are one stop"
