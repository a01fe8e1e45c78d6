"""The data source ``fluss``: tables as Spark reads and writes them by name, in batches and in streams.

``spark.read.format("fluss").option("table", "nyc.flights").load()``. A frame (or ``CREATE TEMPORARY VIEW v USING fluss
OPTIONS (table 'nyc.flights')``) takes its read point at its first query and keeps it, unless options pin one; ``CREATE TABLE
t USING fluss OPTIONS (table 'nyc.flights')``, and views over that, take a new one for each query, and are not written to. Spark
makes the objects here in processes of its own: on the driver's machine to plan, on executors to read. The first of them only makes the
object: this module imports what the others need when they need it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

    from fluss_lab.spark.source.source_options import SourceOptions

#: The name under which the data source is registered.
FORMAT: Final = "fluss"


class FlussDataSource(DataSource):
    """The data source; Spark makes it from options.

    Attributes:
        defaults: Where the cluster of the session is, for options that name none; see `registered`.
    """

    defaults: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name it is registered under."""
        return FORMAT

    def schema(self) -> T.StructType:
        """Return the schema of what the options ask for."""
        from fluss_lab.spark.source.batch_reader import source_schema
        from fluss_lab.spark.source.source_options import creation_metadata

        found = source_schema(self._parse())
        if "provider" in self._given:
            # CREATE TABLE: when the table is queried, Spark 4.3 gives its schema and none of its options.
            found.fields[0].metadata = creation_metadata(self._given)
        return found

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        from fluss_lab.spark.source.batch_reader import make_reader

        return make_reader(self._parse(schema), schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a stream."""
        from fluss_lab.spark.source.stream_source import FlussStreamReader

        return FlussStreamReader(self._parse(schema), schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from fluss_lab.spark.sink.table_sink import FlussBatchWriter

        return FlussBatchWriter(self._write_options(), schema, overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        from fluss_lab.spark.sink.table_sink import FlussStreamWriter

        return FlussStreamWriter(self._write_options(), schema, overwrite)

    def _parse(self, schema: T.StructType | None = None) -> SourceOptions:
        from fluss_lab.spark.source.source_options import PATH, TABLE, creation_options, parse_options

        given = self._given
        if schema is not None and schema.fields and not {TABLE, PATH} & {name.lower() for name in given}:
            given = creation_options(schema.fields[0].metadata) | given
        return parse_options(given, self.defaults)

    def _write_options(self) -> SourceOptions:
        """Return the options of a write: a frame's schema may have another table's, which it was read from."""
        from fluss_lab.errors import InvalidPropertyError
        from fluss_lab.spark.source.source_options import parse_options

        if not self._given:
            raise InvalidPropertyError(
                "format fluss: a write: expected the option table, as 'database.table', found no options: Spark passes on none of a "
                'CREATE TABLE ... USING fluss. Write a frame, as frame.write.format("fluss").mode("append").option("table", '
                "\"database.table\").save(), or insert into a CREATE TEMPORARY VIEW ... USING fluss OPTIONS (table 'database.table')"
            )
        return parse_options(self._given, self.defaults)


def source_type(defaults: Mapping[str, str]) -> type[FlussDataSource]:
    """Return the data source for a session that has a cluster of its own.

    Args:
        defaults: Options that name it, and client options; see `fluss_lab.spark.source.source_options`.
    """
    return type(FlussDataSource.__name__, (FlussDataSource,), {"defaults": dict(defaults)})
