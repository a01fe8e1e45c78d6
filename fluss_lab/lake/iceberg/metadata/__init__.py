"""Snapshots and manifests: read, and put together.

In: table metadata, manifest lists and manifests.
Out: live files by bucket, and new snapshots ready to be committed.
"""
