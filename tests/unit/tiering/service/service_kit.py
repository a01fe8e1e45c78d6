"""A tiering service that looks often, and what tests wait for."""

import threading
import time

from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.service.tiering_service import TieringService
from tests.unit.tiering.kit import FAST

SOON = {"table.datalake.freshness": "50ms"}


def wait_for(condition, timeout_s=60.0):
    deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        pause.wait(0.02)


def service_of(tables, executor=LocalTieringExecutor, **options):
    settings = {"max_tables": 2, "poll_interval_s": 0.02, "options": FAST} | options
    return TieringService(tables.connection, tables.storage, executor, **settings)


def tiered(tables, info):
    return tables.lake_rows(info).num_rows == tables.appended[info.path]
