"""Tables read in Spark: batches, streams and SQL.

In: options of a query, or a scan.
Out: input partitions for tasks, and Arrow batches out of them.
"""
