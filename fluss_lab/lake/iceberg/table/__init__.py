"""The lake table itself: schema, partitioning, properties, and access to its catalog.

In: a Fluss table's definition.
Out: an Iceberg table that fits it, created, altered or dropped.
"""
