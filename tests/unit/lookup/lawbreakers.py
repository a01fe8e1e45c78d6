"""Lookup sources that each break one promise, so that the conformance suite can be shown to notice."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fluss_lab.lookup import FunctionContext, InputDataPartitioner, LookupJoinContext, LookupRows, TaskInfo
from fluss_lab.testing.sharded_rows import ShardedRows, ShardedRowsFunction, ShardPartitioner, shards_of


class Right(ShardedRowsFunction):
    """Breaks nothing."""


def _changed(found: LookupRows, at: Any) -> LookupRows:
    at = np.array(at, np.int64)
    return LookupRows(found.positions[at], found.rows.take(pa.array(at)))


class Backwards(Right):
    """Answers the last key first."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        return _changed(found, np.arange(len(found.positions))[::-1])


class Misaligned(Right):
    """Has the right rows at each other's positions."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        return LookupRows(found.positions, _changed(found, np.arange(len(found.positions))[::-1]).rows)


class OnceEach(Right):
    """Answers equal keys of a batch once."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found, kept = super().lookup(keys), []
        seen: dict[str, int] = {}
        for row, position in enumerate(found.positions.tolist()):
            if seen.setdefault(str(keys.slice(position, 1).to_pylist()), position) == position:
                kept.append(row)
        return _changed(found, kept)


class FirstRow(Right):
    """Returns one row of each key, however many there are."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        return _changed(found, np.unique(found.positions, return_index=True)[1])


class NullRows(Right):
    """Answers keys without a row by a row of nulls."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        missing = np.setdiff1d(np.arange(keys.num_rows), found.positions)
        nulls = pa.RecordBatch.from_arrays(
            [pa.nulls(len(missing), f.type) for f in found.rows.schema], schema=found.rows.schema
        )
        positions, rows = np.concatenate([found.positions, missing]), pa.concat_batches([found.rows, nulls])
        order = np.argsort(positions, kind="stable")
        return LookupRows(positions[order], rows.take(pa.array(order)))


class NoEmptyBatch(Right):
    """Fails without keys."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        keys.column(0)[0]
        return super().lookup(keys)


class NoRowNoColumns(Right):
    """Forgets its columns where it finds nothing."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        return found if found.rows.num_rows else LookupRows(found.positions, pa.record_batch({}))


class SortedColumns(Right):
    """Returns the columns in an order of its own."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        found = super().lookup(keys)
        return LookupRows(found.positions, found.rows.select(sorted(found.rows.schema.names)))


class Forgetful(Right):
    """Looks only at the last batch's first half after the first one."""

    _asked = 0

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        self._asked += 1
        found = super().lookup(keys)
        return _changed(found, np.flatnonzero(found.positions % 2 == 0)) if self._asked > 3 else found


class ClosesOnce(Right):
    """Cannot be closed again."""

    _closed = False

    def close(self) -> None:
        if self._closed:
            raise RuntimeError("closed already")
        self._closed = True
        super().close()


class CountsInHalves(Right):
    """Counts what it cannot count."""

    def counters(self) -> Mapping[str, Any]:
        return {name: count / 2 for name, count in super().counters().items()}


class LeavesOut(Right):
    """Does not write down what columns are wanted."""

    def to_json(self) -> str:
        value = json.loads(super().to_json())
        return json.dumps({**value, "columns": value["columns"][:1]})


class ShowsSecret(Right):
    """Shows its secret to whoever sees the text."""

    def secret(self) -> str:
        return 'open "sesame"'

    def to_json(self) -> str:
        return json.dumps({**json.loads(super().to_json()), "token": self.secret()})

    @classmethod
    def from_json(cls, text: str) -> Any:
        value = json.loads(text)
        value.pop("token", None)
        return cls(**value)


class NeedsThisProcess(Right):
    """Works only where it was planned."""

    _planned: ClassVar[set[str]] = set()

    def to_json(self) -> str:
        self._planned.add(super().to_json())
        return super().to_json()

    def open(self, context: FunctionContext) -> None:
        if not self._planned:
            raise RuntimeError("nothing was planned")
        super().open(context)


class NextShards(Right):
    """Loads the shards of its neighbour."""

    def open(self, context: FunctionContext) -> None:
        task = context.task_info
        if self.own_only:
            task = TaskInfo((task.index + 1) % task.parallelism, task.parallelism, task.max_parallelism, 0)
        super().open(FunctionContext(task, context.point, context.folder))

    def _check_own(self, keys: pa.RecordBatch) -> None:
        """Answer all the same."""


class AlwaysOwnOnly(Right):
    """Loads its own shards without having been given their keys only."""

    def open(self, context: FunctionContext) -> None:
        self._own_only = True
        super().open(context)

    def _check_own(self, keys: pa.RecordBatch) -> None:
        """Answer all the same."""


class NewestOnly(Right):
    """Has points, and looks at the newest rows whatever the point."""

    def open(self, context: FunctionContext) -> None:
        super().open(FunctionContext(context.task_info, self.present_point(), context.folder))


class NumberedPoint(Right):
    """Has points that are no text."""

    def present_point(self) -> Any:
        return int(super().present_point())


class KeepsForever(Right):
    """Takes what an earlier function left for what is there now."""

    def open(self, context: FunctionContext) -> None:
        kept = None if context.folder is None else context.folder / "point"
        point = context.point
        if kept is not None:
            if kept.exists():
                point = kept.read_text()
            kept.write_text(point or "")
        super().open(FunctionContext(context.task_info, point, context.folder))


class NeedsTheFolder(Right):
    """Counts on what it left."""

    def open(self, context: FunctionContext) -> None:
        if context.folder is not None:
            kept = context.folder / "shards"
            if context.point != "1" and not kept.exists():
                raise FileNotFoundError(kept)
            kept.touch()
        super().open(context)


class OtherEachTime(Right):
    """Is another source every time that it is asked."""

    def identity(self) -> str:
        return secrets.token_hex()


class _Partitioner(ShardPartitioner):
    """Wrong in one way."""

    def shards(self, keys: pa.RecordBatch) -> Any:
        return shards_of(keys, self._shard_by, self._shards)


class OutOfRange(_Partitioner):
    """Knows of no number of tasks."""

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return pa.array(self.shards(join_keys))


class ByChance(_Partitioner):
    """Says that it is deterministic."""

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return pa.array([secrets.randbelow(num_partitions) for _ in range(join_keys.num_rows)], pa.int32())


class ByAdmittedChance(ByChance):
    """Says that it is not: no law is broken, but it is not for a stream of updates."""

    def is_deterministic(self) -> bool:
        return False


class ByPosition(_Partitioner):
    """Goes by where in its batch a row is."""

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return pa.array(np.arange(join_keys.num_rows, dtype=np.int32) % num_partitions)


class ByPythonsHash(_Partitioner):
    """Is another one in every process."""

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return pa.array([hash(str(row)) % num_partitions for row in join_keys.to_pylist()], pa.int32())


class LongNumbers(_Partitioner):
    """Returns numbers of another type."""

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return super().partition(join_keys, num_partitions).cast(pa.int64())


class Lawbreaker(ShardedRows):
    """A source with a function, a partitioner or words that break a promise."""

    function: type[ShardedRowsFunction] = Right
    partitioner: type[ShardPartitioner] = ShardPartitioner
    says: ClassVar[Mapping[str, Any]] = {}

    def lookup_function(self, context: LookupJoinContext) -> ShardedRowsFunction:
        return self.function.from_json(super().lookup_function(context).to_json())

    def get_partitioner(self) -> InputDataPartitioner | None:  # type: ignore[override]
        return self.partitioner(self._about.shard_by, self._about.shards)

    @property
    def name(self) -> str:
        return str(self.says.get("name", super().name))

    def is_unique(self, join_keys: Any) -> bool:
        return bool(self.says.get("is_unique", super().is_unique(join_keys)))

    def bucket_keys(self) -> tuple[str, ...]:
        keys: tuple[str, ...] = self.says.get("bucket_keys", super().bucket_keys())
        return keys

    def describe(self, function: Any) -> str:
        return str(self.says.get("describe", super().describe(function)))
