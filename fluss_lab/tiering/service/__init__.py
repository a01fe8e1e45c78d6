"""Continuous tiering: tables by freshness, for days.

In: the tables that are due.
Out: rounds, and the status of each table.
"""
