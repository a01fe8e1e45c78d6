"""What a log accepts: payloads and bodies checked, retries told apart from new batches.

In: the payload of one request for one bucket.
Out: batches to append, or the answer to a retry.
"""
