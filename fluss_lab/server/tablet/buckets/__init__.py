"""The buckets that a tablet server holds: opened, kept in step with their logs, described.

In: the coordinator's requests to hold a bucket.
Out: open buckets, their rows and key-value snapshots, and their status.
"""
