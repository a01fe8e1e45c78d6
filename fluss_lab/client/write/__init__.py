"""Writing: rows routed, batched, sent and acknowledged, idempotently.

In: rows of a table.
Out: acknowledged offsets, or what of the rows is not settled.
"""
