"""Read points travel as text."""

import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model import TablePath
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint

POINT = ReadPoint(
    TablePath("nyc", "flights"), 7, 1, 1_767_225_600_000, False, 2**62,
    (PointBucket("2013-01", 3, 0, 0, 10), PointBucket("é$x", 4, 1, 5, 5)),
)  # fmt: skip


def test_a_point_comes_back_from_its_text():
    assert ReadPoint.from_json(POINT.to_json()) == POINT
    assert hash(ReadPoint.from_json(POINT.to_json())) == hash(POINT)
    plain = ReadPoint(TablePath("a", "b"), 1, 1, 0, True, None, (PointBucket(None, None, 0, 0, 1),))
    assert ReadPoint.from_json(plain.to_json()) == plain


def test_a_point_shows_what_it_is():
    assert repr(POINT) == (
        "<ReadPoint nyc.flights taken 2026-01-01T00:00:00.000Z: 10 records in 2 buckets, lake snapshot 4611686018427387904>"
    )
    assert "2013-01" in POINT._repr_html_()
    assert POINT.stops == {("2013-01", 0): 10, ("é$x", 1): 5}
    assert POINT.records == 10


@pytest.mark.parametrize(
    "text",
    ["", "nope", "[]", "{}", '{"version": 2}', POINT.to_json().replace("10]", "-1]"), POINT.to_json().replace('"nyc.', '".')],
)  # fmt: skip
def test_what_is_no_point_is_refused(text):
    with pytest.raises(InvalidRequestError, match="read point"):
        ReadPoint.from_json(text)
