"""A column of every type, and rows with nulls and edges in each: see `fluss_lab.testing.rows`."""

from fluss_lab.testing.rows import ALL_TYPES, all_types_row, all_types_rows

__all__ = ["ALL_TYPES", "all_types_row", "all_types_rows"]
