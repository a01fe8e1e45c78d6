"""Cards: one pattern, no room for markup in what is shown."""

import pytest

from fluss_lab.display import LAKE, LOG, Grid, Key, card, html_table
from tests.unit.display.card_rules import HOSTILE, IDS, IMAGE, check_card

pytestmark = pytest.mark.slow


def test_a_card_reads_in_order():
    html = card(
        "Table",
        "nyc.flights",
        [("", "log table"), ("rows", 336_776), ("where`", "a < 5"), ("absent", None)],
        notes=["bucket 3 is damaged", None],
        keys=[Key(LAKE, "lake 335,572", 335_572), Key(LOG, "only in the log 1,204", 1_204)],
        grid=Grid(["column"], [["id"]]),
        total=12,
        noun="column",
        last="And that is all.",
        calls=[".schema"],
    )
    text = check_card(html).text
    found = [
        text.index(each)
        for each in ("Table", "nyc.flights", "◆ bucket 3", "log table", "336,776", "a < 5", "lake 335,572", "1,204",
                     "column", "id", "1 of 12 columns.", "And that is all.", ".schema")
    ]  # fmt: skip
    assert found == sorted(found)
    assert "absent" not in text
    assert "width:99.6%" in html
    assert "width:0.4%" in html


def test_a_part_that_is_not_empty_is_seen():
    html = card("Table", "t", keys=[Key(LAKE, "lake", 10**9), Key(LOG, "log", 1)])
    assert "width:0.4%" in html
    assert card("Table", "t", keys=[Key(LAKE, "lake", 0), Key(LOG, "log", 0)]).count("height:8px") == 2


@pytest.mark.parametrize("evil", HOSTILE, ids=IDS)
def test_no_part_of_a_card_is_taken_for_markup(evil):
    html = card(
        evil[:20], evil, [(evil, evil), (f"{evil}`", evil), ("rows", 5)], notes=[evil] * 20,
        keys=[Key(LAKE, evil, 1), Key("", evil)], grid=Grid([evil, "b"], [[evil, evil]] * 10), total=400, noun="row",
        last=evil, calls=[evil],
    )  # fmt: skip
    check_card(html)
    check_card(html_table(evil, [evil] * 200, [[evil] * 200] * 400), rows_max=50)


def test_a_table_alone_is_a_card_of_fifty_rows():
    found = check_card(html_table("many", ["n"], [[n] for n in range(1000)]), rows_max=50)
    assert "50 of 1,000 rows." in found.text
    assert IMAGE in check_card(html_table(IMAGE, [IMAGE], [[IMAGE]])).text
    assert check_card(html_table("none", [], [])).tables == []
