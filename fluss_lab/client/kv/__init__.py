"""Reading primary-key tables from the cluster: lookups, scans and snapshots.

In: keys, or a bucket.
Out: live rows in Arrow.
"""
