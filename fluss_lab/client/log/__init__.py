"""Reading logs: subscriptions and ranges, wherever records are.

In: offsets in buckets.
Out: records in offset order, fetched ahead.
"""
