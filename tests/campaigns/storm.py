"""A storm of interrupts: one process whose main thread is interrupted again and again, at random moments of public calls.

Run as a program, in a process of its own: ``python -m tests.campaigns.storm FOLDER COUNT SEED``. After every interrupt the
lab must do a full cycle, and hold exactly what a model says. Its last line is a JSON object with what happened.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluss_lab as fl
from fluss_lab.client import AppendWriter
from fluss_lab.client.kv.lookuper import CALLS_AT_ONCE
from fluss_lab.errors import FlussError, NotFoundError, TieringInProgressError, WriteInterruptedError
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.maintenance.automatic_maintenance import TableMaintenance
from fluss_lab.tiering.maintenance.manual_maintenance import maintain
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.service.tiering_service import TieringService

#: A call or a cycle that takes longer hangs. They take milliseconds.
HANG_S = 90.0
CLOSE_S = 20.0
CYCLES_PER_ROUND = 15
ROWS_MAX = 8_000
#: However many calls were interrupted.
DESCRIPTORS_MORE_MAX = 12
#: Every so many cycles all rows are compared, not just counted.
CYCLES_PER_COMPARISON = 5
#: From one press of stop to the next.
AGAIN_S = (0.0, 0.0001, 0.001, 0.01, 0.05)
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


class Thunder:
    """Interrupts the main thread, so many seconds after it was asked to; once, or again and again as an impatient person does."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Sequence[float]] = queue.SimpleQueue()
        self._struck: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._main = threading.get_ident()
        threading.Thread(target=self._run, name="storm", daemon=True).start()

    def _run(self) -> None:
        while True:
            for delay_s in self._asked.get():
                threading.Event().wait(delay_s)
                signal.pthread_kill(self._main, signal.SIGINT)
            self._struck.put(None)

    def strike(self, call: Callable[[], object], delays_s: Sequence[float]) -> tuple[BaseException | None, float]:
        """Run a call that is interrupted after so many seconds, and so many after that, or has ended by then.

        Returns:
            What it raised, and how long it took.
        """
        raised: BaseException | None = None
        began_s = time.monotonic()
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                self._asked.put(delays_s)
                call()
            finally:
                signal.signal(signal.SIGINT, _overlook)
        except BaseException as error:
            raised = error
        signal.signal(signal.SIGINT, _overlook)
        took_s = time.monotonic() - began_s
        self._struck.get()
        return _reported(raised), took_s


def _reported(raised: BaseException | None) -> BaseException | None:
    """Return what a stopped write tells, also where a further interrupt came between it and the caller."""
    each = raised
    while isinstance(each, KeyboardInterrupt) and not isinstance(each, WriteInterruptedError):
        each = each.__context__
    return each if isinstance(each, WriteInterruptedError) else raised


def _overlook(*_: object) -> None:
    """Interrupts between two calls are not the subject."""


class Storm:
    """The lab, its tables, and what they must hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.next_id = 0
        self.log_ids: set[int] = set()
        self.keyed: dict[int, int] = {}
        self.lab = fl.Lab.open(folder)
        self.lab.create_database("d")
        self.log = self.lab.create_table("d.log", {"id": "bigint", "v": "bigint"}, buckets=2, properties=LAKE)
        self.table = self.lab.create_table(
            "d.keyed", {"id": "bigint", "v": "bigint"}, primary_key=["id"], buckets=2, properties=LAKE
        )
        self.point = self.log.read_point()
        self.durations: dict[str, float] = {}

    # -- the calls that are interrupted ----------------------------------------------------------------------------

    def rows(self, most: int = ROWS_MAX) -> pa.Table:
        """Return rows that nobody had before."""
        first, count = self.next_id, self.random.randint(1, most)
        self.next_id += count
        return pa.table({"id": range(first, first + count), "v": range(first, first + count)})

    def write_in_pieces(self, rows: pa.Table) -> None:
        with self.log.writer() as writer:
            assert isinstance(writer, AppendWriter)
            for batch in rows.to_batches(max_chunksize=500):
                writer.append(batch)
            writer.flush()

    def poll(self) -> None:
        with self.log.subscribe("earliest") as scanner:
            for _ in range(3):
                scanner.poll(1.0)

    def tier(self, table: fl.Table) -> None:
        lab = self.lab
        deadline_s = time.monotonic() + HANG_S / 2
        while True:  # one that a second interrupt left behind may hold the table for a moment more
            try:
                run_round(
                    lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id,
                    session_id=lab.session_id,
                )  # fmt: skip
                return
            except TieringInProgressError:
                assert time.monotonic() < deadline_s
                threading.Event().wait(0.05)

    def keep(self, action: Callable[[TableMaintenance], object]) -> None:
        """Do something for the shape of a table; a call before that was left behind may hold it still."""
        lab, table = self.lab, self.random.choice([self.log, self.table])
        with contextlib.suppress(TieringInProgressError):
            maintain(
                lab.connection, lab.lake_storage(), LocalTieringExecutor(), action, table_id=table.info.table_id,
                session_id=lab.session_id,
            )  # fmt: skip

    def serve(self) -> None:
        with TieringService(
            self.lab.connection, self.lab.lake_storage(), LocalTieringExecutor, max_tables=1
        ) as service:
            service.status()

    def partition(self) -> None:
        table = self.lab.create_table(
            "d.parts", {"id": "bigint", "p": "string"}, partitioned_by=["p"], if_not_exists=True
        )
        table.append([{"id": 1, "p": str(self.random.randint(0, 3))}])
        table.scan().count()
        self.lab.drop_table("d.parts", if_exists=True)

    def load(self) -> None:
        path = "d.loaded"
        self.lab.drop_table(path, if_exists=True)
        self.lab.load({"id": list(range(3000))}, path, if_exists="append")
        assert self.lab[path].count() == 3000

    def attach(self) -> None:
        with fl.Lab.open(self.folder) as other:
            other.tables("d")

    def reads(self) -> dict[str, Callable[[], object]]:
        keys = [{"id": key} for key in self.random.sample(sorted(self.keyed), min(50, len(self.keyed)))] or [{"id": 0}]
        some = self.random.choice([keys, keys[:1], [{"id": key} for key in range(20_000)]])
        return {
            "count": self.log.count,
            "head": self.log.head,
            "stream": lambda: pa.table(self.table.scan()),
            "parquet": lambda: self.log.scan().to_parquet(self.folder.parent / "rows.parquet", overwrite=True),
            "load": self.load,
            "tables": lambda: (self.lab.tables(), "d.log" in self.lab, self.lab["d.keyed"]),
            "count_where": self.log.scan(where="v > 100").count,
            "scan": self.log.scan().to_arrow,
            "scan_keyed": self.table.scan().to_arrow,
            "scan_pandas": self.table.scan(where="v < 5000").to_pandas,
            "batches": lambda: next(iter(self.table.scan().to_batches(100)), None),
            "lookup": lambda: self.table.lookup(some),
            "changelog": self.table.changelog().to_arrow,
            "poll": self.poll,
            "seek": lambda: self.log.seek(int(time.time() * 1000) - 1000),
            "diff": lambda: self.log.diff(self.point),
            "buckets": self.log.buckets,
            "status": self.lab.status,
            "shown": lambda: (self.lab._repr_html_(), self.log._repr_html_(), repr(self.table)),
            "snapshots": self.log.snapshots,
            "tier": lambda: self.tier(self.random.choice([self.log, self.table])),
            "partition": self.partition,
            "attach": self.attach,
            "compact": lambda: self.keep(lambda held: held.compact(force=True)),
            "expire": lambda: self.keep(lambda held: held.expire(older_than_ms=0, keep=1)),
            "orphans": lambda: self.keep(lambda held: held.remove_orphans()),
            "service": self.serve,
            "history": lambda: self.table.history({"id": 0}).to_arrow(),
            "alter": lambda: self.log.alter(set={"table.datalake.freshness": "2h"}),
        }

    # -- one interrupt -----------------------------------------------------------------------------------------------

    def strike(self, thunder: Thunder) -> None:
        """Interrupt one call, and see that all is as it was told."""
        reads = self.reads()
        name = self.random.choice([*reads, *(["append", "upsert", "delete", "writer"] * 4)])
        rows = self.rows()
        call: Callable[[], object]
        if name in reads:
            call = reads[name]
        elif name == "append":
            call = lambda: self.log.append(rows)  # noqa: E731
        elif name == "writer":
            call = lambda: self.write_in_pieces(rows)  # noqa: E731
        elif name == "upsert":
            call = lambda: self.table.upsert(rows)  # noqa: E731
        else:
            rows = rows.slice(0, 0) if not self.keyed else pa.table({"id": sorted(self.keyed)[:2000]})
            call = lambda: self.table.delete(rows)  # noqa: E731
        first_s = self.random.uniform(0, 0.8) * self.durations.get(name, 0.02)
        again_s = self.random.choices(AGAIN_S, k=self.random.choice([0, 0, 1, 2]))
        raised, took_s = thunder.strike(call, [first_s, *again_s])
        if raised is None:
            self.durations[name] = took_s
        else:
            self.counts["struck"] += 1
            self.calls[name] += 1
        self.judge(name, raised, rows)

    def judge(self, name: str, raised: BaseException | None, rows: pa.Table) -> None:
        """Take what a call did into the model."""
        writes = name in {"append", "writer", "upsert", "delete"}
        if raised is None:
            self.counts["done"] += 1
        elif isinstance(raised, WriteInterruptedError):
            if writes:
                self.settle(name, raised, rows)
            else:
                raised.abandon()
            return
        elif isinstance(raised, KeyboardInterrupt):
            self.counts["interrupted"] += 1
            if writes:
                self.learn(name, rows, None)
            return
        elif isinstance(raised, pa.ArrowException) and "KeyboardInterrupt" in str(raised):
            self.counts["interrupted"] += 1  # all that Arrow's C interface lets through
            return
        elif isinstance(raised, NotFoundError) and name == "partition":
            self.counts["done"] += 1  # its table was dropped by the call interrupted before
        else:
            raise raised
        if writes:
            self.wrote(name, rows["id"].to_pylist())

    def settle(self, name: str, error: WriteInterruptedError, rows: pa.Table) -> None:
        """Finish or abandon a write that was stopped."""
        self.counts["stopped writes"] += 1
        if self.random.random() < 0.3:
            error.abandon()
            self.counts["abandoned"] += 1
            self.learn(name, rows, error)
            return
        result = error.settle()
        self.counts["settled"] += 1
        # A writer was given what came before the interrupt; a single call gives all or nothing.
        assert result.rows == rows.num_rows or name == "writer"
        self.wrote(name, rows["id"].to_pylist()[: result.rows])

    def wrote(self, name: str, ids: list[int]) -> None:
        if name in {"append", "writer"}:
            self.log_ids.update(ids)
        elif name == "upsert":
            self.keyed.update((each, each) for each in ids)
        else:
            for each in ids:
                self.keyed.pop(each, None)

    def learn(self, name: str, rows: pa.Table, error: WriteInterruptedError | None) -> None:
        """See which rows of a write are there: as many as it told."""
        given = set(rows["id"].to_pylist())
        table = self.log if name in {"append", "writer"} else self.table
        present = given & set(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
        written = given - present if name == "delete" else present
        if error is None:
            # A plain interrupt came before the rows were taken over, or after all were acknowledged.
            assert written in (set(), given), f"{name}: {len(written)} of {len(given)} rows without a word"
            self.counts["written without a word"] += bool(written)
        else:
            reported = sum(each.rows for each in error.acknowledged.values())
            in_flight = "in flight: none" not in str(error)
            assert len(written) >= reported, f"{name}: told {reported}, found {len(written)}"
            assert in_flight or len(written) == reported, f"{name}: told {reported}, found {len(written)}: {error}"
        self.wrote(name, sorted(written))

    def cycle(self, number: int) -> None:
        """Append, upsert, scan, look up, now and then tier: as if nothing had been."""
        row = self.rows(1)
        (key,) = row["id"].to_pylist()
        self.log.append(row)
        self.table.upsert(row)
        self.wrote("append", [key])
        self.wrote("upsert", [key])
        count = self.log.scan().count()
        assert count == len(self.log_ids), f"log: expected {len(self.log_ids)} rows, found {count}"
        if number % CYCLES_PER_COMPARISON == 0:
            assert set(self.log.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == self.log_ids
        assert self.table.scan().count() == len(self.keyed)
        asked = [key, *self.random.sample(range(self.next_id), min(20, self.next_id))]
        answer = self.table.lookup([{"id": each} for each in asked])["v"].to_pylist()
        assert answer == [self.keyed.get(each) for each in asked]
        if number % CYCLES_PER_ROUND == 0:
            self.tier(self.log)
            self.tier(self.table)
            self.counts["rounds"] += 1

    def warm_up(self) -> None:
        """Do every call once and again, for its time; then a cycle."""
        for _ in range(2):
            for name, call in self.reads().items():
                began_s = time.monotonic()
                call()
                self.durations[name] = time.monotonic() - began_s
        self.cycle(0)

    def state(self) -> tuple[int, int]:
        gc.collect()
        # A kept lookuper starts its threads, never more than so many, when it has work for them.
        lookups = [each for each in threading.enumerate() if each.name.startswith("lookup-d.keyed")]
        assert len(lookups) <= CALLS_AT_ONCE, [each.name for each in lookups]
        return threading.active_count() - len(lookups), len(os.listdir("/proc/self/fd"))

    def is_as(self, before: tuple[int, int]) -> bool:
        """Return whether there are no more threads, and no more descriptors but for gRPC's sockets that it keeps a while."""
        threads, descriptors = self.state()
        return threads <= before[0] and descriptors <= before[1] + DESCRIPTORS_MORE_MAX

    def holdings(self) -> str:
        """Return the names of threads, and kinds of descriptors, to be told."""
        names = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                names.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        return f"{sorted(each.name for each in threading.enumerate())} {Counter(names)}"

    def check_all(self, lab: fl.Lab) -> None:
        found = lab.table("d.log").scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(self.log_ids)
        keyed = lab.table("d.keyed").scan().to_arrow().to_pydict()
        assert dict(zip(keyed["id"], keyed["v"], strict=True)) == self.keyed
        assert len(keyed["id"]) == len(self.keyed)


def run(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Interrupt so many times; return what happened."""
    began_s = time.monotonic()
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    storm, thunder = Storm(folder, seed), Thunder()
    storm.warm_up()
    before = storm.state()
    number = 0
    while storm.counts["struck"] < count:
        number += 1
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        storm.strike(thunder)
        storm.cycle(number)
    # Threads of calls that were left behind end with them.
    try:
        wait_until(lambda: storm.is_as(before), HANG_S / 2)
    except AssertionError:
        raise AssertionError(f"before {before}, after {storm.state()}: {storm.holdings()}") from None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    closing_s = time.monotonic()
    storm.lab.close()
    closed_s = time.monotonic() - closing_s
    assert closed_s < CLOSE_S, f"closing took {closed_s:.1f} s"
    with fl.Lab.open(folder) as lab:
        storm.check_all(lab)
    faulthandler.cancel_dump_traceback_later()
    return {
        **storm.counts, "calls": dict(sorted(storm.calls.items())), "cycles": number, "threads_fds": [before, storm.state()], "close_s": round(closed_s, 2),
        "rows": [len(storm.log_ids), len(storm.keyed)], "seconds": round(time.monotonic() - began_s, 1),
    }  # fmt: skip


def main() -> None:
    """Run the storm of the command line."""
    folder, count, seed = sys.argv[1:]
    try:
        said = run(Path(folder), int(count), int(seed))
    except FlussError as error:
        raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
