"""The checks of an append: payloads and bodies validated, retries distinguished from new batches.

In: the payload of one request for one bucket.
Out: batches to append, or the answer to a retry.
"""
