"""Measures the axes, prints their tables, and keeps the report."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.growth import buckets_axis, documents, partitions_axis, rows_axis, snapshots_axis, tables_axis
from benchmarks.growth.growth_report import AxisReport, GrowthReport, long_table
from benchmarks.growth.meter import Axis, measured

AXES: Final = {
    each.name: each
    for each in (rows_axis.AXIS, buckets_axis.AXIS, partitions_axis.AXIS, snapshots_axis.AXIS, tables_axis.AXIS)
}
#: Of an axis; five of them are some twenty minutes on a quiet machine of two cores.
BUDGET_S: Final = 240.0


def run() -> None:
    """Measure and print, within the budget."""
    main([])


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description="How costs grow, with fitted exponents."
    )
    parser.add_argument("--axis", action="append", choices=AXES, help="only this one; may come several times")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds an axis; default %(default)s")
    parser.add_argument("--full", action="store_true", help="all sizes, however long it takes")
    parser.add_argument("--up-to", type=int, help="no size above this one")
    parser.add_argument("--json", type=Path, help="where the report is written")
    parser.add_argument("--keep", metavar="CONDITIONS", help="keep it: docs/growth.json, and the documents made of it")
    parser.add_argument(
        "--documents", action="store_true", help="measure nothing: make the documents of the kept report"
    )
    chosen = parser.parse_args(arguments)
    if not chosen.documents:
        names = chosen.axis or list(AXES)
        report = GrowthReport(tuple(_axis(AXES[name], chosen) for name in names))
        if chosen.json is not None:
            chosen.json.write_text(report.to_json())
        if chosen.keep is None:
            return 0
        kept = documents.ROOT / documents.REPORT
        older = GrowthReport.from_json(kept.read_text()) if kept.exists() else report
        kept.write_text(older.with_axes(report.axes).to_json())
    documents.write()
    return 0


def _axis(axis: Axis, chosen: argparse.Namespace) -> AxisReport:
    print(f"== growth with {axis.name}", file=sys.stderr, flush=True)
    sizes = tuple(size for size in axis.sizes if chosen.up_to is None or size <= chosen.up_to)
    found = measured(replace(axis, sizes=sizes), None if chosen.full else chosen.budget)
    report = AxisReport(axis.name, axis.about, _machine(chosen.keep), axis.headlines, found)
    print(f"\n{axis.about}; seconds of CPU, of all processes\n\n{long_table(report)}\n", flush=True)
    return report


def _machine(conditions: str | None) -> str:
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {platform.system()}, Python {python}" + (f", {conditions}" if conditions else "")
