"""Key-value snapshots of one bucket on disk.

In: a store as it is at one log offset.
Out: files from which the store is restored.
"""
