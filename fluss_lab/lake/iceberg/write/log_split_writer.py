"""The writer of one split: log records in, Parquet files with Iceberg's metrics out.

It runs in a task, maybe on another machine, and knows only its context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile

from fluss_lab.errors import InternalError
from fluss_lab.lake.format_interfaces import LakeWriter, WriterInitContext
from fluss_lab.lake.iceberg.write.data_file_writer import DataFileWriter
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult
from fluss_lab.lake.iceberg.write.write_target import BucketTarget, WriteTarget
from fluss_lab.records import LogRecords

#: Between the steps of writing a split: after each data file and each delete file that is finished.
FAILPOINTS: Final = ("lake.write.after_file", "lake.write.after_delete_file")


class IcebergLakeWriter(LakeWriter[IcebergWriteResult]):
    """Writes the records of a log table's split into Parquet files of its bucket's partition, ascending by offset.

    A file that is finished is durable, with the folders by which it is found: the cluster may drop what is in it once
    it is committed. A new file begins when one has reached ``write.target-file-size-bytes``.
    """

    def __init__(self, context: WriterInitContext) -> None:
        target = bucket_target(context)
        self._span = WrittenSpan(context)
        self._rows = DataFileWriter(target.table.file_io(), target)

    def write(self, records: LogRecords) -> None:
        """Take records of the bucket, ascending by offset across calls.

        Raises:
            InternalError: Their offsets do not ascend.
            UnsupportedError: A value has no form in Iceberg (a time beyond microseconds of 64 bits).
            StorageError: A file cannot be written.
        """
        self._span.add(records)
        self._rows.append(records)

    def complete(self) -> IcebergWriteResult:
        """Finish all files and return them; without records there are none.

        Raises:
            StorageError: A file cannot be written or made durable.
        """
        return self._span.result(files=self._rows.finish())

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._rows.abort()


def bucket_target(context: WriterInitContext) -> BucketTarget:
    """Return where the files of a split go.

    Raises:
        CorruptDataError: The context is of another release.
    """
    table = WriteTarget.from_json(context.lake_table)
    split = f"s{context.split_index:05d}"
    return BucketTarget.of(
        table, f"table {context.table.path}", context.partition, context.bucket.bucket, context.round_id, split
    )


@dataclass(slots=True)
class WrittenSpan:
    """Which records a split's writer has been given.

    Attributes:
        context: Of the writer.
        start_offset: The first offset; None before the first record.
        end_offset: The offset after the last one.
        max_timestamp_ms: Timestamp of the last record; -1 before the first.
    """

    context: WriterInitContext
    start_offset: int | None = None
    end_offset: int = 0
    max_timestamp_ms: int = -1

    def add(self, records: LogRecords) -> None:
        """Take note of records.

        Raises:
            InternalError: They are not after those before.
        """
        if self.start_offset is None:
            self.start_offset = self.end_offset = records.base_offset
        if records.base_offset < self.end_offset:
            raise InternalError(
                f"split {self.context.split_index} of {self.context.bucket}: expected offsets from {self.end_offset}, "
                f"found {records.base_offset}"
            )
        self.end_offset = records.next_offset
        self.max_timestamp_ms = int(records.timestamps_ms[-1].as_py())

    def result(
        self,
        *,
        files: tuple[DataFile, ...] = (),
        deletes: tuple[DataFile, ...] = (),
        unplaced: tuple[DataFile, ...] = (),
    ) -> IcebergWriteResult:
        """Return the write result of these records in some files."""
        context = self.context
        start = 0 if self.start_offset is None else self.start_offset
        return IcebergWriteResult(
            context.table.table_id,
            context.partition,
            context.bucket.bucket,
            start,
            self.end_offset,
            self.max_timestamp_ms,
            files,
            deletes,
            unplaced,
        )
