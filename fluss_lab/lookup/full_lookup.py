"""Full lookups: a task loads the rows of its buckets at the read point, and from then on needs no server to look rows up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import OffsetOutOfRangeError, RecordTooLargeError
from fluss_lab.lookup.lookup_interfaces import FunctionContext, LookupRows
from fluss_lab.lookup.planned_lookup import PlannedLookup, rows_schema
from fluss_lab.lookup.rows.kept_rows import KeptRows
from fluss_lab.lookup.rows.keyed_rows import Groups, KeyedRows, KeyIndex, Longs, distinct, empty_batch, merge_found
from fluss_lab.lookup.rows.point_changes import changes, ends, ranges_between
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.table_reader import TableReader

log = logging.getLogger(__name__)

#: Rows that have changed since the base was indexed lie apart up to this part of it: then the base is made anew.
_APART_RATIO: Final = 4
_APART_MIN: Final = 4_096
#: Rows are followed by up to so many times the changes that there are rows: by more, loading them is faster.
_FOLLOWED_RATIO: Final = 1
_FOLLOWED_MIN: Final = 50_000
#: Of rows that have changed: whether they are there. No column of a table can have the name.
_LIVE: Final = "(live)"


class FullLookup(PlannedLookup):
    """Looks rows up in those of the task's own buckets, which it loads at the read point.

    Between micro-batches the rows rest in files, which the next one maps; it reads only what has changed between its point
    and theirs.

    Memory: the primary key, the join keys and the columns wanted of all rows of the buckets, and 16 to 32 bytes a row.
    """

    def open(self, context: FunctionContext) -> None:
        """Load the rows, or take those of an earlier micro-batch and follow the changes since.

        Raises:
            OffsetOutOfRangeError: The rows of the read point are held nowhere any more.
            RecordTooLargeError: They are more than a task can hold.
        """
        started = time.monotonic()
        source, point = self._open_source(context)
        plan, key = self.plan, list(self.plan.table.schema.primary_key)
        self._buckets(context, point)  # each is known
        self._key, self._columns = key, list(dict.fromkeys([*key, *plan.join_keys, *plan.columns]))
        self._counts = dict.fromkeys(("keys", "hits", "misses", "calls", "found", "loads", "changes"), 0)
        rows = _Rows(self._columns, plan.join_keys, key, rows_schema(plan.table, self._columns))
        kept = None if context.folder is None else KeptRows(context.folder, self._kept_identity("rows", context))
        if kept is None or not self._follow(rows, kept, source, point, context):
            self._load(rows, point, context)
            if kept is not None:
                self._keep(kept, point, {**rows.base_parts(), **rows.changed_parts()})
        self._rows = rows
        self._counts["rows_cached"], self._counts["bytes_cached"] = len(rows), rows.size_bytes
        self._counts["load_ms"] = round(1000 * (time.monotonic() - started))

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        """Return the rows of each key at the read point. Cost: some 20 ns a key of numbers, 150 ns of others, and the rows."""
        positions, rows = self._rows.match(self._type_keys(keys), self.plan.columns)
        self._counts["keys"] += keys.num_rows
        self._counts["hits"] += keys.num_rows
        self._counts["found"] += len(positions)
        return LookupRows(positions, rows)

    def _load(self, rows: _Rows, point: ReadPoint, context: FunctionContext) -> None:
        assert self._connection is not None
        reader = TableReader(self._connection, self.plan.table.path)
        scan = reader.scan(self._columns, read_point=point, buckets=self._numbers(context))
        batches = [pa.RecordBatch.from_arrays(each.columns, schema=rows.schema) for each in scan.to_batches()]
        rows.load(self._one(batches, rows.schema))
        self._counts["loads"] += 1

    def _one(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
        try:
            return pa.concat_batches(batches) if batches else empty_batch(schema)
        except pa.ArrowInvalid as error:  # a column of texts has 2 GB at most
            raise RecordTooLargeError(
                f"lookup in {self.plan.table.path}: the rows of one task are more than it can hold ({error}); use mode "
                "'remote', fewer columns, or more tasks with a shuffle"
            ) from error

    def _follow(
        self, rows: _Rows, kept: KeptRows, source: TableSource, point: ReadPoint, context: FunctionContext
    ) -> bool:
        """Take the rows that are kept, and bring them to the point; return whether that was possible, and worth it."""
        if (found := kept.read()) is None:
            return False
        text, batches = found
        ranges = ranges_between(ReadPoint.from_json(text), point, self._numbers(context))
        if ranges is None:
            return False
        rows.take(batches)
        if text == point.to_json():
            return True
        records = sum(each.records for each in ranges)
        if records > max(_FOLLOWED_MIN, _FOLLOWED_RATIO * len(rows)):
            return False
        try:
            rows.change(self._changes(source, ranges, rows.schema))
        except OffsetOutOfRangeError as error:
            log.info("lookup in %s: its rows are loaded anew: %s", self.plan.table.path, error)
            return False
        self._counts["changes"] += records
        base = rows.base_parts()
        # Files of the base are as they were, unless it was made anew.
        self._keep(kept, point, {**(base if rows.is_merged else dict.fromkeys(base)), **rows.changed_parts()})
        return True

    def _changes(
        self, source: TableSource, ranges: Sequence[LogRange], schema: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
        """Yield changes in order: rows, and which of them end."""
        for records in changes(source, ranges, self._columns):
            yield records.rows.select(self._columns).cast(schema), ends(records)

    def _keep(self, kept: KeptRows, point: ReadPoint, batches: Mapping[str, pa.RecordBatch | None]) -> None:
        try:
            kept.write(point.to_json(), batches)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            log.info("lookup in %s: its rows are not kept: %s", self.plan.table.path, error)


class _Rows:
    """Rows of a table at a point, by the join keys: those of a base, and apart from them those that have changed since.

    Args:
        columns: Of the rows.
        join_keys: Some of them.
        key: The primary key; some of them.
        schema: Of the rows.
    """

    def __init__(self, columns: Sequence[str], join_keys: Sequence[str], key: Sequence[str], schema: pa.Schema) -> None:
        self.schema = schema
        self._columns, self._join_keys = list(columns), list(join_keys)
        #: Where rows are looked up by the primary key, one index serves both.
        self._is_key = set(join_keys) == set(key)
        self._key = list(join_keys if self._is_key else key)
        #: Whether the base was made anew by `change`.
        self.is_merged = False
        self.load(empty_batch(schema))

    def __len__(self) -> int:
        return int(self._all.num_rows - self._dead.sum() + self._changed.rows.num_rows)

    @property
    def size_bytes(self) -> int:
        """Return how much memory rows and indexes take."""
        indexes = {id(each): each for each in (self._base.index, self._keys)}.values()
        return int(
            self._all.nbytes + self._apart.nbytes + sum(each.marks.nbytes + each.slots.nbytes for each in indexes)
        )

    def load(self, rows: pa.RecordBatch) -> None:
        """Replace all rows."""
        self._all = rows
        self._base = self._key_rows(rows)
        self._keys = self._base.index if self._is_key else KeyIndex.of(rows.select(self._key))
        self._set_apart(empty_batch(self.schema).append_column(_LIVE, pa.array([], pa.bool_())))

    def match(self, keys: pa.RecordBatch, columns: Sequence[str]) -> tuple[Longs, pa.RecordBatch]:
        """Return the rows of keys: positions, ascending, and some columns of the row of each."""
        positions, ids = self._base.match(keys)
        if self._apart.num_rows:
            live = ~self._dead[ids]
            positions, ids = positions[live], ids[live]
        rows = self._base.rows.select(list(columns)).take(pa.array(ids))
        if not self._apart.num_rows:
            return positions, rows
        at, others = self._changed.match(keys)
        return merge_found((positions, rows), (at, self._changed.rows.select(list(columns)).take(pa.array(others))))

    def change(self, changes: Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]) -> None:
        """Apply changes, which are in order: of each key the last one counts."""
        found = [rows.append_column(_LIVE, pa.array(~ended)) for rows, ended in changes]
        if not found:
            return
        both = pa.concat_batches([self._apart, *found])
        _, codes = distinct(both.select(self._key))
        last = np.empty(int(codes.max()) + 1, dtype=np.int64)
        last[codes] = np.arange(len(codes))
        self._set_apart(both.take(pa.array(last)))
        if self._apart.num_rows > max(_APART_MIN, self._all.num_rows // _APART_RATIO):
            self.load(pa.concat_batches([self._all.filter(pa.array(~self._dead)), self._changed.rows]))
            self.is_merged = True

    # -- as files ------------------------------------------------------------------------------------------------------

    def base_parts(self) -> dict[str, pa.RecordBatch]:
        """Return the base, as `take` takes it."""
        parts = {"rows": self._all} | _index_parts("key", self._keys)
        if (groups := self._base.groups) is None:
            return parts
        assert groups.order is not None
        parts |= {"group": self._base.index.keys} | _index_parts("group", self._base.index)
        runs = pa.RecordBatch.from_arrays([pa.array(groups.starts), pa.array(groups.counts)], ["starts", "counts"])
        return parts | {"runs": runs, "order": _column(groups.order)}

    def changed_parts(self) -> dict[str, pa.RecordBatch]:
        """Return the rows apart, as `take` takes them."""
        return {"apart": self._apart}

    def take(self, parts: Mapping[str, pa.RecordBatch]) -> None:
        """Take what `base_parts` and `changed_parts` returned, of the same table, columns and buckets."""
        self._all = parts["rows"]
        self._keys = _index(self._all.select(self._key), "key", parts)
        if self._is_key:
            self._base = KeyedRows(self._all, self._keys, None)
        else:
            starts, counts = (each.to_numpy() for each in parts["runs"].columns)
            groups = Groups(starts, counts, parts["order"].column(0).to_numpy())
            self._base = KeyedRows(self._all, _index(parts["group"], "group", parts), groups)
        self._set_apart(parts["apart"])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _key_rows(self, rows: pa.RecordBatch) -> KeyedRows:
        return KeyedRows.of(rows, self._join_keys, is_unique=self._is_key)

    def _set_apart(self, apart: pa.RecordBatch) -> None:
        """Set what has become of rows since the base: the last state of each."""
        self._apart = apart
        self._changed = self._key_rows(apart.filter(apart.column(_LIVE)).select(self._columns))
        self._dead = np.zeros(self._all.num_rows, dtype=np.bool_)
        found = self._keys.find(apart.select(self._key))
        self._dead[found[found >= 0]] = True


def _index_parts(name: str, index: KeyIndex) -> dict[str, pa.RecordBatch]:
    return {f"{name}_marks": _column(index.marks), f"{name}_slots": _column(index.slots)}


def _index(keys: pa.RecordBatch, name: str, parts: Mapping[str, pa.RecordBatch]) -> KeyIndex:
    marks, slots = (parts[f"{name}_{each}"].column(0).to_numpy() for each in ("marks", "slots"))
    return KeyIndex(keys, marks, slots)


def _column(values: npt.NDArray[np.integer]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values)], ["values"])
