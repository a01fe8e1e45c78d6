"""The writer of log tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_lab.client.write.table_writer import TableWriter
from fluss_lab.client.write.write_requests import Appends
from fluss_lab.client.write.write_result import AppendResult
from fluss_lab.errors import UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.argument_checks import checked
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.values.row_input import record_batches

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


@checked
class AppendWriter(TableWriter):
    """Appends rows to one log table. See `TableWriter` for threads, order, outages and back-pressure.

    Args:
        connection: To the cluster.
        info: The table.

    Raises:
        UnsupportedError: It is a primary-key table.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo) -> None:
        if not info.is_log_table:
            raise UnsupportedError(
                f"{info.path} has a primary key: rows are not appended to it but upserted; call upsert, or open an "
                "upsert_writer"
            )
        super().__init__(connection, info, Appends(info))

    def append(self, rows: object) -> AppendResult:
        """Queue rows; return a future of where they went.

        Everything is checked before anything is sent: when this raises, no row was queued. Waits while the writer
        holds ``client.writer.buffer-memory-size`` unacknowledged bytes.

        Args:
            rows: See `fluss_lab.model.values.row_input.record_batches`. They must not be changed before the future is done.

        Raises:
            InvalidRecordError, InvalidPartitionError: The rows do not fit; the text names column, row and value.
            RecordTooLargeError: A row is larger than the cluster takes (``server.request-size-max``).
            PartitionNotFoundError: A row's partition does not exist, and creating it is switched off.
            ServerUnavailableError: A partition or writer id was needed, and no server answered.
        """
        return self._write(AppendResult(), record_batches(rows, self._info.schema), ChangeType.APPEND_ONLY)
