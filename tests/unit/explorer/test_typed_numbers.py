"""Numbers as people type them."""

import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.texts.typed_numbers import typed_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        (" 1234 ", 1234),
        ("1,234", 1234),
        ("12,345,678", 12_345_678),
        ("1 234", 1234),
        ("1\u202f234\u202f567", 1_234_567),
        ("1_234", 1234),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_number_has_separators_or_none(text, number):
    assert typed_number(text) == number
    assert typed_number(text, "changelog") == number


@pytest.mark.parametrize(
    "text",
    ["", "1,23", "1,2345", "1,234 567", "-1", "+1", "1.5", "1e3", "0x10", ",123", "1,", "\u0661", "9" * 20, "ten"],
)
def test_anything_else_is_none(text):
    assert typed_number(text) is None
    with pytest.raises(InvalidRequestError, match=r"changelog: expected an offset such as 1,234"):
        typed_number(text, "changelog")
