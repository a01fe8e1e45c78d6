"""Files and frames made into tables: what is in them is examined first, then written in batches."""

from fluss_lab.workbench.load.load_source import FileOptions, SourceOptions
from fluss_lab.workbench.load.table_load import LoadReport, LoadRequest, TableDefinition, load_table

__all__ = ["FileOptions", "LoadReport", "LoadRequest", "SourceOptions", "TableDefinition", "load_table"]
