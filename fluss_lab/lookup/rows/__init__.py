"""Rows that a task of a lookup join holds: by their keys, at a read point, within bounds, from one micro-batch to the next.

In: rows in Arrow, changes since a read point.
Out: the rows of many keys at a time.
"""
