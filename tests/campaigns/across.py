"""Random histories of one table for as long as one likes: ``python -m tests.campaigns.across --steps 2000 --seed 7``.

Each walk has a table and a cluster of its own. A difference ends the run with a short program, which ``--program`` runs
again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.spark.session.spark_session import spark_session
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.testing.seeds import seed_named
from tests.across.program import from_text
from tests.across.walk import SPARK_LOOKS, ProgramError, Walker, random_program
from tests.across.world import SORTS
from tests.crash.kinds import KINDS

#: Kinds that between them have all that matters to a reader.
USUAL = (
    "log", "log_parts", "log_edges", "pk", "pk_parts", "pk_prefix", "pk_versioned", "pk_tricky", "pk_edges",
)  # fmt: skip


def main() -> None:
    options = _arguments()
    spark = in_spark(spark_session(master="local[2,3]")) if options.spark else None
    if options.program is not None:
        try:
            Walker(options.kind[0], options.sort[0], spark=spark).run(from_text(options.program))
        except ProgramError as error:
            sys.exit(str(error))
        return
    seed = options.seed if options.seed is not None else seed_named("across", by_chance=True)
    rng, taken, begin_s, walks = random.Random(seed), Counter[str](), time.monotonic(), 0
    while sum(taken.values()) < options.steps:
        kind = rng.choice(options.kind)
        sort = rng.choice(options.sort)
        walker = Walker(kind, sort, spark=spark)
        program = random_program(
            rng,
            options.length,
            looks=options.looks,
            without=options.without,
            more=SPARK_LOOKS if options.spark else None,
        )
        try:
            walker.check(program, shrink_s=options.shrink)
        except AssertionError as error:
            sys.exit(f"walk {walks} of seed {seed}: {kind}, {sort}\n{error}")
        taken += walker.taken
        walks += 1
        print(
            f"{walks} walks, {sum(taken.values())} steps, {time.monotonic() - begin_s:.0f} s: {kind}, {sort}",
            flush=True,
        )
    print(f"no difference in {sum(taken.values())} steps: {dict(taken.most_common())}")


def in_spark(session: Any) -> Callable[[Any], Any]:
    """Return what makes Spark frames of scans and changelogs."""

    def frame(read: Any) -> Any:
        return changelog_to_spark(session, read) if isinstance(read, Changelog) else scan_to_spark(session, read)

    return frame


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="changes and looks in all")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), default=list(USUAL))
    parser.add_argument("--length", type=int, default=60, help="changes of one table")
    parser.add_argument("--looks", type=int, default=2, help="looks after each change")
    parser.add_argument("--without", nargs="*", default=[], help="steps and looks that are not taken")
    parser.add_argument(
        "--sort", nargs="+", choices=sorted(SORTS), default=["usual", "usual", "late", "equality", "small", "small"]
    )
    parser.add_argument("--spark", action="store_true", help="look with Spark too")
    parser.add_argument("--shrink", type=float, default=240.0, help="seconds for making a failing history short")
    parser.add_argument("--program", help="run this one instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
