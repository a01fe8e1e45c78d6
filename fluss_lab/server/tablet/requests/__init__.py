"""The calls of a tablet server, one module for each.

In: a decoded request, and the open buckets.
Out: an answer for each bucket of the request.
"""
