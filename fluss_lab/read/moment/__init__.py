"""Moments of a table: read points, times, and what is still retained there.

In: now, a time, a snapshot id, or a read point.
Out: the offsets of every bucket, or an error that says what is retained.
"""
