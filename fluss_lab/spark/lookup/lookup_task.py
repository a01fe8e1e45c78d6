"""The lookups of a join in Spark's tasks: batches of join keys in, the rows that each key has out.

A task is known by the number that its rows were distributed by, not by Spark's number of the partition, which unions and
coalescing shift: the number comes with each row. Rows of several numbers in one task of Spark's are each looked up by a
function of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.functions import arrow_udf

from fluss_lab.errors import InternalError
from fluss_lab.lookup.contract_checks import check_partitions, partitions_of, rows_of, with_keys
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.lookup.lookup_interfaces import FunctionContext, LookupFunction, TaskInfo
from fluss_lab.lookup.portable import faults_named, function_of, partitioner_of
from fluss_lab.spark.lookup.batch_points import BATCH, CHECKPOINT, RUN, MicroBatch, kept_point, micro_batch
from fluss_lab.spark.lookup.task_counts import TaskCounts
from fluss_lab.spark.lookup.task_folder import task_folder
from fluss_lab.spark.source.spark_types import cast_batch

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812
    from pyspark.sql._typing import UserDefinedFunctionLike

#: What Spark gives a function of columns: an array, or several.
Columns: TypeAlias = "pa.Array | tuple[pa.Array, ...]"
Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartitionTask:
    """Computes the number of the task that each row of the stream goes to.

    Attributes:
        partitioner: As text.
        keys: How the stream's columns become join keys.
        parallelism: How many tasks there are.
    """

    partitioner: str
    keys: KeyCasts
    parallelism: int

    def run(self, batches: Iterator[Columns]) -> Iterator[pa.Array]:
        """Yield numbers in ``[0, parallelism)``, 0 for rows with a null among the keys."""
        partitioner = partitioner_of(self.partitioner)
        for columns in batches:
            keys = self.keys.cast(columns if isinstance(columns, tuple) else (columns,))
            yield pa.array(partitions_of(partitioner, keys, self.parallelism))


@dataclass(frozen=True)
class LookupTask:
    """Looks the rows of each key up.

    Attributes:
        source: The table's name.
        function: As text.
        secret: What the text does not have.
        keys: How the stream's columns become join keys.
        columns: Of the rows wanted, in the source's types.
        spark_columns: The same in Spark's types.
        is_unique: Whether a key has one row at most: the answer is that row, or null; else a list of rows.
        parallelism: How many tasks there are; None: the rows are not distributed, and do not come with a number.
        partitioner: What distributed them, as text, where it gives the same keys the same number always.
        has_points: Whether each micro-batch looks rows up at a point of its own.
        is_stream: Whether the rows are a stream's.
        join: Names the join among those of a query.
        counts: Where what was done is counted.
    """

    source: str
    function: str
    secret: str = field(repr=False)
    keys: KeyCasts
    columns: pa.Schema
    spark_columns: pa.Schema
    is_unique: bool
    parallelism: int | None
    partitioner: str | None
    has_points: bool
    is_stream: bool
    join: str
    counts: TaskCounts | None = None

    def run(self, batches: Iterator[Columns]) -> Iterator[pa.Array]:
        """Yield the rows of each batch of keys, as structs or lists of structs.

        Raises:
            FlussError: As the source or the partitioner says, or what is wrong with what they returned.
        """
        with _OpenFunctions(self) as functions:
            for given in batches:
                columns = given if isinstance(given, tuple) else (given,)
                numbers = None if self.parallelism is None else columns[-1]
                keys = self.keys.cast(columns if numbers is None else columns[:-1])
                yield self._answer(functions, keys, numbers)
            functions.report()

    def _answer(self, functions: _OpenFunctions, keys: pa.RecordBatch, numbers: pa.Array | None) -> pa.Array:
        known = with_keys(keys)
        asked: Numbers = np.flatnonzero(known.to_numpy(zero_copy_only=False))
        groups = self._groups(functions, keys, numbers, asked)
        found = []
        for number, positions in groups.items():
            function = functions.of(number)
            wanted = keys if len(positions) == keys.num_rows else keys.take(pa.array(positions))
            rows = rows_of(function.function, wanted, self.columns, is_unique=self.is_unique)
            function.count(len(positions), len(np.unique(rows.positions)))
            found.append((positions[rows.positions], rows.rows))
        functions.null_keys += keys.num_rows - len(asked)
        positions, rows_found = _join(found, self.columns)
        make = _structs if self.is_unique else _lists
        return make(cast_batch(rows_found, self.spark_columns), positions, keys.num_rows)

    def _groups(
        self, functions: _OpenFunctions, keys: pa.RecordBatch, numbers: pa.Array | None, asked: Numbers
    ) -> dict[int, Numbers]:
        """Return the rows of each number, after a look whether they have the numbers that they should have."""
        if numbers is None:
            return {0: asked} if len(asked) else {}
        if numbers.null_count:
            raise InternalError(f"lookup join with {self.source}: a row came without the number of its task")
        given = numbers.to_numpy()
        if functions.partitioner is not None:
            assert self.parallelism is not None
            check_partitions(functions.partitioner, keys, self.parallelism, given)
        of_asked = given[asked]
        present = np.unique(of_asked)
        if len(present) == 1:
            return {int(present[0]): asked}
        return {int(number): asked[of_asked == number] for number in present}


class _OpenFunction:
    """A function that is open, and what was done by it."""

    def __init__(self, function: LookupFunction, number: int, load_s: float) -> None:
        self.function = function
        self.number = number
        self._load_s = load_s
        self._rows = 0
        self._matched = 0

    def count(self, rows: int, matched: int) -> None:
        self._rows += rows
        self._matched += matched

    def counts(self) -> dict[str, Any]:
        """Return what was counted, the source's own counters among it."""
        with faults_named(self.function, "counters"):
            own = {str(name): int(value) for name, value in self.function.counters().items()}
        matched = {"rows": self._rows, "matched": self._matched, "unmatched": self._rows - self._matched}
        return {"task": self.number, "open_ms": round(1000 * self._load_s), **own, **matched}


class _OpenFunctions(ExitStack):
    """The functions that a task of Spark's has opened, by the numbers of the rows that it met; closed at its end."""

    def __init__(self, task: LookupTask) -> None:
        super().__init__()
        context = TaskContext.get()
        assert context is not None
        self._task = task
        self._context = context
        self._open: dict[int, _OpenFunction] = {}
        self._batch: MicroBatch | None = None
        self.null_keys = 0
        #: Made once: every batch is looked at.
        self.partitioner = None if task.partitioner is None else partitioner_of(task.partitioner)

    def of(self, number: int) -> _OpenFunction:
        """Return the function of a number, opened if it is the first row of that."""
        if (known := self._open.get(number)) is None:
            known = self._open[number] = self._open_function(number)
        return known

    def report(self) -> None:
        """Report what was done, at the end of the task."""
        counts = self._task.counts
        if counts is None:
            return
        head = {
            "batch": None if self._batch is None else self._batch.batch_id,
            "partition": self._context.partitionId(),
            "attempt": self._context.attemptNumber(),
        }
        done: list[dict[str, Any]] = [each.counts() for each in self._open.values()]
        if self.null_keys and not done:
            done = [{"task": 0, "open_ms": 0, "rows": 0, "matched": 0, "unmatched": 0}]
        for each in done:
            # A row of null keys goes to task 0, and to no function.
            each["null_keys"] = self.null_keys if each is done[0] else 0
            counts.add((self._context.taskAttemptId(), each["task"]), head | each)

    def _open_function(self, number: int) -> _OpenFunction:
        task = self._task
        begin_s = time.monotonic()
        function = function_of(task.function)
        if task.secret:
            function.use_secret(task.secret)
        parallelism = 1 if task.parallelism is None else task.parallelism
        info = TaskInfo(number, parallelism, parallelism, self._context.attemptNumber())
        point, folder = None, None
        if task.is_stream:
            batch = self._batch = self._batch or self._micro_batch()
            point = kept_point(batch, task.source, function) if task.has_points else None
            place = number if task.parallelism is not None else self._context.partitionId()
            folder = self.enter_context(task_folder(batch.run, task.join, place))
        self.callback(function.close)
        with faults_named(function, "open"):
            function.open(FunctionContext(info, point, folder))
        return _OpenFunction(function, number, time.monotonic() - begin_s)

    def _micro_batch(self) -> MicroBatch:
        properties = {name: self._context.getLocalProperty(name) for name in (CHECKPOINT, RUN, BATCH)}
        return micro_batch(properties, self._task.source)


def _join(found: list[tuple[Numbers, pa.RecordBatch]], schema: pa.Schema) -> tuple[Numbers, pa.RecordBatch]:
    """Return the rows found by several functions as one batch, positions ascending."""
    if not found:
        return np.zeros(0, np.int64), pa.RecordBatch.from_arrays(
            [pa.array([], each.type) for each in schema], schema=schema
        )
    if len(found) == 1:
        return found[0]
    positions = np.concatenate([each for each, _ in found])
    order = np.argsort(positions, kind="stable")
    arrays = [
        pa.concat_arrays([rows.column(index) for _, rows in found]).take(pa.array(order))
        for index in range(len(schema))
    ]
    return positions[order], pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _structs(rows: pa.RecordBatch, positions: Numbers, count: int) -> pa.Array:
    """Return the row of each position, null where there is none."""
    if len(positions) == count:
        return pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    at = np.full(count, -1, np.int64)
    at[positions] = np.arange(len(positions))
    is_missing = pa.array(at < 0)
    taken = [column.take(pa.array(at, mask=at < 0)) for column in rows.columns]
    return pa.StructArray.from_arrays(taken, fields=list(rows.schema), mask=is_missing)


def _lists(rows: pa.RecordBatch, positions: Numbers, count: int) -> pa.Array:
    """Return the rows of each position."""
    ends = np.cumsum(np.bincount(positions, minlength=count))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    )


def column_function(
    run: Callable[[Iterator[Columns]], Iterator[pa.Array]], name: str, inputs: int, answer: T.DataType
) -> UserDefinedFunctionLike:
    """Return a function of Spark's columns, under a name that plans show.

    Args:
        run: `PartitionTask.run` or `LookupTask.run`.
        name: Without secrets.
        inputs: How many columns it is given.
        answer: The type of its answers.
    """

    def call(batches: Iterator[Columns]) -> Iterator[pa.Array]:
        yield from run(batches)

    call.__name__ = name
    # By its annotations Spark knows that it is given batch after batch.
    given = pa.Array if inputs == 1 else tuple[pa.Array, ...]
    call.__annotations__ = {"batches": Iterator[given], "return": Iterator[pa.Array]}  # type: ignore[valid-type]
    make: Any = arrow_udf
    made: UserDefinedFunctionLike = make(call, answer)
    return made
