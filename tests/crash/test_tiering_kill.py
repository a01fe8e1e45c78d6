"""Tierers that are killed, and tierers that are stopped and wake up late: each offset gets into Iceberg once (P2, P3, P5)."""

import json
import random
import threading
import time

import pytest

from fluss_lab.errors import ConflictError, FencedTieringEpochError, TieringInProgressError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import RECOVERY_STEPS, STEPS, TiererProcess
from fluss_lab.tiering.round.round_options import TieringOptions
from tests.crash.stale import Stale
from tests.unit.tiering.kit import TAKEOVER, Tables

KILLED = -9
#: Steps after which Fluss knows of the snapshot: the round is over but for its last word.
TOLD = STEPS[-2:]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


@pytest.fixture
def tables(cluster):
    return Tables(cluster)


@pytest.fixture
def name(request):
    """A table name of the test's own: the cluster is shared."""
    return "t" + "".join(each if each.isalnum() else "_" for each in request.node.name)[-80:]


def start(tables, info, **failpoints):
    named = {point.replace("__", "."): action for point, action in failpoints.items()}
    address = tables.connection.address.to_json()
    return TiererProcess(address, info.table_id, failpoints=named, options={"renew_interval_s": 0.05})


def kill_at(tables, info, step):
    process = start(tables, info, **{step: "kill"})
    assert process.wait() == KILLED


def tier(tables, info):
    """Tier; a stopped predecessor loses the table after the takeover time."""
    deadline_s, pause = time.monotonic() + 90, threading.Event()
    while True:
        try:
            return tables.tier(info)
        except TieringInProgressError:
            assert time.monotonic() < deadline_s
            pause.wait(0.05)


def started_after_takeover(tables, info, **failpoints):
    """Return a tierer that a failpoint has stopped; before the takeover time is over, tierers are refused."""
    deadline_s, pause = time.monotonic() + 90, threading.Event()
    while True:
        process = start(tables, info, **failpoints)
        try:
            process.wait_until_stopped()
        except AssertionError:
            assert time.monotonic() < deadline_s
            pause.wait(0.05)
        else:
            return process


@pytest.mark.parametrize("step", STEPS)
def test_the_round_after_a_killed_one_goes_on(tables, name, step):
    info = tables.create(name, buckets=2, bucket_key=["id"])
    tables.append(info, 200)
    kill_at(tables, info, step)
    committed = STEPS.index(step) >= STEPS.index("tiering.lake_commit.after")
    assert tables.lake_rows(info).num_rows == (200 if committed else 0)
    tables.append(info, 50)
    assert tier(tables, info).rows == (50 if committed else 250)
    tables.check(info)


@pytest.mark.parametrize("step", RECOVERY_STEPS)
@pytest.mark.parametrize("before", ["tiering.write.after", "tiering.lake_commit.after"])
def test_recovery_itself_may_be_killed(tables, name, step, before):
    info = tables.create(name, buckets=2, partitioned_by=["month"])
    tables.append(info, 100, "a")
    tier(tables, info)
    tables.append(info, 100, "b")
    kill_at(tables, info, before)
    for _ in range(2):
        kill_at(tables, info, step)
        tables.check(info, complete=False)
    tables.append(info, 50, "a")
    tier(tables, info)
    tables.check(info)


def test_the_snapshot_that_fences_says_all_that_the_lake_holds(tables, name):
    """Its successor may see nothing else: what the dead round committed is in no summary that Fluss knows."""
    info = tables.create(name, buckets=2, bucket_key=["id"])
    tables.append(info, 200)
    kill_at(tables, info, "tiering.lake_commit.after")
    kill_at(tables, info, "tiering.fence.after")
    newest = tables.lake(info).current_snapshot()
    offsets = {(None, each["bucket"]): each["offset"] for each in json.loads(newest.summary["fluss-bucket-offset"])}
    assert offsets == tables.ends(info)
    assert newest.summary["fluss-tiering-epoch"] == "2"


def test_random_histories(tables, name, seed):
    """Append, tier, die at any step, restart the server, in any order: the lake is always a prefix, in the end all."""
    rng = random.Random(seed)
    info = tables.create(name, buckets=2, partitioned_by=["month"])
    for _ in range(25):
        action = rng.choice(["append", "append", "tier", "kill", "kill"])
        if action == "append":
            tables.append(info, rng.randrange(1, 200), rng.choice("ab"))
        elif action == "tier":
            tier(tables, info)
        else:
            process = start(tables, info, **{rng.choice(STEPS + RECOVERY_STEPS): "kill"})
            assert process.wait() in {KILLED, 0}
        tables.check(info, complete=action == "tier")
    tier(tables, info)
    tables.check(info)


@pytest.mark.parametrize("step", STEPS)
def test_a_tierer_that_wakes_up_late_commits_nothing(tables, name, step):
    info = tables.create(name, buckets=2)
    tables.append(info, 100)
    stale = start(tables, info, **{step: "stop"})
    try:
        stale.wait_until_stopped()
        tables.append(info, 30)
        tier(tables, info)
        tables.check(info)
        history = tables.lake(info).history()
        stale.resume()
        stale.wait()
        if step not in TOLD:
            with pytest.raises(ConflictError):
                stale.report()
        assert tables.lake(info).history() == history
        tables.check(info)
    finally:
        stale.kill()
    tables.append(info, 10)
    tier(tables, info)
    tables.check(info)


def test_a_tierer_that_wakes_up_while_its_successor_writes_commits_nothing(tables, name):
    """The takeover's empty snapshot is what stops it: the successor has not committed anything else yet."""
    info = tables.create(name, buckets=2)
    tables.append(info, 100)
    stale = start(tables, info, tiering__lake_commit__before="stop")
    successor = None
    try:
        stale.wait_until_stopped()
        successor = started_after_takeover(tables, info, tiering__plan__after="stop")
        snapshots = len(tables.lake(info).snapshots())
        stale.resume()
        assert stale.wait() == 1
        with pytest.raises(FencedTieringEpochError):
            stale.report()
        assert len(tables.lake(info).snapshots()) == snapshots
        assert tables.lake_rows(info).num_rows == 0
        successor.resume()
        successor.wait()
    finally:
        stale.kill()
        if successor is not None:
            successor.kill()
    tier(tables, info)
    tables.check(info)


def test_a_late_commit_is_refused_by_its_planned_snapshot_and_by_nothing_else(tables, name):
    """The negative control: were the commit not conditional on the planned snapshot, records would be there twice."""
    info = tables.create(name, buckets=2)
    tables.append(info, 100)
    stale = Stale(tables.connection, info)
    tier(tables, info)
    tables.check(info)
    with pytest.raises(ConflictError):
        stale.commit(stale.planned_id)
    tables.check(info)
    stale = Stale(tables.connection, info_of_more(tables, info))
    tier(tables, info)
    stale.commit(stale.lake.current_snapshot_id())
    with pytest.raises(AssertionError, match="a duplicate or a gap"):
        tables.check(info)


def info_of_more(tables, info):
    tables.append(info, 40)
    return info


def test_a_killed_round_leaves_files_that_no_reader_sees(tables, name):
    info = tables.create(name, buckets=2, bucket_key=["id"])
    tables.append(info, 100)
    kill_at(tables, info, "tiering.write.after")
    assert len(tables.files(info)) == 2
    assert tables.lake_rows(info).num_rows == 0
    tier(tables, info)
    assert len(tables.referenced(info)) == 2
    tables.check(info)


def test_options_reach_the_tierer(tables, name):
    info = tables.create(name, buckets=1)
    tables.append(info, 100)
    process = TiererProcess(tables.connection.address.to_json(), info.table_id, options={"round_records_max": 30})
    assert process.wait() == 0
    assert process.report()["rows"] == 30
    assert TieringOptions().round_records_max > 30
