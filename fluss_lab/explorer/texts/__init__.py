"""The texts of the explorer: cells, Python lines, and what a mask hides.

In come values, names and choices of a person; out go short visible texts, none of them of a hidden column.
"""
