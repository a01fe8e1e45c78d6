"""Listings: what a program gets and what a notebook shows, with nothing that a browser would run."""

import pyarrow as pa

from fluss_lab.display import html_table
from fluss_lab.workbench.cards.listing import Listing

EVIL = "<img src=x onerror=alert(1)>"
ROWS = [
    {"snapshot_id": 123456789, "rows": 1234567, "note": None},
    {"snapshot_id": 2, "rows": 3, "note": EVIL + "y" * 90},
]


def test_rows_come_whole():
    listing = Listing("things", ROWS)
    assert list(listing) == ROWS
    assert listing[1]["note"].endswith("y")
    assert listing.column("rows") == [1234567, 3]
    assert listing.to_arrow().column("snapshot_id").to_pylist() == [123456789, 2]
    assert listing.to_pandas()["rows"].sum() == 1234570


def test_what_is_shown_is_short_and_escaped():
    listing = Listing(EVIL, ROWS)
    html = listing._repr_html_()
    assert "<img" not in html
    assert "123456789" in html
    assert "1,234,567" in html
    assert "y" * 60 not in html
    assert "123456789" in repr(listing)
    assert "–" in repr(listing)


def test_an_empty_listing_has_its_columns():
    listing = Listing("none", [], ("a", "b"))
    assert len(listing) == 0
    assert listing.to_pandas().columns.tolist() == ["a", "b"]
    assert "none" in repr(listing)
    assert "a" in listing._repr_html_()


def test_many_rows_are_counted():
    assert "50 of 1,000 rows" in Listing("many", [{"n": n} for n in range(1000)])._repr_html_()
    assert "and 950 more" in repr(Listing("many", [{"n": n} for n in range(1000)]))


def test_headers_and_cells_are_escaped():
    html = html_table(EVIL, [EVIL], [[EVIL], [None], [1234]])
    assert "<img" not in html
    assert "1,234" in html


def test_the_types_of_a_listing_are_those_declared_whatever_its_rows():
    types = {"id": pa.int64(), "ours": pa.bool_(), "name": pa.string(), "tags": pa.list_(pa.string()), "any": None}
    full = [{"id": 2**60 + 1, "ours": True, "name": "a", "tags": ["x"], "any": {"a": 1}}]
    for rows in ([], full, [*full, dict.fromkeys(types)], [dict.fromkeys(types)]):
        frame = Listing("things", rows, types).to_pandas()
        assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "boolean", "object", "object", "object"]
        assert len(frame) == len(rows)
    frame = Listing("things", [*full, dict.fromkeys(types)], types).to_pandas()
    assert frame["id"][0] == 2**60 + 1
    assert frame["tags"][0] == ["x"]
    assert Listing("undeclared", [{"n": None}, {"n": 5}]).to_pandas()["n"].dtype == "Int64"
