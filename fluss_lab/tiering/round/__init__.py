"""One tiering round of one table, from planning to both commits.

In: a table that the coordinator gave out.
Out: a lake snapshot that coordinator and lake agree on, and a report.
"""
