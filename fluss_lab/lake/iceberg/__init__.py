"""Apache Iceberg as the lake, through pyiceberg. The only package that imports pyiceberg to write."""

from fluss_lab.lake.iceberg.storage import IcebergLakeStorage

__all__ = ["IcebergLakeStorage"]
