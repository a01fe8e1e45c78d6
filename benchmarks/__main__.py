"""``python -m benchmarks [name ...]``: run all benchmarks, or the named ones.

``against --base FOLDER`` compares two checkouts; ``growth`` alone takes options: ``growth --help``.
"""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    "importing",
    "first_minutes",
    "routes",
    "streaming",
    "servers",
    "kv",
    "large_tables",
    "lookup",
    "lookup_join",
    "durability",
    "recovery",
    "tiering",
    "commit",
    "memory",
    "returning",
    "reading",
    "lake_reading",
    "seeking",
    "paging",
    "explorer_pages",
    "manifests",
    "replay",
    "lake_rows",
    "lake_scanner",
    "freshness",
    "union",
    "spark_union",
    "spark_streaming",
    "spark_pace",
    "remote",
    "explorer_tail",
    "growth",
)


def main() -> int:
    """Run and print; return the exit code."""
    if sys.argv[1:2] == ["against"]:
        import_module("benchmarks.against").run(sys.argv[2:])
        return 0
    if sys.argv[1:2] == ["growth"]:
        found: int = import_module("benchmarks.growth").main(sys.argv[2:])
        return found
    chosen = [name.replace("-", "_") for name in sys.argv[1:]] or list(NAMES)
    if unknown := [name for name in chosen if name not in NAMES]:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in chosen:
        import_module(f"benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
