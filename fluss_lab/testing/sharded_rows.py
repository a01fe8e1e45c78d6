"""A small lookup source of a third party: rows in Parquet files, sharded by a rule of its own, in versions that stay readable.

It is for tests, which show with it that nothing above `fluss_lab.lookup` knows Fluss's tables, and a model for who writes a
source: all that FLIP-462 asks for, in one module. It is not for data of size: each task keeps its rows in a dict.

Layout of a folder::

    rows.json                   how the rows are sharded, which columns are unique, and the newest version
    <version>/<shard>.parquet   the rows of a shard in that version, which never change

One is made, and joined with, so::

    source = ShardedRows.create(folder, planes, shard_by=["tailnum"], shards=4, unique=["tailnum"])
    lab.lookup_join(flights, source, on="tailnum", shuffle=True)
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_lab.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    NotFoundError,
    UnsupportedError,
)
from fluss_lab.files import write_json_atomic
from fluss_lab.lookup import (
    FunctionContext,
    InputDataPartitioner,
    LookupFunction,
    LookupJoinContext,
    LookupRows,
    LookupTableSource,
    SupportsLookupCustomShuffle,
)

_ABOUT: Final = "rows.json"


@dataclass(frozen=True)
class _About:
    """What ``rows.json`` says."""

    shard_by: tuple[str, ...]
    shards: int
    unique: tuple[str, ...]
    newest: int
    identity: str

    @staticmethod
    def of(folder: Path) -> _About:
        try:
            value = json.loads((folder / _ABOUT).read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError(f"{folder}: no sharded rows; write them by ShardedRows.create") from error
        keys, unique = tuple(value["shard_by"]), tuple(value["unique"])
        return _About(keys, value["shards"], unique, value["newest"], value["identity"])


def shards_of(keys: pa.RecordBatch, shard_by: Sequence[str], shards: int) -> npt.NDArray[np.int32]:
    """Return the shard of each row: a checksum of its values as text. Nulls count like one more value."""
    mixed = np.zeros(keys.num_rows, np.uint64)
    for name in shard_by:
        encoded = pc.dictionary_encode(keys.column(name))
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        sums = np.array([*(zlib.crc32(text.encode()) for text in texts), 0], np.uint64)
        mixed = mixed * np.uint64(31) + sums[pc.fill_null(encoded.indices, len(texts)).to_numpy()]
    return (mixed % np.uint64(shards)).astype(np.int32)


class ShardPartitioner(InputDataPartitioner):
    """Gives rows of shard *s* to task *s* modulo the number of tasks."""

    def __init__(self, shard_by: Sequence[str], shards: int) -> None:
        self._shard_by, self._shards = tuple(shard_by), shards

    def to_json(self) -> str:
        """Return shard keys and number of shards."""
        return json.dumps({"shard_by": self._shard_by, "shards": self._shards})

    @classmethod
    def from_json(cls, text: str) -> ShardPartitioner:
        """Return the same partitioner."""
        return cls(**json.loads(text))

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        """Return the task of each row's shard."""
        return pa.array(shards_of(join_keys, self._shard_by, self._shards) % np.int32(num_partitions))


class ShardedRowsFunction(LookupFunction):
    """Looks rows up in the shards of its task, or in all of them, which `open` loads."""

    def __init__(
        self, folder: str, join_keys: Sequence[str], columns: Sequence[str], own_only: bool, version: int | None
    ) -> None:
        self._folder, self._version = Path(folder), version
        self._join_keys, self._columns, self._own_only = tuple(join_keys), tuple(columns), own_only
        self._rows: pa.RecordBatch | None = None
        self._index: dict[tuple[Any, ...], list[int]] = {}
        self._counters: dict[str, int] = {}

    def to_json(self) -> str:
        """Return what was planned."""
        return json.dumps(
            {
                "folder": str(self._folder),
                "join_keys": self._join_keys,
                "columns": self._columns,
                "own_only": self._own_only,
                "version": self._version,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ShardedRowsFunction:
        """Return the same function, not opened."""
        return cls(**json.loads(text))

    @property
    def own_only(self) -> bool:
        """Return whether a task loads its own shards only."""
        return self._own_only

    def present_point(self) -> str:
        """Return the newest version."""
        return str(_About.of(self._folder).newest)

    def identity(self) -> str:
        """Return what the folder was given when it was made."""
        return _About.of(self._folder).identity

    def open(self, context: FunctionContext) -> None:
        """Load the rows of a version: that of the context, else that of the plan, else the newest."""
        about, task = _About.of(self._folder), context.task_info
        version = int(context.point) if context.point is not None else self._version or about.newest
        own = [s for s in range(about.shards) if not self._own_only or s % task.parallelism == task.index]
        self._about, self._task, self._own = about, task, own
        wanted = list(dict.fromkeys([*self._join_keys, *self._columns]))
        none = _rows_of_shard(self._folder, version, 0, wanted).slice(0, 0)
        loaded = [_rows_of_shard(self._folder, version, shard, wanted) for shard in own]
        self._rows = _one_batch(pa.concat_tables([none, *loaded]))
        self._index = {}
        for row, key in enumerate(_tuples(self._rows, self._join_keys)):
            self._index.setdefault(key, []).append(row)
        self._counters = {"rows_cached": self._rows.num_rows, "shards": len(own), "hits": 0, "misses": 0}

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        """Return the rows of each key.

        Raises:
            InvalidRequestError: It is not open; or a key is of a shard that another task has, whose rows this one cannot know.
        """
        if self._rows is None:
            raise InvalidRequestError(f"{self._folder}: the lookup function is not open")
        self._check_own(keys)
        found = [self._index.get(key, []) for key in _tuples(keys, self._join_keys)]
        positions = np.repeat(np.arange(len(found)), [len(rows) for rows in found]).astype(np.int64)
        rows = pa.array([row for rows in found for row in rows], pa.int64())
        hits = sum(map(bool, found))
        self._counters["hits"] += hits
        self._counters["misses"] += len(found) - hits
        return LookupRows(positions, self._rows.select(self._columns).take(rows))

    def close(self) -> None:
        """Forget the rows."""
        self._rows, self._index = None, {}

    def counters(self) -> Mapping[str, int]:
        """Return rows cached, shards loaded, hits and misses."""
        return dict(self._counters)

    def _check_own(self, keys: pa.RecordBatch) -> None:
        if not self._own_only:
            return
        shards = shards_of(keys, self._about.shard_by, self._about.shards)
        if (wrong := np.flatnonzero(~np.isin(shards, self._own))).size:
            raise InvalidRequestError(
                f"{self._folder}: row {wrong[0]} is of shard {shards[wrong[0]]}, expected one of {self._own} in task "
                f"{self._task.index} of {self._task.parallelism}"
            )


class ShardedRows(LookupTableSource, SupportsLookupCustomShuffle):
    """The rows of a folder as a source. `create` makes such a folder, `put` writes its next version."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self._about = _About.of(self._folder)

    @classmethod
    def create(
        cls, folder: Path | str, rows: pa.Table, *, shard_by: Sequence[str], shards: int, unique: Sequence[str] = ()
    ) -> ShardedRows:
        """Write rows into an empty folder, and return them as a source.

        Args:
            shard_by: Columns whose values decide a row's shard.
            shards: How many there are.
            unique: Columns of which no two rows have the same values; none: there may be such.
        """
        folder = Path(folder)
        if wrong := [name for name in (*shard_by, *unique) if name not in rows.column_names]:
            raise InvalidSchemaError(f"{folder}: no column {wrong[0]!r}; the rows have {', '.join(rows.column_names)}")
        if shards < 1 or not shard_by:
            raise InvalidRequestError(f"{folder}: expected at least one shard and one column to shard by")
        about = _About(tuple(shard_by), shards, tuple(unique), 1, uuid.uuid4().hex)
        _write_version(folder, about, rows)
        return cls(folder)

    def put(self, rows: pa.Table) -> str:
        """Write the next version, and return it as a point. The rows of older ones stay as they are."""
        if not rows.schema.equals(self.schema):
            raise InvalidSchemaError(f"{self._folder}: expected the columns ({self.schema}), found ({rows.schema})")
        about = _About.of(self._folder)
        self._about = replace(about, newest=about.newest + 1)
        _write_version(self._folder, self._about, rows)
        return str(self._about.newest)

    @property
    def name(self) -> str:
        """Return the folder's name."""
        return self._folder.name

    @property
    def schema(self) -> pa.Schema:
        """Return the rows' columns."""
        return pq.read_schema(_file(self._folder, self._about.newest, 0)).remove_metadata()

    def lookup_function(self, context: LookupJoinContext) -> ShardedRowsFunction:
        """Return the function of a join. In a batch join it reads the version that is the newest one now."""
        schema = self.schema
        if wrong := [name for name in (*context.join_keys, *context.columns) if name not in schema.names]:
            raise InvalidSchemaError(f"{self.name}: no column {wrong[0]!r}; it has {', '.join(schema.names)}")
        if floats := [name for name in context.join_keys if pa.types.is_floating(schema.field(name).type)]:
            raise UnsupportedError(f"{self.name}: rows cannot be looked up by {floats[0]!r}, a floating-point number")
        version = None if context.is_stream else _About.of(self._folder).newest
        own_only = context.is_custom_shuffle_enabled
        return ShardedRowsFunction(str(self._folder), context.join_keys, context.columns, own_only, version)

    def is_unique(self, join_keys: Sequence[str]) -> bool:
        """Return whether the unique columns are among the keys."""
        return bool(self._about.unique) and set(self._about.unique) <= set(join_keys)

    def bucket_keys(self) -> tuple[str, ...]:
        """Return the columns that rows are sharded by."""
        return self._about.shard_by

    def get_partitioner(self) -> ShardPartitioner | None:
        """Return what gives each task whole shards; None where there is one shard: every task would load it."""
        return ShardPartitioner(self._about.shard_by, self._about.shards) if self._about.shards > 1 else None

    def describe(self, function: LookupFunction) -> str:
        """Return which shards a task loads."""
        own = isinstance(function, ShardedRowsFunction) and function.own_only
        return "own shards" if own else "all shards"


def _write_version(folder: Path, about: _About, rows: pa.Table) -> None:
    """Write the files of a version, then have ``rows.json`` name it."""
    if about.unique and rows.group_by(list(about.unique)).aggregate([]).num_rows != rows.num_rows:
        raise InvalidRecordError(f"{folder}: two rows have the same {', '.join(about.unique)}; nothing was written")
    shards = shards_of(_one_batch(rows), about.shard_by, about.shards)
    _file(folder, about.newest, 0).parent.mkdir(parents=True)
    for shard in range(about.shards):
        pq.write_table(rows.filter(pa.array(shards == shard)), _file(folder, about.newest, shard))
    write_json_atomic(folder / _ABOUT, asdict(about))


def _file(folder: Path, version: int, shard: int) -> Path:
    return folder / str(version) / f"{shard}.parquet"


def _rows_of_shard(folder: Path, version: int, shard: int, columns: list[str]) -> pa.Table:
    return pq.read_table(_file(folder, version, shard), columns=columns, use_threads=False)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    columns = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _tuples(rows: pa.RecordBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
