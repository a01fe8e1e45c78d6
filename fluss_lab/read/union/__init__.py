"""The union read: rows of lake and log as one.

In: a read point, columns and a filter.
Out: Arrow batches by partition, bucket and offset.
"""
