"""The changelog: records of lake and log in offset order, as a range or as a stream.

In: where it starts and where it ends.
Out: Arrow batches of changes with offsets and times.
"""
