"""How many files a call passes through, and how often it goes from one to another: in its thread, and those it starts.

The goals are those of the house: what a newcomer has to open to follow a call from its beginning to its end.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import fluss_lab
from benchmarks.report import Figures
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

HOUSE = str(Path(fluss_lab.__file__).parent)
COLUMNS = {"id": "bigint", "price": "double"}
ROWS = [{"id": number, "price": number / 2} for number in range(100)]
PATH = TablePath("bench", "routes")


def run() -> None:
    """Measure and print."""
    figures = Figures("files of fluss_lab that a call passes through (and changes of file, calls)")
    with EmbeddedCluster() as cluster:
        connection = cluster.connection
        admin = connection.admin()
        admin.create_database(PATH.database)
        properties = {"table.datalake.enabled": True}
        info = admin.create_table(PATH, make_descriptor(COLUMNS, buckets=2, properties=properties))
        storage, executor = connection.lake_storage(), LocalTieringExecutor()
        assert storage is not None

        def tier() -> object:
            return run_round(connection, storage, executor, table_id=info.table_id)

        with connection.append_writer(PATH) as writer:

            def append() -> None:
                writer.append(ROWS)
                writer.flush()

            def scan() -> object:
                return _reader(connection).scan(where="price > 7").to_arrow()

            def changelog() -> object:
                return _reader(connection).changelog().to_arrow()

            #: With whether something was written since the call before: a round makes a lake snapshot that no scan has seen.
            calls: list[tuple[str, Callable[[], object], int, bool]] = [
                ("append to a log table, acknowledged", append, 12, True),
                ("tiering round", tier, 50, True),
                ("scan with a filter, lake and log, after a round", scan, 28, True),
                ("the same scan again", scan, 28, False),
                ("changelog, lake and log", changelog, 18, True),
            ]
            for _, call, _, _ in calls:  # what is imported and remembered by a first call is no part of its way
                append()
                call()
            for what, call, goal, is_written in calls:
                if is_written:
                    append()
                files, changes, count = _route(call)
                figures.add(what, f"{files} ({changes}, {count})", goal=f"{goal}")
    figures.print()


def _reader(connection: object) -> TableReader:
    return TableReader(connection, PATH)  # type: ignore[arg-type]


def _route(call: Callable[[], object]) -> tuple[int, int, int]:
    """Return how many files a call and the threads that it starts pass through, how often they change file, and calls."""
    ways: defaultdict[int, list[str]] = defaultdict(list)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            ways[threading.get_ident()].append(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    changes = sum(one != other for way in ways.values() for one, other in pairwise(way))
    return len({file for way in ways.values() for file in way}), changes, sum(map(len, ways.values()))
