"""The first minutes: how long each step takes from ``import fluss_lab`` on, each time in fresh processes and a fresh folder.

``python -m benchmarks first-minutes``; ``python -m benchmarks.first_minutes --runs 1`` tries it small. Wall seconds are medians, and
say what a person waits for; on a busy machine CPU seconds are those to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Figures

RUNS: Final = 5
#: How long a person looks at what was written, where Spark starts early.
READING_S: Final = 20.0
GOAL_PLAIN_S: Final = 3.0
GOAL_SPARK_S: Final = 20.0
ROWS: Final = 1000
_QUERY: Final = "select dest, count(*) from bench.t group by dest"

PLAIN: Final = (
    "import fluss_lab",
    "Lab.open, new folder",
    "create a table",
    "append 1,000 rows",
    "first scan, without Spark",
)
WITH_SPARK: Final = (
    "import fluss_lab",
    "Lab.open, new folder",
    "create a table",
    "append 1,000 rows",
    "first tier",
    "first SQL",
)
SPARK: Final = (
    "look for a Java",
    "JVM until it listens",
    "import pyspark",
    "session",
    "register tables",
    "first query of the JVM",
    "first Python task",
)
#: What starts Spark in a new process on a folder that is there, with the archive: what a child does, and the goal.
FIRSTS: Final = {"lab.spark": 4.0, "lab.sql": 6.0, "tier()": 5.0}
#: How a child spends its time.
_KINDS: Final = ("plain", "spark", "archived", "early", "again", *FIRSTS, "parts")


def run(runs: int = RUNS) -> None:
    """Measure and print."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}
    with tempfile.TemporaryDirectory() as cache:
        env = {"XDG_CACHE_HOME": cache}
        made = _child("make", Path(cache), env)
        for _ in range(runs):
            _measure_all(found, env)
    figures = Figures(f"first minutes, in fresh processes: median of {runs} (least to most), on {os.cpu_count()} cores")
    _add(figures, "without Spark", PLAIN, found["plain"], GOAL_PLAIN_S)
    _add(figures, "with Spark, no archive of its classes", WITH_SPARK, found["spark"], GOAL_SPARK_S)
    _add(figures, "with Spark", WITH_SPARK, found["archived"], GOAL_SPARK_S)
    figures.add("the archive, made once in the background", f"{made['made']:.1f} s")
    figures.add(f"Spark started early, {READING_S:.0f} s of reading: first tier", _spread(found["early"], "first tier"))
    figures.add("  then first SQL", _spread(found["early"], "first SQL"))
    figures.add("an existing folder: Lab.open", _spread(found["again"], "Lab.open"))
    figures.add("  then first scan, across lake and log", _spread(found["again"], "first scan"))
    for part, goal_s in FIRSTS.items():
        figures.add(f"  first {part}", _spread(found[part], part), goal=f"{goal_s:.0f} s")
    for part in SPARK:
        figures.add(f"of Spark's start: {part}", _spread(found["parts"], part))
    figures.print()


def _measure_all(found: dict[str, list[dict[str, float]]], env: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind in _KINDS:
            # What is opened again is what the last one with Spark left behind.
            lab = Path(folder) / ("spark" if kind == "again" or kind in FIRSTS else kind)
            found[kind].append(_child(kind, lab, env))


def _add(figures: Figures, title: str, parts: tuple[str, ...], found: list[dict[str, float]], goal_s: float) -> None:
    for part in parts:
        figures.add(f"{title}: {part}", _spread(found, part))
    totals = [{"total": sum(each[part] for part in parts)} for each in found]
    figures.add(f"{title}: from import to the answer", _spread(totals, "total"), goal=f"{goal_s:.0f} s")
    figures.add(
        "  CPU of all processes", ", ".join(f"{role} {_spread(found, role)}" for role in ("server", "JVM", "Python"))
    )


def _spread(found: list[dict[str, float]], part: str) -> str:
    values = [each[part] for each in found]
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def _child(kind: str, folder: Path, env: dict[str, str]) -> dict[str, float]:
    """Return the seconds of each step in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_minutes", "--child", kind, str(folder)],
        capture_output=True, text=True, check=False, env=os.environ | env | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{kind} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- in the child -----------------------------------------------------------------------------------------------------


class _Steps:
    """The seconds of steps, one after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a step and return what it returns."""
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[name] = time.perf_counter() - began_s


def _imported() -> Any:
    import fluss_lab

    return fluss_lab.Lab  # whose name is loaded on first use


def _measure(kind: str, folder: Path) -> dict[str, float]:
    steps = _Steps()
    if kind in {"parts", "make"}:
        (_measure_start if kind == "parts" else _make_archive)(steps)
        return steps.seconds
    lab_type = steps.step("import fluss_lab", _imported)
    if kind == "again":
        with steps.step("Lab.open", lambda: lab_type.open(folder)) as lab:
            steps.step("first scan", lambda: lab.table("bench.t").scan().to_arrow())
        return steps.seconds
    if kind in FIRSTS:
        _measure_first(steps, kind, lab_type, folder)
        return steps.seconds
    config = {"client.spark.start-early": "always" if kind == "early" else "never"}
    config["client.spark.class-archive"] = "false" if kind == "spark" else "true"
    with steps.step("Lab.open, new folder", lambda: lab_type.open(folder, config=config)) as lab:
        table = steps.step("create a table", lambda: _create(lab))
        data = [{"id": number, "dest": f"d{number % 7}"} for number in range(ROWS)]
        steps.step("append 1,000 rows", lambda: table.append(data))
        if kind == "plain":
            steps.step("first scan, without Spark", lambda: table.scan().to_arrow())
        else:
            time.sleep(READING_S if kind == "early" else 0.0)
            steps.step("first tier", table.tier)
            steps.step("first SQL", lambda: lab.sql(_QUERY).toPandas())
        from benchmarks.spark_pace import costs, spent

        return steps.seconds | costs({}, spent(lab) | {os.getpid(): ("Python", time.process_time())})


def _measure_first(steps: _Steps, kind: str, lab_type: Any, folder: Path) -> None:
    with lab_type.open(folder, config={"client.spark.start-early": "never"}) as lab:
        table = lab.table("bench.t")
        if kind == "lab.spark":
            steps.step(kind, lambda: lab.spark)
        elif kind == "lab.sql":
            steps.step(kind, lambda: lab.sql(_QUERY).toPandas())
        else:
            table.append([{"id": number, "dest": "d"} for number in range(ROWS)])
            steps.step(kind, table.tier)


def _create(lab: Any) -> Any:
    lab.create_database("bench")
    properties = {"table.datalake.enabled": True, "table.datalake.auto-maintenance": False}
    return lab.create_table("bench.t", {"id": "bigint", "dest": "string"}, buckets=2, properties=properties)


def _make_archive(steps: _Steps) -> None:
    from fluss_lab.spark.session.class_archive import archive_of
    from fluss_lab.spark.session.spark_session import DEFAULT_MASTER, session_plan

    archive = archive_of(session_plan("bench", DEFAULT_MASTER, {}, None)[1])
    if archive is None or (making := archive.begin()) is None:
        raise RuntimeError("no archive is made for Spark in a folder whose path has a space: run this in another one")
    steps.step("made", making.join)


def _measure_start(steps: _Steps) -> None:
    """Start Spark step by step; `fluss_lab.spark.session.spark_session` does the third while the second goes on."""
    from fluss_lab.spark.registration import register
    from fluss_lab.spark.session.java_home import find_java
    from fluss_lab.spark.session.jvm_launch import import_pyspark, launch, start_session
    from fluss_lab.spark.session.spark_session import DEFAULT_MASTER, session_plan

    steps.step("look for a Java", find_java)
    steps.step("import pyspark", import_pyspark)
    settings, environment = session_plan("bench", DEFAULT_MASTER, {}, None)
    jvm = steps.step("JVM until it listens", lambda: launch(settings, environment))
    session = steps.step("session", lambda: start_session(settings, environment, jvm))
    steps.step("register tables", lambda: register(session, {"lab": "nowhere"}))
    query = "select id % 3, count(*) from range(9) group by 1"
    steps.step("first query of the JVM", lambda: session.sql(query).collect())
    steps.step("first Python task", lambda: session.sparkContext.parallelize([1], 1).map(str).collect())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--child", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(_measure(chosen.child[0], Path(chosen.child[1]))))
    else:
        run(chosen.runs)
