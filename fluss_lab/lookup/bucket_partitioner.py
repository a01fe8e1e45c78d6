"""The partitioner of a lookup join with one of Fluss's tables: each task gets rows of as few buckets as can be.

With *b* buckets and *n* tasks:

* *b* a multiple of *n*: bucket % *n*. A task has *b / n* buckets, and each bucket one task.
* *n* a multiple of *b*: each bucket has *n / b* tasks of its own, and a hash of all join keys chooses among them.
* otherwise the least common multiple of both is cut into slots, of which each bucket owns as many as the next, and each task
  too: every task gets the same share of the rows, and the buckets that its slots are of.

Source: FLIP-462; Fluss's ``SupportsLookupCustomShuffle`` of the Flink connector.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import gcd

import numpy as np
import pyarrow as pa

from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup.lookup_interfaces import InputDataPartitioner
from fluss_lab.model import TableDescriptor
from fluss_lab.model.bucketing import bucket_ids, bucket_part_ids


@dataclass(frozen=True)
class BucketPartitioner(InputDataPartitioner):
    """Assigns rows to tasks by the bucket that their join keys are of.

    Attributes:
        bucket_key: The table's; all of it is among the join keys.
        buckets: Of the table, or of each partition: rows of one bucket number are of one task in every partition.
        bucketing: ``iceberg`` or ``fluss``: the table's own function, as `TableDescriptor.bucketing` says.
    """

    bucket_key: tuple[str, ...]
    buckets: int
    bucketing: str

    @classmethod
    def of(cls, table: TableDescriptor) -> BucketPartitioner:
        """Return the partitioner of a table.

        Raises:
            UnsupportedError: It has no bucket key: its rows are in any bucket.
        """
        if not table.bucket_key:
            raise UnsupportedError(
                "a table without a bucket key has its rows in any bucket: no task could know its own"
            )
        return cls(table.bucket_key, table.buckets, table.bucketing)

    def to_json(self) -> str:
        """Return the attributes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BucketPartitioner:
        """Return the same partitioner."""
        value = json.loads(text)
        return cls(tuple(value["bucket_key"]), value["buckets"], value["bucketing"])

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        """Return the task of each row, which `buckets_of` has the row's bucket among its own.

        Equal join keys get the same task, in any process: all is computed from the keys' bytes.

        Cost: that of the table's bucket function, twice where several tasks share a bucket.
        """
        ids = bucket_ids(self.bucketing, [join_keys.column(name) for name in self.bucket_key], self.buckets)
        if self.buckets % num_partitions == 0:
            return pa.array(ids.to_numpy() % np.int32(num_partitions))
        shared, per_task = self._slots(num_partitions)
        slots = ids.to_numpy().astype(np.int64) * shared
        if shared > 1:
            slots += bucket_part_ids(join_keys.columns, shared)
        return pa.array((slots // per_task).astype(np.int32))

    def buckets_of(self, task: int, tasks: int) -> tuple[int, ...]:
        """Return the buckets whose rows a task of so many may get, ascending; never none.

        This is what a task must hold that answers from its own rows.
        """
        if self.buckets % tasks == 0:
            return tuple(range(task, self.buckets, tasks))
        shared, per_task = self._slots(tasks)
        return tuple(range(task * per_task // shared, ((task + 1) * per_task - 1) // shared + 1))

    def tasks_of(self, bucket: int, tasks: int) -> tuple[int, ...]:
        """Return the tasks, of so many, that may get rows of a bucket, ascending; never none."""
        if self.buckets % tasks == 0:
            return (bucket % tasks,)
        shared, per_task = self._slots(tasks)
        return tuple(range(bucket * shared // per_task, ((bucket + 1) * shared - 1) // per_task + 1))

    def _slots(self, tasks: int) -> tuple[int, int]:
        """Return how many slots each bucket owns, and how many each task."""
        common = gcd(self.buckets, tasks)
        return tasks // common, self.buckets // common
