"""The service: tables by freshness, failures kept apart, restarts outlived, a clean end."""

import threading
import time

import pytest

from fluss_lab.errors import InvalidRequestError, StorageError, UnavailableError
from fluss_lab.model import TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.service import tiering_service
from fluss_lab.tiering.service.service_status import ROUNDS_KEPT, ServiceStatus, TableHistory
from fluss_lab.tiering.task.tiering_task import parse_task
from tests.unit.tiering.kit import TAKEOVER, Tables
from tests.unit.tiering.service.service_kit import SOON, service_of, tiered, wait_for

pytestmark = pytest.mark.slow


def test_tables_are_tiered_as_they_become_due(tables):
    one, two = tables.create("one", properties=SOON, buckets=2), tables.create("two", properties=SOON)
    idle = tables.create("idle")
    tables.append(idle, 10)
    with service_of(tables) as service:
        for _ in range(3):
            tables.append(one, 100)
            tables.append(two, 50)
            wait_for(lambda: tiered(tables, one) and tiered(tables, two))
        status = service.status()
    assert {str(each.table): each.rounds > 0 for each in status.tables} == {
        "db.one": True, "db.two": True, "db.idle": False,
    }  # fmt: skip
    assert tables.lake_rows(idle).num_rows == 0
    for info in (one, two):
        tables.check(info)
    rows = {each.table.table: each.rows for each in service.status().tables if each.rounds}
    assert rows == {"one": 300, "two": 150}


class Failing(LocalTieringExecutor):
    """Fails every round of one table."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def run(self, tasks, progress=None):
        if any(str(parse_task(task).table.path) == self.table for task in tasks):
            raise StorageError("no room")
        return super().run(tasks, progress)


def test_a_table_that_fails_does_not_stop_the_others(tables):
    bad, good = tables.create("bad", properties=SOON), tables.create("good", properties=SOON)
    tables.append(bad, 10)
    with service_of(tables, lambda: Failing("db.bad"), max_tables=1) as service:
        for _ in range(3):
            tables.append(good, 10)
            wait_for(lambda: tiered(tables, good))
        wait_for(lambda: any(each.failures for each in service.status().tables))
        failed = next(each for each in service.status().tables if each.table.table == "bad")
        assert failed.last_error == "StorageError: no room"
        assert "no room" in service.status()._repr_html_()
    assert tables.lake_rows(bad).num_rows == 0
    tables.check(good)


def test_the_service_outlives_a_restart_of_the_server(tables):
    info = tables.create(properties=SOON)
    with service_of(tables) as service:
        tables.append(info, 10)
        wait_for(lambda: tiered(tables, info))
        tables.cluster.restart()
        tables.append(info, 10)
        wait_for(lambda: tiered(tables, info))
        assert service.status().running
    tables.check(info)


def test_stopping_lets_rounds_end(tables):
    info = tables.create(properties=SOON)
    tables.append(info, 10)
    begun = threading.Event()

    class Slow(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            begun.set()
            threading.Event().wait(0.3)
            return super().run(tasks, progress)

    service = service_of(tables, Slow)
    service.start()
    assert begun.wait(30)
    service.stop()
    tables.check(info)
    assert not service.status().running
    assert all(not each.tiering for each in service.status().tables)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("fluss-tiering")]


def test_stopping_cancels_what_takes_too_long(tables):
    info = tables.create(properties=SOON)
    tables.append(info, 10)
    begun, cancelled = threading.Event(), threading.Event()

    class Endless(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            begun.set()
            assert cancelled.wait(30)
            raise StorageError("cancelled")

        def cancel(self):
            cancelled.set()

    service = service_of(tables, Endless, max_tables=1)
    service.start()
    assert begun.wait(30)
    service.stop(timeout_s=0.05)
    assert cancelled.is_set()
    assert tables.tier(info).rows == 10
    tables.check(info)


def test_it_can_be_started_again(tables):
    info = tables.create(properties=SOON)
    service = service_of(tables)
    for _ in range(2):
        tables.append(info, 10)
        service.start()
        service.start()
        wait_for(lambda: tiered(tables, info))
        service.stop()
        service.stop()
    tables.check(info)


def test_an_executor_that_cannot_be_made_is_noted_and_tried_again(tables):
    info = tables.create(properties=SOON)
    tables.append(info, 10)
    attempts = []

    def make():
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("no Java")
        return LocalTieringExecutor()

    with service_of(tables, make, max_tables=1):
        wait_for(lambda: tiered(tables, info))
    tables.check(info)


def test_a_round_that_fails_does_not_make_its_thread_wait(tables):
    """The good table is second in line, and an idle service would ask again after ten minutes only."""
    bad, good = tables.create("bad", properties=SOON), tables.create("good", properties=SOON)
    tables.append(bad, 10)
    tables.append(good, 10)
    wait_for(lambda: states(tables) == {"bad": "Pending", "good": "Pending"})
    outcomes = []
    with service_of(
        tables, lambda: Failing("db.bad"), max_tables=1, poll_interval_s=600.0, on_round=outcomes.append
    ) as service:
        wait_for(lambda: len(outcomes) >= 2)
        assert [(each.table.table, each.error is None) for each in outcomes[:2]] == [("bad", False), ("good", True)]
        failed = next(each for each in service.status().tables if each.table.table == "bad")
    assert (failed.failures, failed.failures_total) == (1, 1)
    assert failed.last_error_ms is not None
    assert str(outcomes[0]) == "db.bad: failed: StorageError: no room"
    assert str(outcomes[1]).startswith("db.good: 10 rows in 1 files")
    tables.check(good)


def states(tables):
    described = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    return {each.table_path.table_name: each.state for each in described.tiering_states}


def test_status_tells_lag_freshness_and_throughput(tables):
    info, behind = tables.create("tiered", properties=SOON, buckets=2), tables.create("behind")
    tables.append(info, 100)
    tables.append(behind, 7)
    with service_of(tables) as service:
        wait_for(lambda: tiered(tables, info))
        wait_for(lambda: all(each.rounds for each in service.status().tables if each.table == info.path))
        status = service.status()
        found = {each.table.table: each for each in status.tables}
        assert found["tiered"].lag.records == 0
        assert found["tiered"].lag.ms == 0
        assert found["tiered"].lag.newest_ms <= status.now_ms
        assert found["tiered"].lag.freshness_ms == 50
        assert found["tiered"].throughput.rows_per_s > 0
        assert found["tiered"].throughput.mean_bytes_per_s > 0
        assert found["tiered"].last_round_ms <= status.now_ms
        assert (found["behind"].lag.records, found["behind"].lag.newest_ms) == (7, None)
        assert 0 <= found["behind"].lag.ms <= status.now_ms - behind.created_ms
        assert (found["behind"].state, found["behind"].rounds) == ("Scheduled", 0)
        metrics = status.metrics()
        assert metrics["tables"]["db.tiered"].keys() >= {
            "tierLag", "tieredTimestamp", "tierDuration", "failuresTotal", "fileSize", "recordCount", "freshness",
        }  # fmt: skip
        assert metrics["tables"]["db.behind"]["lagRecords"] == 7
        assert "7 records behind" in repr(status)
        html = status._repr_html_()
        assert "7 records" in html
        assert "1.0 h" not in html  # ages are short here
        without = service.status(lag=False)
    assert [(each.table.table, each.lag) for each in without.tables] == [("tiered", None)]


def test_a_table_whose_lag_is_not_known_does_not_look_up_to_date(tables, monkeypatch):
    tables.append(tables.create(properties=SOON), 10)

    def away(*_arguments: object) -> None:
        raise UnavailableError("nobody answers")

    monkeypatch.setattr(tiering_service, "table_lag", away)
    with service_of(tables) as service:
        wait_for(lambda: any(each.lag is not None for each in service.status().tables))
        status = service.status()
    assert (status.tables[0].lag.is_complete, status.tables[0].lag.error) == (False, "nobody answers")
    assert "at least 0 records behind, 1 with buckets that are not known" in repr(status)
    assert "nobody answers" in status._repr_html_()
    assert next(iter(status.metrics()["tables"].values()))["lagRecords"] is None


def test_the_stage_under_way_is_shown(tables):
    info = tables.create(properties=SOON)
    tables.append(info, 10)
    begun, go_on = threading.Event(), threading.Event()

    class Paused(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            begun.set()
            assert go_on.wait(60)
            return super().run(tasks, progress)

    with service_of(tables, Paused, max_tables=1) as service:
        assert begun.wait(60)
        (status,) = service.status().tables
        go_on.set()
        assert status.tiering
        assert (status.progress.stage, status.progress.tasks_done, status.progress.planned) == ("write", 0, 10)
        assert "write 0/1: 0 of 10 rows" in ServiceStatus(True, 1, (status,))._repr_html_()
        wait_for(lambda: tiered(tables, info))


def test_an_executor_that_died_is_replaced(tables):
    info = tables.create(properties=SOON)

    class Mortal(LocalTieringExecutor):
        dead = False

        @property
        def is_alive(self):
            return not self.dead

        def run(self, tasks, progress=None):
            if self.dead:
                raise UnavailableError("gone")
            return super().run(tasks, progress)

    made = []

    def make():
        made.append(Mortal())
        return made[-1]

    with service_of(tables, make, max_tables=1) as service:
        for _ in range(3):
            tables.append(info, 10)
            wait_for(lambda: tiered(tables, info))
            made[-1].dead = True
        wait_for(lambda: len(made) == 4)
        assert service.status().restarts >= 2
    tables.check(info)


def test_a_server_that_restarts_during_a_round():
    """It comes back at another port, as another coordinator: the round has to end, and the next one goes on."""
    with EmbeddedCluster(options=TAKEOVER, client={"client.request-timeout": "2s"}) as cluster:
        tables = Tables(cluster)
        info = tables.create(properties=SOON)
        tables.append(info, 10)
        begun, restarted = threading.Event(), threading.Event()

        class Interrupted(LocalTieringExecutor):
            def run(self, tasks, progress=None):
                begun.set()
                assert restarted.wait(60)
                return super().run(tasks, progress)

        with service_of(tables, Interrupted, max_tables=1) as service:
            assert begun.wait(60)
            cluster.restart()
            restarted.set()
            tables.append(info, 10)
            wait_for(lambda: tiered(tables, info))
            wait_for(lambda: service.status().tables[0].last_error is None)
            assert service.status().tables[0].failures_total >= 1
        tables.check(info)


def test_stopping_during_a_round_tells_the_coordinator(tables):
    info = tables.create(properties=SOON, buckets=2, bucket_key=["id"])
    tables.append(info, 100)
    begun, cancelled = threading.Event(), threading.Event()

    class Endless(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            written = super().run(tasks[:1], progress)
            begun.set()
            assert cancelled.wait(60)
            return [written[0], self._one(tasks[1])]

        def cancel(self):
            super().cancel()
            cancelled.set()

    service = service_of(tables, Endless, max_tables=1)
    service.start()
    assert begun.wait(60)
    assert states(tables) == {"events": "Tiering"}
    service.stop(0.05)
    assert states(tables) == {"events": "Pending"}
    assert not service.is_running
    assert tables.files(info) <= tables.referenced(info)
    tables.tier(info)
    tables.check(info)


def test_stopping_while_the_server_is_away():
    """The round under way cannot even say that it failed."""
    with EmbeddedCluster(options=TAKEOVER, client={"client.request-timeout": "1s"}) as cluster:
        tables = Tables(cluster)
        info = tables.create(properties=SOON)
        tables.append(info, 10)
        begun, stopped = threading.Event(), threading.Event()

        class Interrupted(LocalTieringExecutor):
            def run(self, tasks, progress=None):
                begun.set()
                assert stopped.wait(60)
                return super().run(tasks, progress)

        service = service_of(tables, Interrupted, max_tables=2)
        service.start()
        assert begun.wait(60)
        cluster.stop()
        stopped.set()
        service.stop(0.0)
        assert not [each.name for each in threading.enumerate() if each.name.startswith("fluss-tiering")]
        assert service.status().tables[0].failures_total >= 1
        cluster.start()
        tables.tier(info)
        tables.check(info)


def test_an_idle_service_says_that_its_server_is_away(tables):
    """Its threads wait for a session, and none of them fails: it looked as if all was well."""
    with service_of(tables) as running:
        wait_for(lambda: running.status().error is None)
        tables.cluster.stop()
        wait_for(lambda: running.status().error is not None)
        assert any(
            text in repr(running.status())
            for text in ("the session with the server ended", "no server answers", "not running")
        )
        tables.cluster.start()
        wait_for(lambda: running.status().error is None)
    assert running.status().error is None


def test_an_idle_service_asks_once_in_each_interval(tables):
    def asked():
        counters = tables.cluster.node._server.calls.counters
        return sum(each.total for (_, method), each in counters.items() if method == "lake_tiering_heartbeat")

    with service_of(tables, max_tables=8, poll_interval_s=0.2):
        wait_for(lambda: asked() >= 1)
        first, began_s = asked(), time.monotonic()
        wait_for(lambda: asked() >= first + 5)
        intervals = (time.monotonic() - began_s) / 0.2
    assert asked() - first <= intervals + 3


def test_a_dropped_table_is_forgotten(tables):
    info, other = tables.create("gone", properties=SOON), tables.create("stays", properties=SOON)
    tables.append(info, 10)
    with service_of(tables) as service:
        wait_for(lambda: any(each.table == info.path and each.rounds for each in service.status(lag=False).tables))
        tables.connection.admin().drop_table(info.path)
        assert [each.table for each in service.status().tables] == [other.path]
        assert [each.table for each in service.status(lag=False).tables if each.table == info.path] == []


def test_two_services_share_the_tables(tables):
    infos = [tables.create(f"t{number}", properties=SOON) for number in range(4)]
    with service_of(tables) as one, service_of(tables) as two:
        for _ in range(5):
            for info in infos:
                tables.append(info, 20)
            wait_for(lambda: all(tiered(tables, info) for info in infos), 60)
        # The last rounds are noted after their commits.
        wait_for(lambda: sum(each.rows for service in (one, two) for each in service.status().tables) >= 400, 60)
        rows = sum(each.rows for service in (one, two) for each in service.status().tables)
    assert rows == 400
    for info in infos:
        tables.check(info)


def test_what_is_kept_of_a_table_is_bounded():
    """The mean forgets rounds: a thousand slow ones, then enough fast ones."""
    history = TableHistory(TablePath("db", "t"))

    def round_of(seconds):
        return TieringReport(TablePath("db", "t"), 100, 1, 10, 1, 1, seconds={"total": seconds})

    for _ in range(1_000):
        history.begin()
        history.succeed(round_of(100.0), 0)
    assert history.status.throughput.mean_rows_per_s == 1.0
    for _ in range(ROUNDS_KEPT):
        history.begin()
        history.succeed(round_of(1.0), 0)
    assert history.status.throughput.mean_rows_per_s == 100.0
    assert (history.status.rounds, history.status.rows) == (1_000 + ROUNDS_KEPT, 100 * (1_000 + ROUNDS_KEPT))


def test_its_repr_is_short(tables):
    service = service_of(tables)
    assert repr(service) == "<tiering service stopped: 0 tables, 0 tiering, 0 failed>"
    assert "stopped" in service._repr_html_()


@pytest.mark.parametrize("options", [{"max_tables": 0}, {"poll_interval_s": 0}])
def test_limits_that_cannot_be(tables, options):
    with pytest.raises(InvalidRequestError, match="expected"):
        service_of(tables, **options)
