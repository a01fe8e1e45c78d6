"""How costs grow: with rows, buckets, partitions, snapshots and tables, each fitted by a curve."""

from benchmarks.growth.run import main, run

__all__ = ["main", "run"]
