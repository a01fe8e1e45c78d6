"""A second, tiny lake format: a folder of Parquet files and a JSON manifest per version of each table.

It is for tests, which show with it that nothing above the seam knows Iceberg, and a model for who writes a format: all of
`fluss_lab.lake`'s interfaces but maintenance, for log tables and primary-key tables, in a few short modules. It is not for
data of size: each manifest names every file, nothing is ever expired or compacted, and it needs a local file system.

It is installed under the name ``parquet``. Its one option is ``warehouse``, a path or ``file://`` URI::

    EmbeddedCluster(options={"datalake.format": "parquet", "datalake.parquet.warehouse": str(folder)})

* `table_versions`: versions of a table, and the one atomic step by which the next one is made.
* `parquet_writer`: a tiering round.
* `parquet_source`: rows and log read back.
* `parquet_storage`: where everything else comes from; tables made, altered, dropped; the rows of a primary-key table.
"""

from fluss_lab.testing.parquet_lake.parquet_storage import ParquetLakeStorage, read_state

__all__ = ["ParquetLakeStorage", "read_state"]
