"""The report of a round, as text, HTML and JSON."""

import json

from fluss_lab.model import TablePath
from fluss_lab.tiering.round.round_report import TieredBucket, TieringReport

SECONDS = {"plan": 0.1, "write": 2.0, "commit": 0.2, "finish": 0.01, "total": 2.5}


def report(**changes):
    values = {
        "table": TablePath("db", "events"),
        "rows": 5000,
        "files": 2,
        "bytes": 1_500_000,
        "snapshot_id": 77,
        "epoch": 3,
        "splits": 2,
        "seconds": SECONDS,
        "buckets": (TieredBucket("<x>", 0, 10, 2510, 1_700_000_000_000), TieredBucket("b", 1, 0, 2500, -1)),
    }
    return TieringReport(**values | changes)


def test_repr_is_one_short_line():
    text = repr(report())
    assert "5,000 rows in 2 files (1.5 MB)" in text
    assert "\n" not in text
    assert len(text) < 150


def test_repr_of_nothing_to_tier():
    assert "nothing to tier" in repr(report(rows=0, files=0, bytes=0, buckets=()))


def test_html_shows_stages_and_buckets_and_escapes():
    html = report()._repr_html_()
    assert "write 2.00 s" in html
    assert "22:13:20.000" in html
    assert "Times of 2023-11-14, UTC." in html
    assert "&lt;x&gt;" in html
    assert "<x>" not in html


def test_dict_is_json_and_complete():
    value = json.loads(json.dumps(report().to_dict()))
    assert value["seconds"] == SECONDS
    assert value["buckets"][0] == {
        "partition": "<x>", "bucket": 0, "start": 10, "end": 2510, "max_timestamp_ms": 1_700_000_000_000,
    }  # fmt: skip
    assert value["rows"] == sum(each["end"] - each["start"] for each in value["buckets"])


def test_rows_per_second():
    assert report().rows_per_s == 2000.0
    assert report(rows=0).rows_per_s == 0.0
