"""Filters: SQL text, pyarrow and pyiceberg expressions as one tree of predicates.

In: a condition as a person writes it, and a schema.
Out: predicates for Arrow, Iceberg, Spark and JSON.
"""
