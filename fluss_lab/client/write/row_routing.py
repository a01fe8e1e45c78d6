"""The partition and bucket of each row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidPartitionError
from fluss_lab.model import TableDescriptor
from fluss_lab.model.bucketing import bucket_ids
from fluss_lab.model.names import partition_name

#: Without a bucket key, rows of one append are spread over buckets in runs of at least so many: shorter log batches
#: cost more than they balance (facts: 1k-row batches append at half the speed of 10k-row ones).
ROWS_PER_RUN_MIN: Final = 10_000

_Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one bucket, in the order given."""

    partition: str | None
    bucket: int
    rows: pa.RecordBatch


class Router:
    """Assigns rows of a table. Remembers, for tables without bucket key, whose turn it is. Not safe for threads.

    Args:
        turn: The bucket to begin with, where there is no key; any number.
    """

    def __init__(self, table: TableDescriptor, turn: int) -> None:
        self._table = table
        self._first = turn
        self._turns: dict[str | None, int] = {}

    def route(self, batches: Sequence[pa.RecordBatch]) -> list[Run]:
        """Return the rows by partition and bucket; within each the order is that of the input.

        Raises:
            InvalidPartitionError: A value of a partition column cannot be; the text names its row.
        """
        runs: list[Run] = []
        base = 0
        for batch in batches:
            names, codes = self._partitions(batch, base)
            runs.extend(self._runs(batch, names, codes))
            base += batch.num_rows
        return runs

    def bucket_of_first(self, batch: pa.RecordBatch) -> int:
        """Return the bucket of a batch's first row. The table has a bucket key."""
        if self._table.buckets == 1:
            return 0
        return int(self._buckets([batch.column(name) for name in self._table.bucket_key])[0])

    def buckets_of(self, batch: pa.RecordBatch) -> list[int]:
        """Return the bucket of each row of a batch. The table has a bucket key."""
        if self._table.buckets == 1:
            return [0] * batch.num_rows
        found: list[int] = self._buckets([batch.column(name) for name in self._table.bucket_key]).tolist()
        return found

    def _partitions(self, batch: pa.RecordBatch, base: int) -> tuple[list[str | None], _Ids | None]:
        """Return the names of the partitions in a batch, and which of them each row is of; None when there is one."""
        if not self._table.partitioned_by:
            return [None], None
        codes, values = _codes([batch.column(name) for name in self._table.partitioned_by])
        names: list[str | None] = []
        for code, value in enumerate(values):
            try:
                names.append(partition_name(value))
            except InvalidPartitionError as error:
                row = base + int(np.flatnonzero(codes == code)[0])
                raise InvalidPartitionError(f"row {row}: {error}; nothing was sent") from error
        return names, codes if len(names) > 1 else None

    def _runs(self, batch: pa.RecordBatch, names: list[str | None], codes: _Ids | None) -> Iterator[Run]:
        buckets, key = self._table.buckets, self._table.bucket_key
        if buckets > 1 and key:
            ids = self._buckets([batch.column(name) for name in key])
            groups = ids if codes is None else codes * buckets + ids
            for group, rows in _groups(batch, groups, len(names) * buckets):
                yield Run(names[group // buckets], group % buckets, rows)
            return
        parts = [(0, batch)] if codes is None else _groups(batch, codes, len(names))
        for code, rows in parts:
            yield from self._in_turn(names[code], rows)

    def _buckets(self, keys: list[pa.Array]) -> _Ids:
        found: _Ids = bucket_ids(self._table.bucketing, keys, self._table.buckets).to_numpy().astype(np.int64)
        return found

    def _in_turn(self, partition: str | None, batch: pa.RecordBatch) -> Iterator[Run]:
        buckets = self._table.buckets
        count = min(buckets, max(1, batch.num_rows // ROWS_PER_RUN_MIN))
        edges = [batch.num_rows * index // count for index in range(count + 1)]
        for start, stop in pairwise(edges):
            turn = self._turns.get(partition, self._first)
            self._turns[partition] = turn + 1
            yield Run(partition, turn % buckets, batch.slice(start, stop - start))


def _codes(columns: Sequence[pa.Array]) -> tuple[_Ids, list[tuple[str, ...]]]:
    """Return, for each row, which combination of values it has, and the combinations."""
    encoded = [pc.dictionary_encode(column) for column in columns]
    codes: _Ids = encoded[0].indices.to_numpy().astype(np.int64)
    if len(encoded) == 1:
        return codes, [(value,) for value in encoded[0].dictionary.to_pylist()]
    for each in encoded[1:]:
        codes = codes * len(each.dictionary) + each.indices.to_numpy()
    combined = pc.dictionary_encode(pa.array(codes))
    rows = [pc.index(combined.indices, code).as_py() for code in range(len(combined.dictionary))]
    return combined.indices.to_numpy().astype(np.int64), [
        tuple(column[row].as_py() for column in columns) for row in rows
    ]


def _groups(batch: pa.RecordBatch, ids: _Ids, groups: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each group that has any, in their order."""
    counts = np.bincount(ids, minlength=groups)
    present = np.flatnonzero(counts)
    if len(present) == 1:
        yield int(present[0]), batch
        return
    # A stable sort of 16-bit numbers is a radix sort.
    order = np.argsort(ids.astype(np.int16) if groups <= 1 << 15 else ids, kind="stable")
    ordered = batch.take(pa.array(order))
    start = 0
    for group in present.tolist():
        count = int(counts[group])
        yield group, ordered.slice(start, count)
        start += count
