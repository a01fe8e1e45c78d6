"""The writers of a tiering task: data files and delete files of one split.

In: the records of a split, and a target.
Out: a write result that travels to the committer as JSON.
"""
