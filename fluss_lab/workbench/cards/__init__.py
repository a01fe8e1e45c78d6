"""The cards of labs, tables and lists: what a notebook shows of them, and what a program reads of the same objects.

In: a connection to the servers, which are not waited for. Out: HTML and text, rows as mappings, in Arrow or pandas.
"""
