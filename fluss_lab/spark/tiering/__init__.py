"""Tiering tasks on Spark.

In: the tasks of a round as bytes.
Out: their results as bytes, and progress by an accumulator.
"""
