"""The log of one bucket: what it accepts, segments, indexes, recovery, and what readers of it see.

In: batches as writers sent them, and offsets to read from.
Out: batches in offset order, and the offset up to which they are durable.
"""
