"""Damage of a bucket's log: found, reported, cut out, and repaired from what others hold.

In: a bucket's files, and what lake, remote storage and snapshots hold.
Out: the damaged ranges, and a log that begins behind them.
"""
