"""Maintenance of a lake table by the holder of its tiering.

In: a table's options, or a person's request.
Out: lake maintenance under the table's lock, and a report.
"""
