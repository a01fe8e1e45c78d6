"""A long end of the log, read as its live rows and the offsets that it ends: the same rows as those of the log itself."""

import random
import time

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.client.kv.kv_scan import KvScan
from fluss_lab.errors import CorruptDataError, InternalError, UnavailableError
from fluss_lab.read.union import pk_merge
from fluss_lab.read.union.pk_merge import LiveTail, Tail
from fluss_lab.read.union.pk_undo import live_rows
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from tests.unit.client.log.fetch_hook import hook_fetches
from tests.unit.read.kit import rows_of
from tests.unit.read.union.boundaries_kit import row

NAMES = ["id", "name", "__offset", "__bucket"]


@pytest.fixture(autouse=True)
def _long_tails(monkeypatch):
    monkeypatch.setattr(pk_merge, "LIVE_MIN", 2)


@pytest.fixture
def logs_read(monkeypatch):
    """The parts of which the log was read."""
    found, look = [], Tail.look

    def watched(tail):
        found.append(tail.part)
        return look(tail)

    monkeypatch.setattr(Tail, "look", watched)
    return found


def wanted(table, moment, names=NAMES):
    return [{name: each[name] for name in names} for each in table.expected(moment.stops)]


def check(table, moment, names=NAMES):
    scan = table.scan(names, **moment.asked)
    assert rows_of(scan.to_arrow()) == wanted(table, moment, scan.schema.names)
    assert scan.count() == len(wanted(table, moment))


@pytest.fixture
def tailed(make_keyed):
    """A table of several buckets with rows in the lake, half of which the log changed since, and new ones in it."""
    table = make_keyed()
    table.upsert([row(key) for key in range(100)])
    table.tier()
    for name in ("since", "since then"):
        table.upsert([row(key, name) for key in range(0, 150, 2)])
    table.delete([{"id": key} for key in range(0, 150, 10)])
    return table


@pytest.mark.parametrize("tail_bytes", [1, 64 << 20], ids=["kept at first", "kept"])
@pytest.mark.parametrize("kind", ["pk", "pk_parts"])
def test_rows_of_any_moment_are_those_of_the_model(make_keyed, monkeypatch, logs_read, kind, tail_bytes, seed):
    monkeypatch.setattr(pk_merge, "TAIL_BYTES", tail_bytes)
    rng = random.Random(seed)
    table = make_keyed(kind)
    moments = []
    for _ in range(12):
        table.write(rng.randint(1, 6))
        rng.choice((table.write, table.write, table.tier, table.compact, table.retain))()
        moments.append(table.keep())
        for moment in (table.now(), rng.choice(moments)):
            if table.within_reach(moment):
                scan = table.scan(table.history.columns, **moment.asked)
                assert rows_of(scan.to_arrow()) == wanted(table, moment, scan.schema.names)
                assert scan.count() == len(wanted(table, moment))
                if moment.asked == {}:
                    assert not [each for each in logs_read if not each.live and each.stop - each.log_start >= 2]
        logs_read.clear()


@pytest.mark.parametrize("tail_bytes", [0, 1, 64 << 20], ids=["read later", "kept at first", "kept"])
def test_a_read_that_has_begun_ends_right_whatever_moves_under_it(tailed, monkeypatch, tail_bytes):
    monkeypatch.setattr(pk_merge, "TAIL_BYTES", tail_bytes)
    moment = tailed.keep()
    batches = tailed.scan(NAMES, with_source=True, **moment.asked).to_batches(5)
    first = next(batches)
    tailed.upsert([row(key, "later") for key in range(150)])
    tailed.tier()
    tailed.compact()
    tailed.expire()
    tailed.retain()
    assert all(status.start_offset > 0 for status in tailed.statuses().values())
    found = pa.Table.from_batches([first, *batches])
    assert rows_of(found.drop_columns("_source")) == wanted(tailed, moment)
    check(tailed, moment)


@pytest.mark.parametrize("lost", [UnavailableError, CorruptDataError, InternalError])
def test_a_scan_that_the_server_lost_is_read_on_from_the_log(tailed, monkeypatch, logs_read, caplog, lost):
    moment = tailed.keep()
    live_rows = pk_merge.live_rows

    def losing(*asked, **more):
        for batch, _ in live_rows(*asked, **more):
            yield batch.slice(0, 3), batch.column("__offset")[2].as_py() + 1
            raise lost("lost")

    monkeypatch.setattr(pk_merge, "live_rows", losing)
    scan = tailed.scan(NAMES, **moment.asked)
    part = next(part for part in scan.plan().parts if part.lake_stop < part.stop)
    tail = LiveTail(scan.source, part, Request(scan.columns, None, limit=1_000), 1)
    for _ in tail.look():
        pass
    assert not logs_read
    found = [each for batch, _ in tail.rows() for each in batch.column("__offset").to_pylist()]
    assert logs_read[0].start == found[2] + 1
    live = [each["__offset"] for each in wanted(tailed, moment) if each["__bucket"] == part.bucket.bucket]
    assert found == [offset for offset in live if offset >= part.lake_stop]
    assert bool(caplog.records) == (lost is not UnavailableError)


@pytest.mark.parametrize("limit", [None, 1_000], ids=["looked at", "read later"])
def test_rows_that_are_behind_the_log_are_not_waited_for(tailed, monkeypatch, logs_read, limit):
    begun, scan_kv = [], KvScan._begin

    def watched(scan):
        begun.append(scan)
        return scan_kv(scan)

    monkeypatch.setattr(KvScan, "_begin", watched)
    moment = tailed.keep()
    scan = tailed.scan(NAMES, limit=limit, **moment.asked)
    assert scan.explain()
    failpoints.arm("kv.remake.before", "error")
    failpoints.arm("kv.commit.before", "error")
    try:
        tailed.history._upsert([row(key, "later") for key in range(150)])
        begin_s = time.monotonic()
        assert rows_of(scan.to_arrow()) == wanted(tailed, moment)
        assert time.monotonic() - begin_s < tailed.connection.request_timeout_ms / 2_000
    finally:
        failpoints.disarm()
    assert begun
    assert logs_read


def test_how_large_rows_are_is_known_about_whatever_the_filter(tailed):
    for where in (None, "name = 'since'", "id = 148", "name like 'since%'"):
        scan = tailed.scan(NAMES, where)
        for part in (part for part in scan.plan().parts if part.lake_stop < part.stop):
            rows = [batch for batch, _ in live_rows(scan.source, part, Request(scan.columns, None))]
            size = sum(batch.nbytes for batch in rows)
            whole = LiveTail(scan.source, part, Request(scan.columns, None), 1 << 20)
            for _ in whole.look():
                pass
            assert whole.expected_bytes == size
            some = LiveTail(scan.source, part, Request(scan.columns, None), 1)
            for _ in some.look():
                pass
            assert some.expected_bytes <= 3 * size + 500


def test_a_restart_of_the_server_while_rows_are_read_changes_nothing(tailed, keyed_cluster, monkeypatch):
    monkeypatch.setattr(pk_merge, "TAIL_BYTES", 0)
    moment = tailed.keep()
    scan = tailed.scan(NAMES, **moment.asked)
    batches = read_rows(scan.source, scan.plan(), Request(scan.columns, None))
    found = [next(batches)]
    while found[-1].column("__offset")[-1].as_py() < 100:
        found.append(next(batches))
    keyed_cluster.restart()
    assert rows_of(pa.Table.from_batches([*found, *batches])) == wanted(tailed, moment)


@pytest.mark.parametrize("field", ["previous_offsets_only", "none"])
def test_a_server_of_an_older_version_is_read_by_its_log(tailed, monkeypatch, logs_read, field):
    asked = []

    def older(fetch, request):
        asked.append(request.tables_req[0].previous_offsets_only)
        if field != "none":
            request.tables_req[0].ClearField(field)
        return fetch(request)

    hook_fetches(monkeypatch, tailed.connection, older)
    check(tailed, tailed.now())
    assert any(asked)
    assert bool(logs_read) == (field != "none")


def test_a_moment_far_behind_the_live_rows_is_read_by_the_log(tailed, logs_read):
    moment = tailed.keep()
    tailed.upsert([row(key, "later") for key in range(30)])
    check(tailed, moment)
    assert not logs_read, "not yet far"
    for number in range(4):
        tailed.upsert([row(key, f"later {number}") for key in range(150)])
    check(tailed, moment)
    assert logs_read


def test_times_are_read_of_the_log(tailed, logs_read):
    check(tailed, tailed.now(), [*NAMES, "__timestamp"])
    assert logs_read


def test_a_limited_read_fetches_live_rows_only_when_it_comes_to_them(tailed, monkeypatch):
    begun = []
    live_rows = pk_merge.live_rows

    def watched(*asked, **more):
        begun.append(asked)
        return live_rows(*asked, **more)

    monkeypatch.setattr(pk_merge, "live_rows", watched)
    assert tailed.scan(NAMES, limit=1).to_arrow().num_rows == 1
    assert not begun
    whole = wanted(tailed, tailed.now())
    assert rows_of(tailed.scan(NAMES, limit=len(whole) - 1).to_arrow()) == whole[:-1]
    assert begun
