"""A lab's folders on disk: whose they are, who may write, how much room is left, and what in them is damaged.

In: paths of the lab and of remote storage.
Out: folders that are the lab's own, or an error; findings.
"""
