"""Tails that are read ahead: the same rows, whatever moves meanwhile, and no thread that outlives its reader."""

import threading

import pyarrow as pa
import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.union import tails_ahead
from fluss_lab.read.union.pk_merge import Tail
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.testing import wait_until
from tests.unit.read.kit import rows_of
from tests.unit.read.union.boundaries_kit import row

KEYS = 60


def threads():
    return [each for each in threading.enumerate() if each.name == "tails-ahead"]


@pytest.fixture
def tailed(make_keyed):
    """A table of several buckets with rows in the lake, a third of which the log changed since, and new ones in it."""
    table = make_keyed()
    table.upsert([row(key) for key in range(KEYS)])
    table.tier()
    table.upsert([row(key, "since") for key in range(0, KEYS + 20, 3)])
    return table


def expected(table, scan):
    return [{name: each[name] for name in scan.schema.names} for each in table.expected(table.stops)]


def read(scan, plan):
    return rows_of(pa.Table.from_batches(read_rows(scan.source, plan, Request(scan.columns, None)), scan.schema))


def test_the_rows_are_those_of_parts_read_one_by_one(tailed):
    scan = tailed.scan()
    assert len(scan.plan().parts) > 1
    assert read(scan, scan.plan()) == expected(tailed, scan)
    assert not threads()


def test_a_log_that_left_the_cluster_before_it_was_read_ahead_is_planned_again(tailed):
    names = [name for name in tailed.columns if name != "__timestamp"]
    scan = tailed.scan(names)
    plan, wanted = scan.plan(), expected(tailed, scan)
    for _ in range(2):
        tailed.tier()
        tailed.retain()
        tailed.upsert([row(1, "later")])
    starts = {place: status.start_offset for place, status in tailed.statuses().items()}
    assert any(starts[part.key] > part.lake_stop for part in plan.parts[1:]), "nothing moved: nothing is shown"
    assert read(scan, plan) == wanted


def test_an_error_met_ahead_is_the_reader_s_to_meet_again(tailed, monkeypatch):
    """It looks at the tail by itself, from its beginning."""
    look, failed = Tail.look, []

    def fails_ahead(tail):
        if threading.current_thread().name == "tails-ahead":
            steps = look(tail)
            next(steps)
            failed.append(tail)
            raise OffsetOutOfRangeError("moved")
        yield from look(tail)

    monkeypatch.setattr(Tail, "look", fails_ahead)
    scan = tailed.scan()
    assert read(scan, scan.plan()) == expected(tailed, scan)
    assert failed


def test_a_reader_that_goes_away_leaves_no_thread(tailed):
    scan = tailed.scan()
    rows = read_rows(scan.source, scan.plan(), Request(scan.columns, None))
    next(rows)
    rows.close()
    wait_until(lambda: not threads())


def test_no_more_tails_are_kept_than_a_few(make_keyed, monkeypatch):
    table = make_keyed("pk_parts")
    table.write(8)
    looked, look = [], Tail.look

    def seen(tail):
        yield from look(tail)
        looked.append(tail)

    monkeypatch.setattr(Tail, "look", seen)
    scan = table.scan()
    parts = [part for part in scan.plan().parts if not part.live]
    assert len(parts) > 2 + tails_ahead._AHEAD_MAX, "too few buckets: nothing is shown"
    rows = read_rows(scan.source, scan.plan(), Request(scan.columns, None))
    next(rows)
    wait_until(lambda: len(looked) == 1 + tails_ahead._AHEAD_MAX)
    (thread,) = threads()
    thread.join(0.2)
    assert len(looked) == 1 + tails_ahead._AHEAD_MAX
    rows.close()
    wait_until(lambda: not threads())


@pytest.mark.parametrize("wanted", [{"limit": 5}, {"step_rows": 10}], ids=str)
def test_for_a_reader_of_some_rows_nothing_is_read_ahead(tailed, monkeypatch, wanted):
    looked, look = set(), Tail.look

    def seen(tail):
        looked.add(threading.current_thread().name)
        yield from look(tail)

    monkeypatch.setattr(Tail, "look", seen)
    scan = tailed.scan()
    rows = list(read_rows(scan.source, scan.plan(), Request(scan.columns, None, **wanted)))
    assert sum(batch.num_rows for batch in rows) == len(tailed.expected(tailed.stops))
    assert looked == {threading.current_thread().name}
