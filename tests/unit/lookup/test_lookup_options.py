"""Options of lookup joins: typed, checked, and in the documentation with their defaults."""

from pathlib import Path

import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.lookup.lookup_options import CACHE_EXPIRY, LOOKUP_OPTIONS, RETRIES_MAX, lookup_options


def test_options_are_texts_of_known_names_and_types():
    given = lookup_options({"lookup.max-retries": 0, "lookup.cache.expire-after-write": "3min"})
    assert given == {"lookup.max-retries": "0", "lookup.cache.expire-after-write": "3min"}
    assert RETRIES_MAX.of(given) == 0
    assert CACHE_EXPIRY.of(given) == 180_000
    assert CACHE_EXPIRY.of(lookup_options(None)) == 0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("lookup.max-retry", 1, "did you mean 'lookup.max-retries'"),
        ("lookup.max-retries", -1, "expected at least 0"),
        ("lookup.max-partitions", 0, "expected at least 1"),
        ("lookup.full.max-rows", "all", "expected a whole number"),
        ("lookup.cache.expire-after-write", "soon", "expected a duration"),
    ],
)
def test_wrong_options_are_errors(name, value, text):
    with pytest.raises(InvalidPropertyError, match=text):
        lookup_options({name: value})


def test_every_option_is_documented_with_its_default():
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name, option in LOOKUP_OPTIONS.items():
        assert f"`{name}`" in text
        assert option is CACHE_EXPIRY or f"`{option.default}`" in text
