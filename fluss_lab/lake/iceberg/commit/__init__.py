"""Commits: a round's files in one snapshot, or none.

In: write results, and the snapshot that the round was planned on.
Out: a committed snapshot with tiered offsets and replay tags.
"""
