"""Schedules: when jobs are due, what becomes of each due time, and the scheduler that sees to it.

In: jobs and their policies, the time. Out: runs, and records of the due times that were missed.
"""
