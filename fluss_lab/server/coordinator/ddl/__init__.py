"""Databases, tables and partitions created, altered and dropped, with their lake tables.

In: requests of clients, and the clock.
Out: changed metadata, or an error and no change.
"""
