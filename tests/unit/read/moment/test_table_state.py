"""How far reads are is shown where a person watches, by those who ask for it."""

from __future__ import annotations

import random

import pytest

from fluss_lab.display import waiting
from fluss_lab.read.table_reader import TableReader
from fluss_lab.workbench.lab import Lab

pytestmark = pytest.mark.slow


class Seen:
    """Progress that notes what it is given."""

    def __init__(self, what: str) -> None:
        self.what, self.planned, self.rows, self.ended = what, 0, 0, False

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = True

    def plan(self, rows: int) -> None:
        self.planned = rows

    def add(self, rows: int, size_bytes: int) -> None:
        assert size_bytes > 0
        self.rows += rows


@pytest.fixture
def written(make_table, seed):
    table = make_table()
    table.append_random(random.Random(seed), 30, ["2013-01", "2013-02"])
    table.tier()
    table.append_random(random.Random(seed + 1), 12, ["2013-02"])
    return table


def test_each_read_says_what_it_does_and_how_far_it_is(written):
    seen = []
    reader = TableReader(written.connection, written.path, waiting=lambda what: seen.append(Seen(what)) or seen[-1])
    reads = {
        "reading {}": (lambda: reader.scan().to_arrow(), 42, 42),
        "reading the changelog of {}": (lambda: reader.changelog().to_arrow(), 42, 42),
        "counting rows of {}": (lambda: reader.scan(where="delay > 5").count(), 0, 0),
        "comparing {} at two moments": (lambda: reader.diff(reader.read_point()), 0, 0),
    }
    for what, (read, planned, rows) in reads.items():
        seen.clear()
        read()
        (found,) = seen
        assert (found.what, found.planned, found.rows, found.ended) == (what.format(written.path), planned, rows, True)


def test_a_table_of_a_lab_shows_its_reads_and_a_reader_by_itself_shows_nothing(written, monkeypatch):
    views = []
    monkeypatch.setattr(waiting, "make_view", lambda: views.append("asked"))
    reader = TableReader(written.connection, written.path)
    assert reader.scan().to_arrow().num_rows == reader.changelog().to_arrow().num_rows == reader.scan().count() == 42
    assert views == []
    lab = Lab(written.connection, folder=None, attachment=None, place={})
    assert lab.table(str(written.path)).scan().to_arrow().num_rows == 42
    assert views == ["asked"]
