"""A client's connection to a cluster: what it opens over its calls: writers, lookups, scans, administration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.cluster_client import ClusterClient
from fluss_lab.model import TableBucket, TableInfo, TablePath
from fluss_lab.model.argument_checks import check_arguments

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_lab.client.admin import Admin
    from fluss_lab.client.kv.kv_scan import KvScan
    from fluss_lab.client.kv.lookuper import Lookuper
    from fluss_lab.client.log.log_scanner import LogScanner
    from fluss_lab.client.write.table_writer import AppendWriter
    from fluss_lab.client.write.upsert_writer import UpsertWriter


@check_arguments
class Connection(ClusterClient):
    """A connection to a cluster. Threads may share it; a forked process uses its own channels.

    Arguments, errors and how calls are repeated are those of `ClusterClient`.
    """

    def admin(self) -> Admin:
        """Return what creates, alters, lists and drops."""
        from fluss_lab.client.admin import Admin

        return Admin(self)

    def append_writer(self, path: TablePath | str) -> AppendWriter:
        """Return a new writer of a log table. Close it when done.

        Raises:
            TableNotFoundError: There is no such table.
            UnsupportedError: It is a primary-key table.
        """
        from fluss_lab.client.write.table_writer import AppendWriter

        return AppendWriter(self, self.table_info(TablePath.parse(path)))

    def upsert_writer(self, path: TablePath | str, columns: Sequence[str] | None = None) -> UpsertWriter:
        """Return a new writer of a primary-key table. Close it when done.

        Args:
            path: The table.
            columns: For a partial update: the columns that the rows have, the primary key's among them; None: all.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemaError: A column does not exist, is given twice, or one of the key is left out.
            UnsupportedError: It is a log table, or one that cannot be updated partially.
        """
        from fluss_lab.client.write.upsert_writer import UpsertWriter

        return UpsertWriter(self, self.table_info(TablePath.parse(path)), columns)

    def lookuper(self, path: TablePath | str, columns: Sequence[str | int] | None = None) -> Lookuper:
        """Return what finds rows of a primary-key table by their keys. Close it when done.

        Args:
            path: The table.
            columns: Names or positions of the columns wanted, in the order wanted; None: all.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemaError: It has no such column.
            UnsupportedError: It is a log table.
        """
        from fluss_lab.client.kv.lookuper import Lookuper

        return Lookuper(self, self.table_info(TablePath.parse(path)), columns)

    def scan_kv(
        self,
        info: TableInfo,
        bucket: TableBucket,
        columns: Sequence[str | int] | None = None,
        start_offset: int = 0,
        begin_ms: int | None = None,
    ) -> KvScan:
        """Return all live rows of one bucket of a primary-key table at one moment; nothing is read yet.

        Args:
            info: The table.
            bucket: Which bucket.
            columns: Names or positions of the columns wanted, in the order wanted; None: all.
            start_offset: Of rows whose last change has a smaller offset none is wanted.
            begin_ms: How long its begin is tried, where the server has no place for it or not its rows; 0: once. None:
                ``client.request-timeout``.

        Raises:
            InvalidSchemaError: There is no such column.
            UnsupportedError: It is a log table.
        """
        from fluss_lab.client.kv.kv_scan import KvScan

        return KvScan(self, info, bucket, columns, start_offset, begin_ms)

    def limit_scan(self, path: TablePath | str, limit: int, partitions: Sequence[str] | None = None) -> pa.Table:
        """Return up to `limit` rows of what the cluster holds of a table: to look at, not to count on.

        Of a primary-key table any live rows; of a log table the latest records, in the order of time.

        Args:
            path: The table.
            limit: How many rows at most.
            partitions: Names of the partitions to look in; None: all.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is none such.
            InvalidPartitionError: Partitions of a table that has none.
            InvalidRequestError: The limit is negative, or above what the servers allow.

        Cost: a call a bucket; of a primary-key table only until there are enough rows.
        """
        from fluss_lab.client.kv.kv_scan import limit_scan

        return limit_scan(self, self.table_info(TablePath.parse(path)), limit, partitions)

    def log_scanner(
        self, path: TablePath | str, projection: Sequence[str | int] | None = None, *, previous_offsets: bool = False
    ) -> LogScanner:
        """Return a new scanner of a table's log. Close it when done.

        Args:
            path: The table.
            projection: Names or positions of the columns wanted, in the order wanted; None: all.
            previous_offsets: Of a primary-key table: whether records from the cluster have their previous offsets.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemaError: It has no such column.
        """
        from fluss_lab.client.log.log_scanner import LogScanner

        return LogScanner(self, self.table_info(TablePath.parse(path)), projection, previous_offsets=previous_offsets)
