"""Repair: lake and cluster brought to fit each other, damaged logs cut and refilled.

In: a table whose lake or logs do not fit.
Out: a plan that a person confirms, and what was done.
"""
