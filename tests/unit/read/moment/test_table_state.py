"""The state of a table: what is known of its log as a whole; and how far reads are, shown where a person watches."""

from __future__ import annotations

import random

import pytest

from fluss_lab.client import KnownBucket, UnknownBucket
from fluss_lab.display import waiting
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableBucket
from fluss_lab.read.moment.table_state import BucketState, TableState
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


def bucket(number: int, start: int | CorruptDataError = 0, local_start: int = 0) -> BucketState:
    identity = TableBucket(7, None, number)
    return BucketState(
        identity, None, KnownBucket(identity, None, 0, start, local_start, 9, 9, 9, 0, 1, None, None, None), 0
    )


def test_a_log_is_whole_only_where_the_cluster_surely_has_all_of_every_bucket():
    whole, doubt = bucket(0), CorruptDataError("remote storage cannot be read")
    assert TableState((), None).is_whole
    assert TableState((whole, bucket(1, 0, 5), bucket(2, doubt, 0)), None).is_whole
    unknown = BucketState(TableBucket(7, None, 1), None, UnknownBucket(TableBucket(7, None, 1), None, 0, doubt), 9)
    dropped = BucketState(TableBucket(7, None, 1), None, None, 9)
    for other in (bucket(1, 3, 5), bucket(1, doubt, 5), unknown, dropped):
        assert not TableState((whole, other), None).is_whole
        assert not TableState((other, whole), None).is_whole
