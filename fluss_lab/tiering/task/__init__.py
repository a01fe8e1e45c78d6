"""The tasks of a round: one split each, in any process.

In: a split as JSON.
Out: a write result as JSON, and progress on the way.
"""
