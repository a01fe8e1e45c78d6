"""The cluster as a client knows it: servers, leaders, offsets, retries.

In: a server's address.
Out: requests sent to the leader of a bucket, retried while it moves.
"""
