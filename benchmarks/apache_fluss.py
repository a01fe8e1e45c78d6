"""Ours beside Apache Fluss: the same rows, batches and buckets, a case of each in turn.

``python -m benchmarks.apache_fluss --python PYTHON --bootstrap HOST:PORT [--tiering-log FILE] [CASE ...]`` runs pyfluss by an
interpreter that has it, against a running Fluss, and for the cases ``tier`` and ``tier_keys`` reads when a round began in
the log of its tiering job. Without ``--python`` only ours is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks import apache_fluss_rows as cases
from benchmarks.apache_fluss_rows import BUCKETS, CALLERS, KEYS, LOOKUPS, SCHEMA, batch, batches
from benchmarks.report import Figures
from fluss_lab.workbench import Lab, Table

RUNS: Final = 3
#: Of the case `dicts`; pyfluss takes one a call.
DICTS_A_CALL: Final = 1_000
#: A peer's case that hangs.
PEER_TIMEOUT_S: Final = 400.0
GOALS: Final[Mapping[str, str]] = {
    "append": "3", "dicts": "2", "scan": "1.5", "tier": "15", "tier_keys": "8",
}  # fmt: skip


class Ours:
    """The cases of `apache_fluss_rows` through a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._made = 0
        lab.create_database("bench")

    def _table(self, buckets: int = 1, keys: Sequence[str] = (), *, lake: bool = False) -> Table:
        self._made += 1
        # A round is over with the lake's snapshot, as Fluss's: its tables are not compacted unless one asks for it.
        lake_properties = {
            "table.datalake.enabled": True, "table.datalake.freshness": "1h", "table.datalake.auto-maintenance": False,
        }  # fmt: skip
        properties = lake_properties if lake else {}
        return self._lab.create_table(
            f"bench.t{self._made}", SCHEMA, primary_key=list(keys) or None, buckets=buckets, properties=properties
        )

    def append(self) -> float:
        return cases.LOG_ROWS / self._filled()[1]

    def _filled(self, rows: int = cases.LOG_ROWS, *, buckets: int = 1, lake: bool = False) -> tuple[Table, float]:
        table = self._table(buckets, lake=lake)
        made = batches(rows)
        with self._lab.connection.append_writer(table.path) as writer:
            started = time.perf_counter()
            for each in made:
                writer.append(each)
            writer.flush()
            return table, time.perf_counter() - started

    def dicts(self) -> float:
        rows = batch(0, cases.DICT_ROWS).to_pylist()
        return self._append_dicts([rows[start : start + DICTS_A_CALL] for start in range(0, len(rows), DICTS_A_CALL)])

    def dict_calls(self) -> float:
        return self._append_dicts(batch(0, cases.DICT_ROWS).to_pylist())

    def _append_dicts(self, calls: Sequence[object]) -> float:
        with self._lab.connection.append_writer(self._table().path) as writer:
            started = time.perf_counter()
            for rows in calls:
                writer.append(rows)
            writer.flush()
            return cases.DICT_ROWS / (time.perf_counter() - started)

    def scan(self) -> float:
        return self._scan(None)

    def scan_column(self) -> float:
        return self._scan(["id"])

    def _scan(self, columns: list[str] | None) -> float:
        table, _ = self._filled()
        started = time.perf_counter()
        found = table.scan(columns=columns).to_arrow().num_rows
        taken_s = time.perf_counter() - started
        assert found == cases.LOG_ROWS, found
        return cases.LOG_ROWS / taken_s

    def upsert1(self) -> float:
        return self._upserted(1)[1]

    def upsert4(self) -> float:
        return self._upserted(BUCKETS)[1]

    def _upserted(
        self, buckets: int, rows: int = cases.UPSERT_ROWS, keys: int = KEYS, *, lake: bool = False
    ) -> tuple[Table, float]:
        table = self._table(buckets, ["id"], lake=lake)
        made = batch(0, rows, keys).to_pylist()
        with self._lab.connection.upsert_writer(table.path) as writer:
            started = time.perf_counter()
            for row in made:
                writer.upsert(row)
            writer.flush()
            return table, rows / (time.perf_counter() - started)

    def lookup(self) -> float:
        table, _ = self._upserted(1)
        started = time.perf_counter()
        for number in range(LOOKUPS):
            assert table.lookup({"id": number * 37 % KEYS}).num_rows == 1
        return LOOKUPS / (time.perf_counter() - started)

    def lookups(self) -> float:
        table, _ = self._upserted(1)
        with ThreadPoolExecutor(CALLERS) as callers:
            started = time.perf_counter()
            found = list(callers.map(lambda number: table.lookup({"id": number * 37 % KEYS}), range(CALLERS)))
            taken_s = time.perf_counter() - started
        assert all(each.num_rows == 1 for each in found)
        return CALLERS / taken_s

    def tier(self) -> float:
        return self._round(self._filled(cases.TIER_ROWS, buckets=BUCKETS, lake=True)[0])

    def tier_keys(self) -> float:
        rows = cases.TIER_KEY_ROWS
        return self._round(self._upserted(BUCKETS, rows, rows // 5, lake=True)[0])

    def _round(self, table: Table) -> float:
        self._lab.spark  # noqa: B018 - Spark's start is not part of a round, as Flink's is not
        records = sum(each.require().end_offset for each in self._lab.connection.admin().buckets(table.info))
        started = time.perf_counter()
        table.tier()
        return records / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apache_fluss", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(cases.CASES), help=f"of {', '.join(cases.CASES)}")
    parser.add_argument("--python", help="an interpreter with pyfluss")
    parser.add_argument("--bootstrap", default="127.0.0.1:9123", help="where Fluss is")
    parser.add_argument("--tiering-log", default="", help="the log of its tiering job")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each case, in turns; the middle one counts")
    given = parser.parse_args()
    figures = Figures("ours beside Apache Fluss: rows, records or lookups a second")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        ours = Ours(lab)
        if any(case.startswith("tier") for case in given.cases):
            ours.tier_keys()  # what the first round of a process costs is not of a round
        for case in given.cases:
            sides: list[Callable[[], float]] = [getattr(ours, case)]
            if given.python:
                sides.append(lambda case=case: _peer(given, case))  # type: ignore[misc]
            found: list[list[float]] = [[] for _ in sides]
            for _ in range(given.runs):
                for side, rates in zip(sides, found, strict=True):
                    rates.append(side())
            mine, *theirs = [statistics.median(rates) for rates in found]
            peer = f"Fluss {theirs[0]:,.0f}" if theirs else ""
            print(f"{case}: {found}", flush=True)
            figures.add(case, f"{mine:,.0f}", peer, mine / theirs[0] if theirs else None, GOALS.get(case, ""))
    figures.print()


def _peer(given: Any, case: str) -> float:
    environment = {**os.environ, "FLUSS_BOOTSTRAP": given.bootstrap, "FLUSS_TIERING_LOG": given.tiering_log}
    command = [given.python, cases.__file__, case]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PEER_TIMEOUT_S, check=True)
    return float(json.loads(ran.stdout.splitlines()[-1])[case])


if __name__ == "__main__":
    main()
