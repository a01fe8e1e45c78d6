"""Rows and logs read back from the lake.

In: a snapshot, buckets, offsets and a filter.
Out: Arrow batches by bucket and offset, or the log's records.
"""
