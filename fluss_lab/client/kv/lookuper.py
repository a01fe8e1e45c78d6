"""Lookups of rows in a primary-key table, by whole keys or by key prefixes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.client.cluster.lake_partitions import lake_partitions
from fluss_lab.client.cluster.leader_requests import LeaderCall, call_leaders
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.client.kv.lookup_codec import (
    BucketKeys,
    LookupCall,
    PlainKey,
    PlainKeys,
    PrefixCall,
    RowsFound,
    nullable,
)
from fluss_lab.client.kv.single_key_queue import LOOKUPS_MAX, LookupQueue, PendingLookup
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.client.write.row_routing import Router
from fluss_lab.closing import Closing
from fluss_lab.errors import (
    ConnectionClosedError,
    InvalidRequestError,
    NotFoundError,
    PartitionNotFoundError,
    RecordTooLargeError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.interrupts import Held
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.values.pandas_frames import for_pandas
from fluss_lab.model.values.row_input import is_column, record_batches
from fluss_lab.work_pool import WorkPool

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: Keys of one call: enough that a call's fixed cost is small beside them, few enough that several calls overlap. Two calls of
#: half as many take a half longer, also at once: a server works on them in turns.
KEYS_PER_CALL: Final = 16_384
#: Where the rows are too large for one answer: so many times fewer keys.
FEWER_KEYS: Final = 4
#: Calls on their way at once: one is answered while the next is encoded and the last decoded; servers have cores.
CALLS_AT_ONCE: Final = 4

#: A row that was found with others keeps their memory alive: beyond so many bytes it is copied.
_KEPT_BYTES_MAX: Final = 1 << 16

#: Rows that were found, and where among them the one is that was asked for.
_Place: TypeAlias = tuple[pa.Table, int]
_Positions: TypeAlias = npt.NDArray[np.int64]
#: A reserved name, so that no key column has it.
_POSITION: Final = "__offset"


@check_arguments
class Lookuper(Closing):
    """Finds rows of one primary-key table by their keys. Threads may share it. Close it when done.

    Servers' restarts are outlived, up to ``client.request-timeout``.

    Args:
        columns: Names or positions of the columns wanted, in the order wanted; None: all.

    Raises:
        UnsupportedError: It is a log table.
        InvalidSchemaError: There is no such column, or one is wanted twice.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, columns: Sequence[str | int] | None = None) -> None:
        if info.is_log_table:
            raise UnsupportedError(f"{info.path} has no primary key: its rows cannot be looked up; scan it")
        self._connection = connection
        self._info = info
        self._projection = Projection(info, columns, partial(connection.schema, info))
        self._router = Router(info.descriptor, 0)
        #: Rows that are not there are null as a whole, so every column is nullable.
        self._schema = for_pandas(nullable(self._projection.schema))
        self._absent = pa.Table.from_arrays([pa.nulls(1, field.type) for field in self._schema], schema=self._schema)
        self._plain_keys = PlainKeys(connection, info, self._router)
        self._lookups = LookupCall(info, self._projection, self._schema)
        self._prefixes = PrefixCall(info, self._projection, self._schema)
        self._queue: LookupQueue[PlainKey, _Place] = LookupQueue(self._look_up)
        self._starting = threading.Lock()
        self._pool: WorkPool | None = None
        self._closed = False
        #: What was learned where no server was asked.
        self._newest_schema_id = info.schema_id
        connection.remember(info)

    def __repr__(self) -> str:
        return f"<Lookuper of {self._info.path}{' (closed)' if self._closed else ''}>"

    def close(self) -> None:
        """End the threads. Twice is fine."""
        with Held():
            with self._starting:
                self._closed = True
                pool, self._pool = self._pool, None
            if pool is not None:
                # Calls under way have callers that wait for them, or were interrupted.
                pool.close()
                self._connection.open_resources.remove(self)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of what is found: the columns wanted, all nullable."""
        return self._schema

    @property
    def is_outdated(self) -> bool:
        """Return whether an answer came from a newer schema of the table than this lookuper's."""
        calls = (self._lookups.newest_schema_id, self._prefixes.newest_schema_id)
        return max(self._newest_schema_id, *calls) > self._info.schema_id

    def lookup(self, keys: object) -> pa.Table:
        """Return the row of each key, in the order of the keys; a key without a row has nulls in all columns.

        Each bucket answers at one moment; two buckets may answer at different ones.

        Args:
            keys: Rows in any form of `fluss_lab.model.values.row_input.record_batches`, or one dict; each names every column of the
                primary key, partition columns included. Other columns are not looked at.

        Raises:
            InvalidRecordError, InvalidPartitionError: The keys cannot be; the text names column, row and value.
            PartitionNotFoundError: A key is of a partition that was dropped from the cluster and kept in the lake.
            TableNotFoundError: The table was dropped.
            ServerUnavailableError: No server answered in time.

        Cost: a call per bucket's server and 16,384 keys, several at the same time; two more for partitions that the cluster
        does not have.
        """
        if (key := self._plain_keys.key(keys)) is not None and (one := self._lookup_one(key)) is not None:
            return one
        asked = _join_batches(record_batches(as_rows(keys), self._info.schema, self._info.schema.primary_key))
        found: list[pa.RecordBatch] = []
        index = np.full(0 if asked is None else asked.num_rows, -1, dtype=np.int64)
        base = 0
        for part, rows in self._call(asked, self._lookups):
            index[part.positions[rows.marks.astype(np.bool_)]] = np.arange(base, base + rows.rows.num_rows)
            found.append(rows.rows)
            base += rows.rows.num_rows
        return self._take(found, index)

    def prefix_lookup(self, prefix: object) -> pa.Table:
        """Return all rows whose key begins with a prefix; of several, prefix by prefix in the order given.

        Args:
            prefix: One dict, or several in any form of `fluss_lab.model.values.row_input.record_batches`: values of the bucket key,
                which must be a proper prefix of the primary key, and of the partition columns.

        Raises:
            UnsupportedError: The table's bucket key is not a proper prefix of its primary key.
            PartitionNotFoundError: A prefix is of a partition that was dropped from the cluster and kept in the lake.
            InvalidRecordError, InvalidPartitionError: The prefix cannot be; the text names column, row and value.
            TableNotFoundError: The table was dropped.
            ServerUnavailableError: No server answered in time.
        """
        names = prefix_columns(self._info)
        asked = _join_batches(record_batches(as_rows(prefix), self._info.schema, names, others=False))
        found: list[pa.RecordBatch] = []
        whose: list[_Positions] = [np.zeros(0, dtype=np.int64)]
        for part, rows in self._call(asked, self._prefixes):
            found.append(rows.rows)
            whose.append(np.repeat(part.positions, rows.marks))
        return self._take(found, np.argsort(np.concatenate(whose), kind="stable"))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _lookup_one(self, key: PlainKey) -> pa.Table | None:
        """Look a single key up; None when that fails: the caller then retries."""
        if self._closed:
            return None
        server = None
        if self._connection.has_several_servers:
            (part,) = self._plain_keys.parts((key,))
            try:
                server = self._connection.leader(part.bucket)
            except (UnavailableError, NotFoundError):
                return None
        if (found := self._queue.answer(key, server)) is None:
            return None
        rows, place = found
        return rows if rows.num_rows == 1 else rows.slice(place, 1)

    def _look_up(self, pending: Sequence[PendingLookup[PlainKey, _Place]]) -> int:
        """Make one call for single keys; see `LookupQueue`. What fails is left without an answer."""
        lookups_max = LOOKUPS_MAX
        parts = self._plain_keys.parts([each.what for each in pending])
        try:
            theirs: dict[int, list[BucketKeys]] = {}
            for part in parts:
                theirs.setdefault(self._connection.leader(part.bucket), []).append(part)
            for server, some in theirs.items():
                for part, found in zip(some, self._lookups.send(self._connection.gateway(server), some), strict=True):
                    if isinstance(found, RowsFound):
                        self._place(pending, part, found)
                    elif isinstance(found, RecordTooLargeError):
                        lookups_max = max(1, len(pending) // FEWER_KEYS)
        except (UnavailableError, ConnectionClosedError):
            return 0
        except NotFoundError:
            pass  # each then learns it by itself
        return lookups_max

    def _place(self, pending: Sequence[PendingLookup[PlainKey, _Place]], part: BucketKeys, found: RowsFound) -> None:
        rows = pa.Table.from_batches([found.rows])
        is_large = rows.num_rows > 1 and rows.nbytes > _KEPT_BYTES_MAX
        absent, place = (self._absent, 0), 0
        for position, mark in zip(part.positions.tolist(), found.marks.tolist(), strict=True):
            if not mark:
                pending[position].answer = absent
                continue
            pending[position].answer = (rows.take([place]).combine_chunks(), 0) if is_large else (rows, place)
            place += 1

    def _call(self, asked: pa.RecordBatch | None, call: LookupCall) -> list[tuple[BucketKeys, RowsFound]]:
        """Return what there is for each part of the keys; parts in partitions that do not exist are left out."""
        if asked is None:
            self._look_at_schema()
            return []
        attempts = self._connection.attempts(f"lookup in {self._info.path}")
        keys_max = KEYS_PER_CALL
        while True:
            if self._closed:
                self._connection.check_open(str(attempts.what))
                raise InvalidRequestError(f"{attempts.what}: the lookuper is closed; open a new one")
            parts = list(self._parts(asked, call.key_columns, keys_max))
            if not parts:
                self._look_at_schema()
            leader_call: LeaderCall[BucketKeys, RowsFound] = LeaderCall(call.send, partial(_cut, keys_max), self._run)
            try:
                return list(zip(parts, call_leaders(self._connection, parts, leader_call, attempts), strict=True))
            except RecordTooLargeError:
                # The rows of so many keys are more than an answer may have.
                if keys_max == 1 or asked.num_rows == 1:
                    raise
                keys_max = max(1, min(keys_max, asked.num_rows) // FEWER_KEYS)
            except PartitionNotFoundError as error:
                # What was known of the partitions is outdated: one was dropped, and perhaps made again.
                self._connection.forget_partitions(self._info)
                attempts.wait_after(error, "the coordinator")

    def _look_at_schema(self) -> None:
        """Learn from the coordinator what no server is asked for: whether the table is there, and with which columns.

        Raises:
            TableNotFoundError: The table was dropped.
        """
        now = self._connection.table_info(self._info.path)
        check_table_id(self._info.path, self._info.table_id, now.table_id)
        self._newest_schema_id = max(self._newest_schema_id, now.schema_id)

    def _parts(self, asked: pa.RecordBatch, key_columns: Sequence[str], keys_max: int) -> Iterator[BucketKeys]:
        """Yield the keys by bucket, each with its position, in parts of one call at most."""
        numbered = asked.append_column(_POSITION, pa.array(np.arange(asked.num_rows)))
        runs = self._router.route([numbered])
        partitions = self._partitions({run.partition for run in runs if run.partition is not None})
        for run in runs:
            if run.partition is not None and run.partition not in partitions:
                continue
            partition_id = None if run.partition is None else partitions[run.partition]
            bucket = TableBucket(self._info.table_id, partition_id, run.bucket)
            keys, positions = run.rows.select(key_columns), run.rows.column(_POSITION).to_numpy()
            for start, stop in pairwise(even_edges(len(positions), keys_max)):
                yield BucketKeys(bucket, keys.slice(start, stop - start).serialize(), positions[start:stop])

    def _partitions(self, names: set[str]) -> Mapping[str, int]:
        known = self._connection.partitions(self._info, refresh=False) if names else {}
        if not names <= known.keys():
            known = self._connection.partitions(self._info)
        if kept := lake_partitions(self._connection, self._info, names - known.keys()):
            raise PartitionNotFoundError(
                f"lookup in {self._info.path}: partition {min(kept)!r} was dropped from the cluster, and live rows are looked up "
                "there; the lake has its rows: read them by a scan with a condition, in a lookup join use mode 'full', or drop "
                "the partition from the lake too (`drop_partition` with `lake=True`)"
            )
        return {name: known[name].partition_id for name in names if name in known}

    def _run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run calls at the same time; a single one here and now."""
        if len(calls) == 1:
            calls[0]()
            return
        with Held():
            with self._starting:
                if self._closed:
                    self._connection.check_open(f"lookup in {self._info.path}")
                    raise InvalidRequestError(f"lookup in {self._info.path}: the lookuper is closed; open a new one")
                if self._pool is None:
                    self._pool = WorkPool(CALLS_AT_ONCE, f"lookup-{self._info.path}")
                    self._connection.open_resources.add(self, self.close, self._leave)
                under_way = [self._pool.submit(call) for call in calls]
            for each in under_way:
                each.result()

    def _leave(self) -> None:
        """In a forked child: the threads are the parent's; others are started here."""
        self._pool, self._starting = None, threading.Lock()
        self._queue = LookupQueue(self._look_up)

    def _take(self, found: Sequence[pa.RecordBatch], index: _Positions) -> pa.Table:
        """Return the rows at positions of all that was found; -1 stands for no row.

        Raises:
            RecordTooLargeError: They have more texts or bytes than a column takes.
        """
        if not found:
            empty = [pa.nulls(len(index), field.type) for field in self._schema]
            return pa.Table.from_arrays(empty, schema=self._schema)
        try:
            rows = found[0] if len(found) == 1 else pa.concat_batches(found)
            if len(index) != rows.num_rows or not np.array_equal(index, np.arange(len(index))):
                rows = rows.take(pa.array(index, mask=index < 0))
        except pa.ArrowInvalid as error:
            raise RecordTooLargeError(
                f"lookup in {self._info.path}: the {len(index):,} rows have more than the 2 GB that a column takes; look fewer keys "
                "up at a time, or fewer columns"
            ) from error
        return pa.Table.from_arrays(rows.columns, schema=self._schema)


def prefix_columns(info: TableInfo) -> tuple[str, ...]:
    """Return the columns that a prefix lookup gives: the bucket key, then the partition columns.

    Raises:
        UnsupportedError: The bucket key is not a proper prefix of the primary key without partition columns: rows of one
            prefix would be in all buckets.
    """
    descriptor = info.descriptor
    rest = tuple(name for name in info.schema.primary_key if name not in descriptor.partitioned_by)
    key = descriptor.bucket_key
    if not key or len(key) >= len(rest) or rest[: len(key)] != key:
        raise UnsupportedError(
            f"prefix lookup in {info.path}: expected a bucket key that is a proper prefix of the primary key "
            f"({', '.join(rest)}), found ({', '.join(key)}); look whole keys up, or make the table with such a bucket key"
        )
    return (*key, *descriptor.partitioned_by)


def even_edges(count: int, part_max: int) -> list[int]:
    """Return where parts of at most so many of `count` things begin and end, as large as each other.

    A large part and a small one would take as long as two large ones: while the first is answered, nobody has work.
    """
    parts = -(-count // part_max)
    return [count * part // parts for part in range(parts + 1)] if parts else [0]


def _join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the rows of all batches as one, so that no bucket has its keys in two places; None for no rows."""
    return pa.concat_batches(batches) if len(batches) > 1 else next(iter(batches), None)


def as_rows(keys: object) -> object:
    """Return one dict of values as a list of it; all else as it is."""
    if isinstance(keys, Mapping) and keys and not any(map(is_column, keys.values())):
        return [keys]
    return keys


def _cut(keys_max: int, parts: Sequence[BucketKeys]) -> Iterator[Sequence[BucketKeys]]:
    """Yield the parts of each call; two parts of one bucket never share one, because the first of them fills it."""
    part_of_call: list[BucketKeys] = []
    count = 0
    for part in parts:
        if part_of_call and count + len(part.positions) > keys_max:
            yield part_of_call
            part_of_call, count = [], 0
        part_of_call.append(part)
        count += len(part.positions)
    if part_of_call:
        yield part_of_call
