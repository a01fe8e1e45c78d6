"""The coordinator's metadata on disk: one SQLite file and its checksums.

In: changes of databases, tables, partitions and assignments.
Out: rows that are durable and checked.
"""
