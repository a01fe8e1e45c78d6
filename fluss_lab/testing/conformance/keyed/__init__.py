"""The conformance suite's tests of primary-key tables.

In: a lake format under test.
Out: tests of its rows, changes and histories.
"""
