"""Compaction, snapshot expiry, orphan files, inspection and relocation.

In: a lake table that its caller holds.
Out: a smaller table with the same rows, and a report.
"""
