"""The log of one bucket: segments, indexes, recovery, and what readers of it see.

In: checked batches, and offsets to read from.
Out: batches in offset order, and the offset up to which they are durable.
"""
