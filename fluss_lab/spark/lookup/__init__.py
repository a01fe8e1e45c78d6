"""Lookup joins on Spark.

In: a frame or a SQL statement, and the source of a table whose rows are looked up by key.
Out: a frame with the looked-up columns, in whose plan stands how its rows are distributed and why.
"""
