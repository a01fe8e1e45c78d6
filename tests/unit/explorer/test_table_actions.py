"""Rounds and compactions begun by hand: once for a click, followed, cancelled, and not stopped by who looks away."""

import itertools
import os
import signal
import threading
import time

import pytest

import fluss_lab as fl
from fluss_lab import errors
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import AnyRequest
from fluss_lab.explorer.request_queue import RequestQueue
from fluss_lab.explorer.table_actions import CLICKS_MAX, INTERVAL_S, ClickLedger
from fluss_lab.server import cluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from tests.unit.explorer.explorer_kit import answers, ask, refused, request
from tests.unit.workbench.lab_kit import LAKE

pytestmark = pytest.mark.slow

_clicks, _tables = itertools.count(), itertools.count()


class Gated(LocalTieringExecutor):
    """Runs its tasks when it is let, or never when it is cancelled."""

    def __init__(self):
        super().__init__()
        self.begun, self.go, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def run(self, tasks, progress=None):
        self.begun.set()
        while not self.go.wait(0.005):
            if self.stopped.is_set():
                raise errors.TieringCancelledError("tiering tasks: cancelled")
        return super().run(tasks, progress)

    def cancel(self):
        self.stopped.set()


@pytest.fixture
def gate(monkeypatch):
    made = Gated()
    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", lambda _table: made)
    yield made
    made.go.set()


@pytest.fixture
def table(lab):
    path = f"shop.acted_{next(_tables)}"
    made = lab.create_table(path, {"id": "int", "email": "string"}, buckets=2, bucket_key=["id"], properties=LAKE)
    made.append([{"id": n, "email": "secret@example.org"} for n in range(100)])
    return made


def act(model, kind, table, **body):
    return ask(model, kind, table=str(table.path), action=f"click {next(_clicks)}", **body)


def end(model, table):
    return ask(model, "follow", table=str(table.path))


def test_a_round_is_started_followed_and_its_line_runs_one(lab, model, table, gate):
    begun = act(model, "round", table, op="start")
    assert begun["state"] == "running"
    assert gate.begun.wait(30)
    head = ask(model, "head", table=str(table.path))
    assert (head["action"], head["tiering"]) == ("round", "Tiering")
    steps = model.steps(request("follow", table=str(table.path)))
    first = next(steps)
    began = time.monotonic()
    second = next(steps)
    assert time.monotonic() - began >= INTERVAL_S * 0.8, "at most four a second"
    for each in (first, second):
        progress = each["progress"]
        assert (each["state"], progress["stage"], progress["planned"], progress["epoch"]) == (
            "running",
            "write",
            100,
            1,
        )
        assert sorted(bucket[1] for bucket in progress["buckets"]) == [0, 1]
        assert sum(bucket[3] for bucket in progress["buckets"]) == 100
    gate.go.set()
    (*_, last) = steps
    assert last["state"] == "done"
    assert last["text"].startswith("Round 1: 100 rows in 2 files, ")
    assert [(row["round"], row["rows"]) for row in table.rounds()] == [(1, 100)]
    assert ask(model, "head", table=str(table.path))["action"] is None
    names = {"lab": lab}
    exec("\n".join(begun["code"][:-1]), names)
    assert eval(begun["code"][-1], names).rows == 0


def test_one_click_is_one_round_and_two_views_follow_the_same(lab, model, table, gate):
    click = {"table": str(table.path), "op": "start", "action": "one click"}
    for slot in ("act", "act of another view"):
        assert ask(model, "round", slot=slot, **click)["state"] == "running"
    assert act(model, "round", table, op="start")["state"] == "running", "another click meanwhile follows it too"
    gate.go.set()
    assert end(model, table)["state"] == "done"
    assert ask(model, "round", **click)["state"] == "running", "what came of the click then"
    assert end(model, table)["text"].startswith("Round 1: ")
    assert len(table.rounds()) == 1


def test_a_round_is_cancelled(model, table, gate):
    act(model, "round", table, op="start")
    assert gate.begun.wait(30)
    assert act(model, "round", table, op="cancel")["cancelled"]
    assert end(model, table)["state"] == "cancelled"
    assert table.rounds().column("state") == ["cancelled"]
    assert list(table.snapshots()) == []
    error = refused(model, "round", table=str(table.path), action="late", op="cancel")
    assert "no round that was begun from here" in error["text"]
    gate.stopped.clear()
    gate.go.set()
    act(model, "round", table, op="start")
    assert end(model, table)["state"] == "done"


def test_another_click_follows_the_round_and_cancels_it(model, table, gate):
    act(model, "round", table, op="start")
    assert gate.begun.wait(30)
    assert act(model, "round", table, op="start")["state"] == "running"
    act(model, "round", table, op="cancel")
    assert gate.stopped.wait(30), "it is the round that runs"
    assert end(model, table)["state"] == "cancelled"
    assert table.rounds().column("state") == ["cancelled"]


def test_a_compaction_runs_beside_no_round_of_its_table(model, table, gate):
    act(model, "round", table, op="start")
    assert gate.begun.wait(30)
    error = refused(model, "compact", table=str(table.path), action="while it runs")
    assert error["class"] == "TieringInProgressError"
    gate.go.set()
    end(model, table)
    for _ in range(2):
        table.append([{"id": 1}])
        act(model, "round", table, op="start")
        end(model, table)
    done = act(model, "compact", table)
    assert (done["action"], done["state"]) == ("compact", "running")
    assert end(model, table)["text"].startswith("Compaction: ")
    assert len(table.files()) < 6
    assert done["code"][-1].endswith(".compact()")


def test_nothing_is_followed_where_nothing_was_begun(lab, model, table):
    assert end(model, table) == {"kind": "follow", "action": None, "state": "none"}
    (answer,) = answers(model, "follow", table=str(table.path), table_id="7")
    assert answer["state"] == "none"


def test_a_failure_is_reported_without_what_is_hidden(lab, table, monkeypatch):
    class Failing(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            raise errors.StorageError("column email: secret@example.org")

    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", lambda _table: Failing())
    for mask, is_reported in (([], True), (["email"], False)):
        model = ExplorerModel(lab, "lab", mask=mask)
        act(model, "round", table, op="start")
        failure = end(model, table)["failure"]
        assert failure["class"] == "StorageError"
        assert ("secret@example.org" in str(failure)) is is_reported
        tiering = ask(model, "tiering", table=str(table.path))
        assert tiering["trouble"]["class"] == "StorageError"
        assert ("secret@example.org" in str(tiering)) is is_reported


def test_a_long_round_keeps_nobody_waiting_and_ends_when_nobody_looks(model, table, gate):
    sent = []
    worker = RequestQueue(model.steps, sent.append)
    path = str(table.path)
    worker.submit(request("round", "act", table=path, action="by the worker", op="start"))
    worker.submit(request("follow", table=path))
    assert gate.begun.wait(30)
    values = {"id": "7"}
    for kind, body in (("page", {}), ("head", {}), ("write", {"action": "w", "mode": "append", "values": values})):
        worker.submit(request(kind, table=path, **body))
        wait_until(lambda kind=kind: any(each["slot"] == kind for each in sent))
    assert [each for each in sent if "error" in each] == []
    assert table.count() == 101
    worker.close()
    gate.go.set()
    wait_until(lambda: table.rounds().column("state") == ["done"])


def test_a_server_that_is_killed_meanwhile_ends_the_round(tmp_path, gate):
    config = {"server.grace": "200ms", "client.request-timeout": "2s"}
    with fl.Lab.open(tmp_path / "killed", config=config) as lab:
        lab.create_database("shop")
        table = lab.create_table("shop.t", {"id": "int"}, properties=LAKE)
        table.append([{"id": 1}])
        model = ExplorerModel(lab, "killed")
        act(model, "round", table, op="start")
        assert gate.begun.wait(30)
        for pid in {server.pid for server in cluster.read_discovery(lab.folder).servers}:
            os.kill(pid, signal.SIGKILL)
        gate.go.set()
        last = end(model, table)
        assert last["state"] == "failed", last
        assert last["failure"]["class"] in {"FencedTieringEpochError", "ServerUnavailableError", "RequestTimeoutError"}
        act(model, "round", table, op="start")  # by the server that the lab has started meanwhile
        assert end(model, table)["state"] == "done"
        assert sum(row["rows"] for row in table.files()) == table.count() == 1


# -- what only reads ---------------------------------------------------------------------------------------------------

WRITING = {
    "round start": ("round", {"op": "start"}),
    "round cancel": ("round", {"op": "cancel"}),
    "compact": ("compact", {}),
    "append": ("write", {"mode": "append", "values": {"id": "1"}}),
    "upsert": ("write", {"mode": "upsert", "values": {"id": "1"}}),
    "delete": ("write", {"mode": "delete", "values": {"id": "1"}}),
    "check": ("write", {"mode": "append", "values": {"id": "1"}, "check": True}),
}


@pytest.mark.parametrize("name", WRITING)
def test_an_explorer_that_only_reads_refuses_every_request_that_writes(lab, table, gate, name):
    kind, body = WRITING[name]
    model = ExplorerModel(lab, "lab", read_only=True)
    error = refused(model, kind, table=str(table.path), action=f"click {next(_clicks)}", **body)
    assert "read-only" in error["text"]
    assert table.count() == 100
    assert not gate.begun.is_set()
    assert ask(model, "tiering", table=str(table.path))["rounds"] == []


#: What does not write; a new kind of request is sorted into one of the two.
READING = {
    "tree", "head", "schema", "buckets", "bucket", "changes", "change", "tail", "snapshots", "page", "count", "facts", "row", "tiering", "form", "follow",
    "lake", "lake_part", "diff", "diff_rows", "leave", "health",
}  # fmt: skip


def test_every_kind_of_request_reads_or_writes():
    writing = {kind for kind, _ in WRITING.values()}
    kinds = {str(each.__struct_config__.tag): each for each in AnyRequest.__args__}
    assert kinds.keys() == READING | writing | {"jobs"}, "jobs are shown and begun: its own tests"
    for name, kind in kinds.items() - {("jobs", kinds["jobs"])}:
        assert (kind.writes.fget is not kinds["tree"].writes.fget) is (name in writing), name


# -- clicks ------------------------------------------------------------------------------------------------------------


def test_a_click_is_acted_on_once_also_when_it_failed():
    ledger, done = ClickLedger(), []

    def fail():
        done.append(1)
        raise errors.RequestTimeoutError("whether it was written is not known")

    for _ in range(3):
        with pytest.raises(errors.RequestTimeoutError):
            ledger.once("a", fail)
        assert ledger.once("b", lambda: done.append(2) or {"n": 1}) == {"n": 1}
    assert done == [1, 2]
    for number in range(CLICKS_MAX):
        ledger.once(f"c{number}", dict)
    assert len(ledger._done) == CLICKS_MAX
