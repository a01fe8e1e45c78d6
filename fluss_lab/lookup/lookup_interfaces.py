"""The interfaces of a source that streams are joined with by lookups, and of the distribution that it wants for them.

They are those of FLIP-462 (`SupportsLookupCustomShuffle`, `InputDataPartitioner`, `TaskInfo`) and of Flink's lookup
sources, where they work row by row here by Arrow batches.

How to write a source
    1.  A `LookupTableSource` lives on the driver. It names its columns, and makes a `LookupFunction` for a join that has been
        planned.
    2.  A `LookupFunction` does the lookups, in tasks. It and the partitioner travel as text (`Portable`): their classes
        are imported by name where the tasks run, so they stand in a module that is installed there, and nothing is pickled.
    3.  Keys come without nulls, in the source's own types; equal keys may come several times in a batch.
    4.  A source whose rows are spread over shards, and that wants each task to see only its own, also is a
        `SupportsLookupCustomShuffle`. The planner tries; `LookupJoinContext.is_custom_shuffle_enabled` says whether it did.
    5.  A source whose rows change under a running stream, and that can read them as they were, has points:
        `LookupFunction.present_point`. A retried micro-batch then has the rows that it had.
    6.  Errors are those of `fluss_lab.errors`; what else is raised is reported with the name of the class that raised it.

`fluss_lab.testing.sharded_rows` is a small whole source to begin from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Which of a join's tasks this is (FLIP-462).

    Attributes:
        index: Its number, in ``[0, parallelism)``: with a custom shuffle, what the partitioner returned for its rows. Without any
            shuffle each task may get any row, and is 0 of 1.
        parallelism: How many tasks the join's input is distributed among.
        max_parallelism: The most that there can be; Spark does not change it under a join: the same as `parallelism`.
        attempt: How often it was tried before.
    """

    index: int
    parallelism: int
    max_parallelism: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """What a lookup function is opened with (FLIP-462).

    Attributes:
        task_info: Its task.
        point: The moment of which rows are looked up, as `LookupFunction.present_point` or the planner wrote it; None:
            the source has no points.
        folder: Where the function of the same task of an earlier micro-batch may have left something for this one, and
            may leave something for the next. On this machine, for its owner only, deleted with Spark's session; may be
            empty at any time. None: of a batch join, which has no next.
    """

    task_info: TaskInfo
    point: str | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class LookupJoinContext:
    """What was planned for a join; a source makes its function by it. FLIP-462 calls it ``LookupContext``; the lake has another.

    Attributes:
        join_keys: The source's columns that the stream's are equal to, in the source's order.
        columns: The source's columns that are wanted, in the order wanted.
        is_custom_shuffle_enabled: Whether each task gets the rows that the source's partitioner gives it, and no other. False
            unless that was really done.
        parallelism: How many tasks there are; None: not known, without a shuffle.
        is_stream: Whether the input is a stream, so that the function is opened once for each task of every micro-batch.
    """

    join_keys: tuple[str, ...]
    columns: tuple[str, ...]
    is_custom_shuffle_enabled: bool = False
    parallelism: int | None = None
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class LookupRows:
    """The rows found for a batch of keys.

    Attributes:
        positions: int64, ascending: for each row, the place in the batch of the key it was found for. A key without a
            row is not among them; one with several rows is so often.
        rows: The columns wanted, in the order wanted; a row for each position.
    """

    positions: npt.NDArray[np.int64]
    rows: pa.RecordBatch


class Portable(ABC):
    """What is made again from text where a task runs: by its class's name and what `to_json` returned."""

    @abstractmethod
    def to_json(self) -> str:
        """Return all that `from_json` needs, as JSON text without secrets that logs must not show."""

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Portable:
        """Return what `to_json` described."""


class InputDataPartitioner(Portable):
    """Assigns rows of a lookup join's input to tasks, by their join keys (FLIP-462)."""

    @abstractmethod
    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        """Return the partition of each row.

        Args:
            join_keys: The join keys alone, named and typed as the source's columns, in the source's order, without nulls.
            num_partitions: How many there are; at least 1.

        Returns:
            int32, not null, in ``[0, num_partitions)``, one for each row in the order of the rows.
        """

    def is_deterministic(self) -> bool:
        """Return whether the same join keys always get the same partition.

        If not, several tasks could have changes of one key, out of order: the planner then does not use the partitioner
        for an updating stream.
        """
        return True


class SupportsLookupCustomShuffle(ABC):
    """The ability of a `LookupTableSource` to say how the input of a join with it is to be distributed (FLIP-462)."""

    @abstractmethod
    def get_partitioner(self) -> InputDataPartitioner | None:
        """Return what assigns rows to tasks; None: the input stays distributed as it is.

        Asked only where the join keys cover `LookupTableSource.bucket_keys`.
        """


class LookupFunction(Portable):
    """Looks rows up, in a task: opened once, then asked batch by batch by one thread, then closed."""

    @abstractmethod
    def open(self, context: FunctionContext) -> None:
        """Prepare for `lookup`."""

    @abstractmethod
    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        """Return the rows of each key.

        Args:
            keys: The join keys, named and typed as the source's columns, in the source's order, without nulls. With a custom
                shuffle: of this task only.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of all that was opened, after a failure too. Twice is fine."""

    def present_point(self) -> str | None:
        """Return the present moment of the source as text, for `FunctionContext.point`; None: it has no points.

        Asked of a function that is not open, by one task of each micro-batch of a stream; the answer is kept in the
        stream's checkpoint before any row of the micro-batch is looked up.
        """
        return None

    def identity(self) -> str:
        """Return what distinguishes the source from another that has its name later, such as a table's id; empty: nothing.

        Asked of a function that is not open. It is kept with the points of a stream: a query goes on with the same source, or ends
        with an error.
        """
        return ""

    def secret(self) -> str:
        """Return what `to_json` must not show and the function needs in a task, a token for instance; empty: nothing.

        It is handed to the function that `from_json` made, by `use_secret`, before anything else is called.
        """
        return ""

    def use_secret(self, text: str) -> None:
        """Take what `secret` returned of the function that this one was made from."""

    def counters(self) -> Mapping[str, int]:
        """Return what is counted since `open`, by names such as ``rows_cached``, ``hits``, ``misses``, ``calls``."""
        return {}


class LookupTableSource(ABC):
    """A table whose rows are looked up by key, as the driver sees it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return what errors and plans call it."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns that can be joined on and looked up."""

    @abstractmethod
    def lookup_function(self, context: LookupJoinContext) -> LookupFunction:
        """Return the function of a planned join.

        Raises:
            UnsupportedError: Rows cannot be looked up by these keys; the text says by which.
        """

    def is_unique(self, join_keys: Sequence[str]) -> bool:
        """Return whether there is one row at most for each value of these columns. False where it is not known."""
        return False

    def bucket_keys(self) -> tuple[str, ...]:
        """Return the columns that the join keys must cover for the partitioner to be defined; none: any will do."""
        return ()

    def describe(self, function: LookupFunction) -> str:
        """Return in a few words how the function looks rows up, for `explain`."""
        return type(function).__name__
