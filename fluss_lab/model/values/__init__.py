"""Values of rows: Python, pandas and Arrow values in a table's own types.

In: rows as a person has them, and a schema.
Out: Arrow record batches and pandas frames, or an error that names the cell.
"""
