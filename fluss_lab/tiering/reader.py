"""The split reader: exactly the records of a split, in order, or an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fluss_lab.client import Connection
from fluss_lab.client.ranges import read_range
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.tiering.splits import TieringLogSplit


class TieringSplitReader:
    """Reads one split from the cluster. Iterate it once.

    Every offset of the split comes exactly once and in order; a record that is missing, or there twice, is an error,
    because nobody would notice it later.

    Attributes:
        position: Offset after the last record given out.
        max_timestamp_ms: Timestamp of that record; -1 before the first.
    """

    def __init__(self, connection: Connection, table: TableInfo, split: TieringLogSplit) -> None:
        self._connection = connection
        self._table = table
        self._split = split
        self.position = split.starting_offset
        self.max_timestamp_ms = -1

    def __iter__(self) -> Iterator[LogRecords]:
        """Yield the records.

        Raises:
            OffsetOutOfRangeError: The cluster does not hold them all (any more).
            CorruptDataError: What it holds has a gap or a duplicate, or fails its checks.
        """
        split = self._split
        bucket, start, stop = split.table_bucket, split.starting_offset, split.stopping_offset
        # Never from the lake: what is there has been tiered.
        for records in whole(read_range(self._connection, self._table, bucket, start, stop, lake=False), split):
            self.position = records.next_offset
            self.max_timestamp_ms = int(records.timestamps_ms[-1].as_py())
            yield records


def whole(runs: Iterable[LogRecords], split: TieringLogSplit) -> Iterator[LogRecords]:
    """Yield runs of records, seen to be all of a split's, each once and in order.

    Raises:
        CorruptDataError: They are not.
    """
    position = split.starting_offset
    for records in runs:
        expected = np.arange(position, position + len(records), dtype=np.int64)
        if not np.array_equal(records.offsets.to_numpy(), expected):
            raise CorruptDataError(
                f"{split}: expected offsets [{position}, {position + len(records)}), found {len(records)} between "
                f"{records.base_offset} and {records.next_offset}"
            )
        position = records.next_offset
        yield records
    if position != split.stopping_offset:
        raise CorruptDataError(
            f"{split}: expected records up to offset {split.stopping_offset}, found them up to {position}"
        )
