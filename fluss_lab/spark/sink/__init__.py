"""Tables written from Spark, each batch exactly once.

In: a frame's rows and a checkpoint.
Out: rows in the table, and notes by which another process goes on.
"""
