"""Remote lookups: the servers are asked for rows by key, many at a time; what came after the read point is undone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.kv.lookuper import Lookuper
from fluss_lab.errors import OffsetOutOfRangeError, RecordTooLargeError, UnavailableError, UnsupportedError
from fluss_lab.lookup import lookup_options
from fluss_lab.lookup.lookup_interfaces import FunctionContext, LookupRows
from fluss_lab.lookup.planned_lookup import PlannedLookup, rows_schema
from fluss_lab.lookup.rows.kept_rows import KeptRows
from fluss_lab.lookup.rows.keyed_rows import Groups, KeyIndex, Longs, distinct, empty_batch, merge_found
from fluss_lab.lookup.rows.lookup_cache import LookupCache
from fluss_lab.lookup.rows.point_changes import PointUndo, changes, ranges_between
from fluss_lab.model import TableInfo
from fluss_lab.model.names import partition_values
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import TableSource

log = logging.getLogger(__name__)

#: Keys times partitions of one request at most, where every partition is asked: rows of so many keys are held at once.
_ASKED_KEYS: Final = 65_536
#: A cache is brought to the next point by up to so many times the changes that it has rows; by more it would hardly outlive them.
_FOLLOWED_RATIO: Final = 2
_FOLLOWED_MIN: Final = 10_000


class RemoteLookup(PlannedLookup):
    """Looks rows up at the servers, exactly as they were at the read point; holds the last ones in a cache.

    The servers answer with live rows. Those of keys that have changed between the read point and the end of the log after the
    answers are taken back to what their first change says they were.

    Cost: of keys that are not cached a call per bucket's server and 16,384 keys, two calls more a batch, and reading what
    was written since the read point.
    """

    def open(self, context: FunctionContext) -> None:
        """Connect, and take the cache of an earlier micro-batch.

        Raises:
            UnsupportedError: Rows cannot be looked up by these keys; or in more partitions than allowed.
        """
        source, point = self._open_source(context)
        plan = self.plan
        assert self._connection is not None
        buckets = self._buckets(context, point)
        self._names = remote_columns(plan.table, plan.join_keys)
        self._rest = [name for name in plan.join_keys if name not in self._names]
        key = plan.table.schema.primary_key
        #: What is asked for: the key says whether there is a row, and what is undone.
        self._columns = list(dict.fromkeys([*key, *plan.join_keys, *plan.columns]))
        most = lookup_options.PARTITIONS_MAX.of(plan.options)
        self._partitions = _partitions_of(plan.table, self._names, buckets, most)
        changes_max = lookup_options.CHANGES_MAX.of(plan.options)
        self._undo = PointUndo(source, point, buckets, key, self._names, self._columns, changes_max)
        self._lookuper = Lookuper(self._connection, plan.table, self._columns)
        self._cache = self._empty_cache()
        self._kept: KeptRows | None = None
        self._point: ReadPoint | None = None
        if context.folder is not None:
            self._kept, self._point = KeptRows(context.folder, self._kept_identity("cache", context)), point
            self._take_kept(self._kept, source, point, context)
        self._counts = dict.fromkeys(("keys", "hits", "misses", "calls", "found"), 0)
        self._count_cache()

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        """Return the rows of each key at the read point.

        Raises:
            TableNotFoundError, PartitionNotFoundError: What is looked up in was dropped.
            ServerUnavailableError: No server answered, however often it was tried.
            OffsetOutOfRangeError: What was changed since the read point is held nowhere any more.
            UnsupportedError: More keys have changed since then than ``lookup.remote.max-changes``.
        """
        keys = self._type_keys(keys)
        entries = self._cache.find(keys, self._clock.now_ms())
        positions, ids = self._cache.expand(entries)
        rows = self._cache.rows.take(pa.array(ids))
        missing = np.flatnonzero(entries < 0)
        self._counts["keys"] += keys.num_rows
        self._counts["hits"] += keys.num_rows - len(missing)
        self._counts["misses"] += len(missing)
        if len(missing):
            asked, codes = distinct(keys.take(pa.array(missing)))
            places, answer = self._ask(asked)
            answer = answer.select(self.plan.columns)
            self._cache.add(asked, places, answer, self._clock.now_ms())
            at, found = Groups.of_sorted(places, asked.num_rows).expand(codes)
            positions, rows = merge_found((positions, rows), (missing[at], answer.take(pa.array(found))))
            self._count_cache()
        self._counts["found"] += len(positions)
        return LookupRows(positions, rows)

    def close(self) -> None:
        """Leave the cache to the next micro-batch; close the connection. Twice is fine."""
        kept, point = getattr(self, "_kept", None), getattr(self, "_point", None)
        if kept is not None and point is not None:
            self._kept = None
            keys, numbers, rows = self._cache.parts()
            try:
                kept.write(point.to_json(), {"keys": keys, "numbers": numbers, "rows": rows})
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                log.info("lookup in %s: its cache is not kept: %s", self.plan.table.path, error)
        super().close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, keys: pa.RecordBatch) -> tuple[Longs, pa.RecordBatch]:
        """Return the rows of distinct keys at the point, by key: which key each is of, and all columns."""
        named, codes = distinct(keys.select(self._names))
        found, asked = [(np.zeros(0, dtype=np.int64), self._no_rows())], set()
        for part, whose, partitions in self._parts(named):
            found.append(self._live(part, whose))
            asked |= partitions
        positions, rows = merge_found(*found)
        self._undo.extend(asked if self._partitions else None)
        positions, rows = self._undo.undo(named, positions, rows)
        if not self._rest:
            return positions, rows
        at, ids = Groups.of_sorted(positions, named.num_rows).expand(codes)
        rows = rows.take(pa.array(ids))
        same = np.ones(len(at), dtype=np.bool_)
        for name in self._rest:
            equal = pc.equal(rows.column(name), keys.column(name).take(pa.array(at)))
            same &= pc.fill_null(equal, fill_value=False).to_numpy(zero_copy_only=False)
        return at[same], rows.filter(pa.array(same))

    def _parts(self, keys: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Longs, set[str]]]:
        """Yield keys that name their partition, which of the given ones each is, and the names of the partitions.

        What is in a partition that the point does not have is left out: it was made since.
        """
        columns = self.plan.table.descriptor.partitioned_by
        if not columns:
            yield keys, np.arange(keys.num_rows), set()
            return
        assert self._partitions is not None
        if set(columns) <= set(self._names):
            found = self._partitions.index.find(keys.select(columns))
            whose = np.flatnonzero(found >= 0)
            names = self._partitions.names
            yield keys.take(pa.array(whose)), whose, {names[each] for each in np.unique(found[whose])}
            return
        step = max(1, _ASKED_KEYS // max(1, keys.num_rows))
        names = self._partitions.names
        for first in range(0, len(names), step):
            made = [self._in_partition(keys, name) for name in names[first : first + step]]
            batches, places = zip(*made, strict=True)
            yield pa.concat_batches(batches), np.concatenate(places), set(names[first : first + step])

    def _in_partition(self, keys: pa.RecordBatch, partition: str) -> tuple[pa.RecordBatch, Longs]:
        """Return those keys that can be in a partition, with its columns, and which of the keys they are."""
        whose = np.arange(keys.num_rows)
        for name, value in zip(self.plan.table.descriptor.partitioned_by, partition_values(partition), strict=True):
            if name in self._names:
                same = pc.equal(keys.column(name), value)
                keys, whose = keys.filter(same), whose[same.to_numpy(zero_copy_only=False)]
            else:
                keys = keys.append_column(name, pa.repeat(value, keys.num_rows))
        return keys, whose

    def _live(self, keys: pa.RecordBatch, whose: Longs) -> tuple[Longs, pa.RecordBatch]:
        """Return the live rows of keys, by what each key is for."""
        if not keys.num_rows:
            return whose, self._no_rows()
        self._counts["calls"] += 1
        is_whole = set(self.plan.table.schema.primary_key) <= set(keys.schema.names)
        call = self._lookuper.lookup if is_whole else self._lookuper.prefix_lookup
        for attempt in range(lookup_options.RETRIES_MAX.of(self.plan.options) + 1):
            try:
                table = call(keys)
                break
            except UnavailableError as error:
                if attempt == lookup_options.RETRIES_MAX.of(self.plan.options):
                    raise
                log.info("lookup in %s: tried again: %s", self.plan.table.path, error)
        rows = self._batch(table)
        if not is_whole:
            # The answer has the rows prefix by prefix, and does not say where one ends.
            return merge_found((whose[KeyIndex.of(keys).find(rows.select(keys.schema.names))], rows))
        at = np.flatnonzero(rows.column(0).is_valid().to_numpy(zero_copy_only=False))
        return merge_found((whose[at], rows if len(at) == rows.num_rows else rows.take(pa.array(at))))

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        schema = self._no_rows().schema
        batches = pa.Table.from_arrays(table.columns, schema=schema).combine_chunks().to_batches()
        if len(batches) > 1:
            raise RecordTooLargeError(
                f"lookup in {self.plan.table.path}: the rows of {table.num_rows} keys are more than 2 GB; use smaller batches "
                "(spark.sql.execution.arrow.maxRecordsPerBatch)"
            )
        return batches[0] if batches else self._no_rows()

    def _no_rows(self) -> pa.RecordBatch:
        return empty_batch(rows_schema(self.plan.table, self._columns))

    # -- the cache -----------------------------------------------------------------------------------------------------

    def _empty_cache(self) -> LookupCache:
        plan = self.plan
        return LookupCache(
            rows_schema(plan.table, plan.join_keys),
            rows_schema(plan.table, plan.columns),
            lookup_options.CACHE_ROWS_MAX.of(plan.options),
            lookup_options.CACHE_EXPIRY.of(plan.options),
        )

    def _take_kept(self, kept: KeptRows, source: TableSource, point: ReadPoint, context: FunctionContext) -> None:
        """Take the cache of the last micro-batch, without the keys that have changed since.

        It is left where that would cost more than it saves, and where changes do not lead to this point.
        """
        if (found := kept.read()) is None:
            return
        text, batches = found
        ranges = ranges_between(ReadPoint.from_json(text), point, self._numbers(context))
        rows_max = max(_FOLLOWED_MIN, _FOLLOWED_RATIO * batches["numbers"].num_rows)
        if ranges is None or sum(each.records for each in ranges) > rows_max:
            return
        cache = self._empty_cache()
        cache.restore(batches["keys"], batches["numbers"], batches["rows"])
        try:
            for records in changes(source, ranges, self.plan.join_keys):
                changed = records.rows.select(self.plan.join_keys).drop_null()
                cache.drop(changed)
        except OffsetOutOfRangeError as error:
            log.info("lookup in %s: its cache is not used any more: %s", self.plan.table.path, error)
            return
        self._cache = cache

    def _count_cache(self) -> None:
        self._counts["rows_cached"] = len(self._cache)
        self._counts["bytes_cached"] = self._cache.size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Partitions:
    """The partitions of a point: their names, and the index of their values in the same order."""

    names: list[str]
    index: KeyIndex


def remote_columns(info: TableInfo, join_keys: Sequence[str]) -> list[str]:
    """Return the columns, of those joined on, that rows of a table are looked up by at its servers.

    These are all of the primary key, or all of the bucket key; partition columns may be missing.

    Raises:
        UnsupportedError: The join keys do not cover either; the text says by which columns rows can be looked up.
    """
    partitions, bucket_key = info.descriptor.partitioned_by, info.descriptor.bucket_key
    key = [name for name in info.schema.primary_key if name not in partitions]
    if not set(key) <= set(join_keys):
        if not set(bucket_key) <= set(join_keys) or tuple(key[: len(bucket_key)]) != tuple(bucket_key):
            raise UnsupportedError(
                f"remote lookup in {info.path}: expected join keys that have all of its primary key "
                f"({', '.join(info.schema.primary_key)}; partition columns may be missing), or all of its bucket key "
                f"({', '.join(bucket_key)}) where that is the primary key's begin, found ({', '.join(join_keys)}); use mode "
                "'full', which can join on any columns"
            )
        key = list(bucket_key)
    return [*key, *(name for name in partitions if name in join_keys)]


def _partitions_of(
    info: TableInfo, names: Sequence[str], buckets: Sequence[PointBucket], most: int
) -> _Partitions | None:
    """Return the partitions that a point has; None of a table without.

    Raises:
        UnsupportedError: Each key would be looked up in too many of them.
    """
    columns = info.descriptor.partitioned_by
    if not columns:
        return None
    found = sorted({each.partition for each in buckets if each.partition is not None})
    absent = [name for name in columns if name not in names]
    if absent and len(found) > most:
        raise UnsupportedError(
            f"remote lookup in {info.path} without partition column {absent[0]!r}: expected at most {most} partitions "
            f"(lookup.max-partitions), found {len(found)}; join on the partition columns too, use mode 'full', or allow more"
        )
    schema = pa.schema([(name, pa.string()) for name in columns])
    values = [partition_values(name) for name in found]
    arrays = [pa.array([each[place] for each in values], pa.string()) for place in range(len(columns))]
    return _Partitions(found, KeyIndex.of(pa.RecordBatch.from_arrays(arrays, schema=schema)))
