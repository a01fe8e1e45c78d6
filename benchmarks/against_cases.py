"""What `benchmarks.against` compares. Only calls that both checkouts have."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from fluss_lab.server.cluster import read_discovery
from fluss_lab.workbench import Lab, Table

if TYPE_CHECKING:
    from fluss_lab.tiering.task.tiering_task import TaskProgress


def _either(name: str, *modules: str) -> Any:
    """Return what this checkout, or an older one, has in one of some modules."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"no {name} in {', '.join(modules)}")


run_round = _either("run_round", "fluss_lab.tiering.round.tiering_round", "fluss_lab.tiering.round")
_TASK_MODULES = (
    "fluss_lab.tiering.task.tiering_task",
    "fluss_lab.tiering.task.task_dispatch",
    "fluss_lab.tiering.task",
)
run_task = _either("run_task", *_TASK_MODULES)

#: Of tables that are read.
ROWS = 500_000
BATCH_ROWS = 20_000
BUCKETS = 4
LAKE = {"table.datalake.enabled": True}
_numbers = itertools.count()

#: What is measured. A lab that it returns counts with its server, and is closed.
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Made once a side; each turn makes ready, which is not measured, and returns what is."""

    what: str
    make: Callable[[Lab], Callable[[], Work]]


def work(folder: Path) -> None:
    """Be a side: a case's name on standard input, its CPU seconds on standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr
    made: dict[str, Callable[[], Work]] = {}
    with Lab.open(folder / "lab") as lab:
        lab.create_database("bench")
        for line in sys.stdin:
            name = line.strip()
            if name not in made:
                made[name] = CASES[name].make(lab)
            print(json.dumps(_measured(made[name](), lab)), file=answers, flush=True)


def _measured(called: Work, lab: Lab) -> float:
    before = _cpu_s([lab])
    result = called()
    taken = _cpu_s([lab, result] if isinstance(result, Lab) else [lab]) - before
    if isinstance(result, Lab):
        servers = _servers(result)
        result.close()
        while any(map(_clock_s, servers)):
            time.sleep(0.1)
    return taken


def _cpu_s(labs: Sequence[Lab]) -> float:
    """Return the CPU seconds so far of this process, of all that it started and that live, and of the labs' servers."""
    parents = {int(each.name): _parent(each) for each in Path("/proc").iterdir() if each.name.isdecimal()}
    counted = {os.getpid()}.union(*map(_servers, labs))
    while grown := {pid for pid, parent in parents.items() if parent in counted and pid not in counted}:
        counted |= grown
    return sum(map(_clock_s, counted))


def _servers(lab: Lab) -> set[int]:
    found = read_discovery(Path(str(lab.folder)))
    return set() if found is None else {server.pid for server in found.servers}


def _parent(process: Path) -> int:
    """Return who started a process; 0 when it has ended: it counts neither before nor after."""
    try:
        state, parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return 0
    return 0 if state == "Z" else int(parent)


def _clock_s(pid: int) -> float:
    """Return a process's CPU seconds, in Linux's terms: a clock made of its number."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(lab: Lab, *, keyed: bool, lake: bool = False, buckets: int = BUCKETS) -> Table:
    return lab.create_table(
        f"bench.t{next(_numbers)}",
        SCHEMA,
        primary_key=["id"] if keyed else [],
        buckets=buckets,
        properties=LAKE if lake else {},
    )


def _fill(table: Table, count: int, *, keyed: bool, seed: int = 7) -> Table:
    data = rows(count, seed)
    with table.writer() as writer:
        write: Any = writer.upsert if keyed else writer.append  # type: ignore[union-attr]
        for start in range(0, count, BATCH_ROWS):
            write(data.slice(start, BATCH_ROWS))
    return table


def _filled(lab: Lab, count: int = ROWS, *, keyed: bool, lake: bool = False) -> Table:
    return _fill(_table(lab, keyed=keyed, lake=lake), count, keyed=keyed)


def _across(lab: Lab, *, keyed: bool) -> Table:
    """Return a table with most of its rows in the lake and some in the log, updates among them."""
    table = _filled(lab, keyed=keyed, lake=True)
    _tier_here(table)
    return _fill(table, ROWS // 10, keyed=keyed, seed=8)


class _Here:
    """Runs a round's tasks in this process, one after another."""

    parallelism = 1
    is_alive = True

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run the tasks."""
        return [run_task(task) for task in tasks]

    def cancel(self) -> None:
        """Do nothing: the tasks run in the caller."""


def _tier_here(table: Table) -> object:
    lab = table.lab
    return run_round(
        lab.connection, lab.lake_storage(), _Here(), table_id=table.info.table_id, session_id=lab.session_id
    )


def _ids(count: int) -> list[dict[str, int]]:
    return [{"id": int(each)} for each in np.random.default_rng(7).integers(0, ROWS, count)]


# -- cases -------------------------------------------------------------------------------------------------------------


def _repeated(times: int, called: Callable[[], object]) -> Callable[[], Work]:
    def turn() -> object:
        for _ in range(times):
            called()
        return None

    return lambda: turn


def _append(count: int, times: int) -> Callable[[Lab], Callable[[], Work]]:
    def make(lab: Lab) -> Callable[[], Work]:
        table, data = _table(lab, keyed=False), rows(count)
        return _repeated(times, lambda: table.append(data))

    return make


def _append_dicts(lab: Lab) -> Callable[[], Work]:
    table = _table(lab, keyed=False)
    row = [{"id": 1, "price": 1.5, "symbol": "a", "note": "b"}]
    return _repeated(200, lambda: table.append(row))


def _pipelined(lab: Lab) -> Callable[[], Work]:
    table = _table(lab, keyed=False)
    return lambda: partial(_fill, table, ROWS, keyed=False)


def _writer_a_call(lab: Lab) -> Callable[[], Work]:
    table, data = _table(lab, keyed=False), rows(10)

    def write() -> None:
        with lab.connection.append_writer(table.path) as writer:
            writer.append(data)

    return _repeated(200, write)


def _upsert(count: int, times: int) -> Callable[[Lab], Callable[[], Work]]:
    def make(lab: Lab) -> Callable[[], Work]:
        table = _table(lab, keyed=True)
        seeds = itertools.count()

        def ready() -> Work:
            data = [rows(count, next(seeds)) for _ in range(times)]
            return lambda: [table.upsert(each) for each in data]

        return ready

    return make


def _lookup(keys: int, times: int) -> Callable[[Lab], Callable[[], Work]]:
    def make(lab: Lab) -> Callable[[], Work]:
        table = _filled(lab, keyed=True)
        asked = pa.Table.from_pylist(_ids(keys)) if keys > 1 else _ids(1)
        return _repeated(times, lambda: table.lookup(asked))

    return make


def _lookup_held(lab: Lab) -> Callable[[], Work]:
    lookuper = lab.connection.lookuper(_filled(lab, keyed=True).path)
    asked = _ids(1)[0]
    return _repeated(1000, lambda: lookuper.lookup(asked))


def _read(
    called: Callable[[Table], object], times: int, *, keyed: bool, across: bool = False
) -> Callable[[Lab], Callable[[], Work]]:
    def make(lab: Lab) -> Callable[[], Work]:
        table = _across(lab, keyed=keyed) if across else _filled(lab, keyed=keyed)
        return _repeated(times, lambda: called(table))

    return make


def _tier(*, keyed: bool, count: int, spark: bool = False) -> Callable[[Lab], Callable[[], Work]]:
    def make(lab: Lab) -> Callable[[], Work]:
        if spark:
            lab.spark  # noqa: B018 - Spark's start is not part of a round

        def ready() -> Work:
            table = _filled(lab, count, keyed=keyed, lake=True)
            return table.tier if spark else partial(_tier_here, table)

        return ready

    return make


def _tier_again(lab: Lab) -> Callable[[], Work]:
    """Rounds of a primary-key table whose rows change: deletes are placed."""
    table = _across(lab, keyed=True)
    seeds = itertools.count(100)

    def ready() -> Work:
        _fill(table, ROWS // 10, keyed=True, seed=next(seeds))
        return partial(_tier_here, table)

    return ready


def _tier_small(lab: Lab) -> Callable[[], Work]:
    table = _filled(lab, 1_000, keyed=False, lake=True)

    def ready() -> Work:
        def rounds() -> None:
            for _ in range(5):
                table.append(rows(1_000))
                _tier_here(table)

        return rounds

    return ready


def _open(lab: Lab) -> Callable[[], Work]:
    folder = Path(str(lab.folder)).with_name("hundred")
    with Lab.open(folder, config={"server.grace": "1s"}) as other:
        other.create_database("bench")
        for keyed in (False, True):
            _fill(_table(other, keyed=keyed, buckets=50), 50_000, keyed=keyed)
    return lambda: partial(_opened, folder)


def _opened(folder: Path) -> Lab:
    lab = Lab.open(folder, config={"server.grace": "1s"})
    for table in lab.tables("bench"):
        lab.table(f"bench.{table}").scan().count()
    return lab


def _create(lab: Lab) -> Callable[[], Work]:
    return _repeated(20, lambda: _table(lab, keyed=False))


def _create_lake(lab: Lab) -> Callable[[], Work]:
    return _repeated(10, lambda: _table(lab, keyed=True, lake=True))


def _arrow(table: Table) -> object:
    return table.scan().to_arrow()


def _filtered(table: Table) -> object:
    return table.scan(columns=["id", "price"], where="amount = 7 and price > 900").to_arrow()


def _count(table: Table) -> object:
    return table.scan().count()


def _limit(table: Table) -> object:
    return table.scan(limit=10).to_arrow()


def _changes(table: Table) -> object:
    return table.changelog().to_arrow()


CASES = {
    "append-1k": Case("append 1,000 rows x 100", _append(1_000, 100)),
    "append-100k": Case("append 100,000 rows x 10", _append(100_000, 10)),
    "append-dicts": Case("append one dict x 200", _append_dicts),
    "append-pipelined": Case("one writer, 500,000 rows by 20,000", _pipelined),
    "writer-a-call": Case("a writer and 10 rows x 200", _writer_a_call),
    "upsert-100k": Case("upsert 100,000 keys x 3", _upsert(100_000, 3)),
    "upsert-1k": Case("upsert 1,000 keys x 100", _upsert(1_000, 100)),
    "lookup-1": Case("look one key up x 500", _lookup(1, 500)),
    "lookup-held": Case("look one key up, one lookuper, x 1,000", _lookup_held),
    "lookup-10k": Case("look 10,000 keys up x 20", _lookup(10_000, 20)),
    "scan-log": Case("scan a log table's 500,000 rows in the cluster x 3", _read(_arrow, 3, keyed=False)),
    "scan-keyed": Case("scan a primary-key table's 500,000 rows in the cluster", _read(_arrow, 1, keyed=True)),
    "scan-log-across": Case("the same with the lake, log table x 3", _read(_arrow, 3, keyed=False, across=True)),
    "scan-keyed-across": Case("the same with the lake, primary-key table", _read(_arrow, 1, keyed=True, across=True)),
    "filter-log-across": Case("two columns, a condition, log table x 10", _read(_filtered, 10, keyed=False, across=True)),
    "filter-keyed-across": Case("the same, primary-key table x 3", _read(_filtered, 3, keyed=True, across=True)),
    "count-log": Case("count a log table x 50", _read(_count, 50, keyed=False)),
    "count-keyed": Case("count a primary-key table x 50", _read(_count, 50, keyed=True)),
    "count-log-across": Case("count with the lake, log table x 50", _read(_count, 50, keyed=False, across=True)),
    "count-keyed-across": Case("the same, primary-key table x 2", _read(_count, 2, keyed=True, across=True)),
    "limit-log": Case("the first 10 rows of a log table x 50", _read(_limit, 50, keyed=False)),
    "limit-log-across": Case("the same with the lake x 20", _read(_limit, 20, keyed=False, across=True)),
    "changes-log": Case("changelog of a log table x 2", _read(_changes, 2, keyed=False)),
    "changes-keyed": Case("changelog of a primary-key table", _read(_changes, 1, keyed=True)),
    "changes-keyed-across": Case("the same with the lake", _read(_changes, 1, keyed=True, across=True)),
    "tier-log": Case("a round of 500,000 rows, log table, without Spark", _tier(keyed=False, count=ROWS)),
    "tier-keyed": Case("the same, primary-key table", _tier(keyed=True, count=ROWS)),
    "tier-again": Case("a round of 50,000 upserts of old keys", _tier_again),
    "tier-small": Case("rounds of 1,000 rows x 5", _tier_small),
    "tier-spark-log": Case("a round of 500,000 rows on Spark, log table", _tier(keyed=False, count=ROWS, spark=True)),
    "tier-spark-keyed": Case("the same, primary-key table", _tier(keyed=True, count=ROWS, spark=True)),
    "open": Case("start of a lab with 100 buckets, two counts", _open),
    "create": Case("create a table x 20", _create),
    "create-lake": Case("create a primary-key table with its lake table x 10", _create_lake),
}  # fmt: skip
