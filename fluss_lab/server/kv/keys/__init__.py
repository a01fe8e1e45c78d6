"""Keys of a primary-key bucket: hashed, compared, grouped, and found by key or prefix.

In: columns of keys.
Out: log offsets of live rows.
"""
