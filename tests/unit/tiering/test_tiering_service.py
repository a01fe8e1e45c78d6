"""The service: tables by freshness, failures kept apart, restarts outlived, a clean end."""

import threading
import time

import pytest

from fluss_lab.errors import StorageError
from fluss_lab.testing.executors import LocalTieringExecutor
from fluss_lab.tiering.service import TieringService
from tests.unit.tiering.kit import FAST

SOON = {"table.datalake.freshness": "50ms"}


def wait_for(condition, timeout_s=30.0):
    deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        pause.wait(0.02)


def service_of(tables, executor=LocalTieringExecutor, **options):
    settings = {"max_tables": 2, "poll_interval_s": 0.02, "options": FAST} | options
    return TieringService(tables.connection, tables.storage, executor, **settings)


def tiered(tables, info):
    return tables.lake_rows(info).num_rows == tables.appended[info.path]


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
    assert {str(each.table) for each in status.tables} == {"db.one", "db.two"}
    assert tables.lake_rows(idle).num_rows == 0
    for info in (one, two):
        tables.check(info)
    rows = {each.table.table: each.rows for each in service.status().tables}
    assert rows == {"one": 300, "two": 150}


class Failing(LocalTieringExecutor):
    """Fails every round of one table."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def run(self, tasks, progress=None):
        if any(self.table.encode() in task for task in tasks):
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


def test_its_repr_is_short(tables):
    service = service_of(tables)
    assert repr(service) == "<tiering service stopped: 0 tables, 0 tiering, 0 failed>"
    assert "<table" in service._repr_html_()


@pytest.mark.parametrize("options", [{"max_tables": 0}, {"poll_interval_s": 0}])
def test_limits_that_cannot_be(tables, options):
    with pytest.raises(ValueError, match="expected"):
        service_of(tables, **options)
