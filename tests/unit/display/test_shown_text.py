"""Values as people read them."""

import doctest

import pytest

from fluss_lab.display import shown_text
from fluss_lab.display.shown_text import ago, display_text, plural, short, visible
from tests.unit.display.card_rules import HOSTILE, IDS


def test_the_examples_hold():
    assert doctest.testmod(shown_text).failed == 0


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_whatever_is_shown_is_short_and_printable(text):
    for length in (12, 60):
        for middle in (False, True):
            found = short(text, length, middle=middle)
            assert len(found) <= length
            assert found.isprintable()
            found.encode()


def test_what_has_no_shape_is_escaped():
    assert visible("a\x00b\u202ec\ud800") == "a\\x00b\\u202ec\\ud800"
    assert short("plain") == "plain"
    assert short("e\u0301a") == "e\u0301a"  # accents are letters


def test_a_very_long_text_costs_what_is_shown_of_it():
    class Text(str):
        __slots__ = ()

        def isprintable(self):
            assert len(self) <= 100
            return super().isprintable()

    assert short(Text("x" * 10_000_000), 60) == "x" * 59 + "…"


def test_ids_and_paths_keep_both_ends():
    assert short("8295196795998498829", 13, middle=True) == "829519…498829"
    path = "file:///warehouse/nyc/flights/data/month=2013-01/00000-0-abc.parquet"
    assert short(path, 30).startswith("file:")
    assert short(path, 30).endswith("00000-0-abc.parquet")


def test_numbers_are_grouped_identifiers_are_not():
    assert (display_text(1234567), display_text(1234567, grouped=False)) == ("1,234,567", "1234567")
    assert (display_text(None), display_text(True), display_text(0.5), display_text("")) == ("–", "True", "0.5", "")
    assert (plural(0, "row"), plural(1, "row"), plural(2_000, "row")) == ("0 rows", "1 row", "2,000 rows")


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (5_400_000, "1.5 h"), (129_600_000, "1.5 d")],
)
def test_ages_are_said_as_people_do(ms, said):
    assert ago(ms) == said
