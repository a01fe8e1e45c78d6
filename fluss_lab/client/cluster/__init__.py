"""The cluster as a client knows it: servers, leaders, offsets, retries.

In: a server's address.
Out: requests sent to whoever holds the bucket, again while it moves.
"""
