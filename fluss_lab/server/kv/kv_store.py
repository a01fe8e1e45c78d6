"""The live rows of one bucket of a primary-key table, in memory.

A batch is worked on as a whole: keys are hashed, looked up and compared by column, old rows gathered chunk by chunk, and
the changelog is one take from new and old rows. Nothing here reads or writes a file.

One thread at a time changes a store; any number may read it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import InternalError, InvalidSchemaError, ServerUnavailableError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.server.kv.change_derivation import (
    ChangeSource,
    Effect,
    KvChange,
    PresentRows,
    effect,
    empty,
    kinds_of,
    previous_offsets,
    resolve,
)
from fluss_lab.server.kv.chunk_compaction import CompactionLimits, Rewriter
from fluss_lab.server.kv.file_changes import SnapshotFiles
from fluss_lab.server.kv.keys.key_hashes import Hashes, KeyHash, Longs, fixed_values
from fluss_lab.server.kv.keys.key_index import HashIndex, prefix_rows
from fluss_lab.server.kv.keys.row_equality import Mask, equal_across, group_keys
from fluss_lab.server.kv.merge_engines import MergeRules, Operations, check_deletes_allowed, merge, unknown_kept
from fluss_lab.server.kv.row_checks import RowChecks
from fluss_lab.server.kv.row_chunks import GATHERED_BYTES_MAX, Chunk, ChunkIds, ChunkLayout, KvChunk, no_rows
from fluss_lab.server.kv.store_view import KvImage, KvView, checked_columns

#: So many keys are found one by one: as arrays they cost 25 us and more, each of them 0.5 to 1 us.
_FEW_KEYS: Final = 48


class KvStore:
    """Live rows by primary key, each with the log offset and timestamp of its last change.

    Which values are one key, and which rows are the same, is decided by their bytes: see `fluss_lab.server.kv.keys.key_hashes`.

    Args:
        descriptor: Of the table; with a primary key.
        schema_id: The current schema.
        schemas: Arrow schemas by id: the current one, and those of the chunks of an image.
        hashing: Hash function of the keys; None for one of the store's own.
        limits: When chunks are merged and rewritten; None for the usual.
    """

    def __init__(
        self,
        descriptor: TableDescriptor,
        schema_id: int,
        schemas: Mapping[int, pa.Schema],
        *,
        hashing: KeyHash | None = None,
        limits: CompactionLimits | None = None,
    ) -> None:
        self._hashing = hashing or KeyHash()
        self._lock = Lock()
        self._layout = ChunkLayout()
        self._index = HashIndex()
        # Apart, so that nothing refers to the store in a circle: its rows go with its last use.
        self._ids = ChunkIds()
        self._log_offset = 0
        #: What rows lie in that came with an image.
        self.files = SnapshotFiles()
        #: Counts what was changed, so that a change is not committed to another state than it was made from.
        self._state, self._torn = 0, False
        self._rewriter = Rewriter(self._ids.take, limits or CompactionLimits())
        #: The columns that were looked up last, and the schema of the answer.
        self._asked: tuple[tuple[int, ...] | None, pa.Schema, list[int], pa.Schema] | None = None
        self._set_schema(descriptor, schema_id, schemas)

    def _set_schema(self, descriptor: TableDescriptor, schema_id: int, schemas: Mapping[int, pa.Schema]) -> None:
        schema = schemas[schema_id]
        names = descriptor.schema.primary_key
        prefix = [name for name in names if name not in descriptor.partitioned_by]
        self._rules = MergeRules.of(descriptor)
        self._schema_id = schema_id
        self._schema = schema
        self._checks = RowChecks(schema, tuple(map(schema.names.index, names)), tuple(map(schema.names.index, prefix)))
        self._compared = [index for index in range(len(schema)) if index not in self._checks.keys]
        self._is_exact = self._hashing.is_exact([schema.field(index).type for index in self._checks.keys])

    def define(self, descriptor: TableDescriptor, schema_id: int, schemas: Mapping[int, pa.Schema]) -> None:
        """Take over a table that was altered: columns were added at the end. Old rows are null there.

        A change prepared before can no longer be committed. Views keep the schema they were made with.

        Raises:
            InvalidSchemaError: The new schema does not begin with the columns of the present one, or one of the new
                columns is NOT NULL.
        """
        schema, count = schemas[schema_id], len(self._schema)
        if len(schema) < count or list(schema.types[:count]) != list(self._schema.types):
            text = f"schema {schema_id}: expected the columns of schema {self._schema_id}, then new ones"
            raise InvalidSchemaError(text)
        if wrong := [field.name for field in list(schema)[count:] if not field.nullable]:
            text = f"schema {schema_id}: new column {wrong[0]!r} is NOT NULL; rows that exist lack it"
            raise InvalidSchemaError(text)
        with self._lock:
            self._set_schema(descriptor, schema_id, schemas)
            self._rewriter.forget()
            self._state += 1

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def log_offset(self) -> int:
        """Return the offset after the last change committed."""
        return self._log_offset

    @property
    def row_count(self) -> int:
        """Return how many live rows there are."""
        return len(self._index)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes in memory of index and rows, dead versions not yet rewritten included."""
        with self._lock:
            return self._index.memory_bytes + sum(chunk.memory_bytes for chunk in self._layout.chunks)

    @property
    def mapped_bytes(self) -> int:
        """Return the bytes of rows, offsets and timestamps that lie in mapped files."""
        return sum(chunk.data_bytes for chunk in self._layout.chunks if chunk.data.is_mapped)

    def unmapped_chunks(self) -> list[Chunk]:
        """Return the chunks whose rows are in memory; they may be settled elsewhere at any moment."""
        return [chunk for chunk in self._layout.chunks if not chunk.data.is_mapped]

    @property
    def chunk_count(self) -> int:
        """Return how many chunks the rows lie in."""
        return len(self._layout.chunks)

    def prepare(
        self,
        rows: pa.RecordBatch,
        change_types: bytes,
        *,
        base_offset: int,
        columns: Sequence[str] | None = None,
        known: int | None = None,
        bytes_max: int = GATHERED_BYTES_MAX,
    ) -> KvChange:
        """Work out what a batch changes. Nothing is changed.

        Args:
            rows: The columns given, in the table's order.
            change_types: One byte a row: 3 to upsert, 4 to delete (of such rows only the key counts).
            base_offset: Offset that the first record of the changelog will get.
            columns: Names of the columns given, the key's among them, for a partial update; None: all.
            known: How many of the columns the writer knew of, whose upserts keep the others; None: all.
            bytes_max: Of the rows that it replaces, and of the whole rows that a partial update makes, at most.

        Returns:
            The changelog and its effect; no records when nothing changes. Rows of one key are applied in order, each with
            its own -U and +U.

        Raises:
            InvalidRecordError: Columns, types or nulls that do not fit, a delete of a table that forbids it, or a partial
                update of a table with a merge engine.
            RecordTooLargeError: More than `bytes_max`, found before they are copied: send smaller batches.
            InternalError: The offset lies before what is committed.

        Cost: some 100 ns a row of six columns; memory of the batch, the rows it replaces, and the changelog.
        """
        self._check_ahead(base_offset)
        upserts = self._checks.operations(change_types, rows.num_rows)
        given = self._checks.columns(rows, columns, upserts)
        check_deletes_allowed(self._rules, upserts)
        key = self._key(given)
        hashes = self._hashing.of(key)
        if not rows.num_rows:
            return empty(base_offset, self._state, self._schema)
        groups, leaders = group_keys(hashes, key, self._is_exact)
        operations = Operations(np.arange(rows.num_rows), upserts, groups)
        if self._rules.deletes == "ignore" and not upserts.all():
            operations = operations.select(upserts)
        gathered_max = 0 if self._rules.engine == "first_row" else bytes_max
        present, old = self._present(hashes, key, leaders, gathered_max)
        operations, complete = merge(
            self._rules, self._checks, operations, given, old, present.at, present.offsets >= 0, bytes_max
        )
        if not operations.rows.size:
            return empty(base_offset, self._state, self._schema)
        if known is not None:
            complete = unknown_kept(known, operations, complete, old, present.at[operations.groups], bytes_max)
        source = ChangeSource.of(complete, old, self._schema)
        return resolve(operations, present, source, self._compared, base_offset, self._state)

    def _key(self, columns: Sequence[pa.Array | None]) -> list[pa.Array]:
        return [column for column in (columns[index] for index in self._checks.keys) if column is not None]

    def _present(
        self, hashes: Hashes, key: list[pa.Array], leaders: Longs, bytes_max: int
    ) -> tuple[PresentRows, list[pa.Array]]:
        """Look up the keys of a batch, and gather their rows, unless they may have no bytes at all."""
        if leaders.size < hashes.size:
            chosen = pa.array(leaders)
            hashes, key = hashes[leaders], [column.take(chosen) for column in key]
        slots, offsets = self._find(hashes, key)
        at = np.full(offsets.size, -1, np.int64)
        held = np.flatnonzero(offsets >= 0) if bytes_max else np.zeros(0, np.int64)
        order = held[np.argsort(offsets[held])]
        at[order] = np.arange(order.size)
        # The keys of these rows are those of the batch: what is left to fetch are the other columns.
        others = iter(self._layout.gather(offsets[order], self._compared, self._schema, bytes_max))
        again = pa.array(order)
        keys = dict(zip(self._checks.keys, (column.take(again) for column in key), strict=True))
        old = [keys[index] if index in keys else next(others) for index in range(len(self._schema))]
        return PresentRows(hashes, slots, offsets, at), old

    def _find(self, hashes: Hashes, key: Sequence[pa.Array]) -> tuple[Longs, Longs]:
        """Return slot and offset of each key's row; offset -1 where there is none. Real keys are compared."""
        slots, offsets = self._index.find(hashes)
        if self._is_exact:
            return slots, offsets
        rest = np.flatnonzero(offsets >= 0)
        while rest.size:
            rest = rest[~self._are_keys(key, rest, offsets[rest])]
            if rest.size:
                slots[rest], offsets[rest] = self._index.find_next(hashes[rest], slots[rest])
                rest = rest[offsets[rest] >= 0]
        return slots, offsets

    def _are_keys(self, key: Sequence[pa.Array], rows: Longs, offsets: Longs) -> Mask:
        """Return for some of the keys whether the rows at these offsets have them."""
        order = np.argsort(offsets)
        found = self._layout.gather(offsets[order], self._checks.keys, self._schema)
        same = np.empty(rows.size, np.bool_)
        same[order] = equal_across(key, rows[order], found, np.arange(rows.size))
        return same

    def commit(self, change: KvChange, timestamp_ms: int) -> None:
        """Apply a change, once the changelog is in the log at the change's base offset.

        Args:
            change: The last one prepared; nothing else was committed or defined since.
            timestamp_ms: Commit timestamp of its records.

        Raises:
            InternalError: The store has changed since the change was prepared.

        Cost: some 50 ns a row, and a share of merging chunks and growing the index.
        """
        if change.state != self._state:
            raise InternalError("this change was prepared from another state of the store: prepare it again")
        self._apply(change.effect, change.next_offset, timestamp_ms)

    def replay(
        self, rows: pa.RecordBatch, change_types: bytes, base_offset: int, timestamps_ms: int | npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Apply a batch of the changelog again, or several that follow one another as one, at recovery.

        Args:
            rows: Its records, in the current schema.
            change_types: One byte a record.
            base_offset: Offset of its first record: at or after `log_offset`.
            timestamps_ms: Commit timestamp of its records: one for all, or int64 for each.

        Returns:
            int64, one a record: as `KvChange.previous_offsets`.

        Raises:
            CorruptDataError: The records do not fit the rows there are: the log and the state do not belong together.
                Nothing was changed.
            InternalError: The batch lies before `log_offset`.
        """
        self._check_ahead(base_offset)
        kinds = kinds_of(change_types, rows.num_rows, base_offset)
        chosen = np.flatnonzero(kinds != ChangeType.UPDATE_BEFORE)
        if not chosen.size:
            return np.zeros(0, np.int64)
        given = self._checks.columns(rows, None, np.ones(rows.num_rows, np.bool_))
        key = [column.take(pa.array(chosen)) for column in self._key(given)]
        hashes = self._hashing.of(key)
        groups, leaders = group_keys(hashes, key, self._is_exact)
        present, _ = self._present(hashes, key, leaders, 0)
        operations = Operations(chosen, kinds[chosen] != ChangeType.DELETE, groups)
        before = operations.previous()
        previous = previous_offsets(kinds, operations, before, present, base_offset)
        source = ChangeSource(rows.columns, rows.num_rows, self._schema)
        made = effect(operations, before, present, source, base_offset + chosen)
        if not isinstance(timestamps_ms, int):
            timestamps_ms = timestamps_ms[made.offsets - base_offset]
        self._apply(made, base_offset + rows.num_rows, timestamps_ms)
        return previous

    def _apply(self, made: Effect | None, next_offset: int, timestamps_ms: int | Longs) -> None:
        if made is None:
            self._state += 1
            return
        failpoint("kv.commit.before")
        chunk, changed = self._chunk(made, timestamps_ms), made.offsets.size + made.ended.size
        with self._lock:
            # What fails from here on leaves neither the old rows nor the new ones: they must not be read.
            self._torn = True
            for held, rows in self._layout.split(np.sort(made.ended)):
                held.bury(rows)
            failpoint("kv.commit.torn")
            self._index.relocate(*made.moved)
            self._index.remove(made.removed)
            self._index.insert(*made.added)
            self._index.advance(changed)
            if chunk is not None:
                self._layout = self._layout.append(chunk)
            self._log_offset = next_offset
            self._state += 1
            self._torn = False
        # Rows that are only copied need no lock: no other thread changes them, and readers see one layout or the other.
        layout = self._rewriter.advance(self._layout, changed, self._schema_id, self._schema)
        if layout is not self._layout:
            with self._lock:
                self._layout = layout

    def _chunk(self, made: Effect, timestamps_ms: int | Longs) -> Chunk | None:
        if not made.offsets.size:
            return None
        timestamps = np.full(made.offsets.size, timestamps_ms, np.int64)
        return Chunk(KvChunk(self._ids.take(), self._schema_id, made.rows, made.offsets, timestamps))

    # -- reading -----------------------------------------------------------------------------------------------------

    def lookup(
        self, keys: pa.RecordBatch, columns: Sequence[int] | None = None
    ) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """Look up rows by primary key, all of them at one moment.

        Args:
            keys: The primary key's columns in its order, without nulls; a key may come twice.
            columns: Indexes of the columns wanted, in the order wanted; None for all.

        Returns:
            For each key whether it has a row; and the rows that there are, in the order of the keys.

        Raises:
            InvalidRecordError, InvalidRequestError: The keys do not fit the table, or there is no column of an index.
            RecordTooLargeError: The rows are too large to be gathered at once.

        Cost: some 300 ns a key for thousands of keys, some 100 us for one.
        """
        schema, layout, offsets = self._locate(self._checks.key_columns(keys))
        wanted, answer = self._answer(columns, schema)
        found = offsets >= 0
        return found, layout.rows_of(offsets[found], wanted, schema, answer)

    @property
    def takes_bits(self) -> bool:
        """Return whether `lookup_one` may be asked: different keys have different hashes."""
        return self._is_exact

    def lookup_one(self, bits: int, columns: Sequence[int]) -> pa.RecordBatch:
        """Look up one row, as `lookup` does, at half the cost.

        Args:
            bits: Of the primary key, one column of up to eight bytes, as an unsigned number.
            columns: Indexes of the columns wanted, in the order wanted.

        Returns:
            The row, or none.
        """
        schema, layout, offset = self._located_one(bits)
        wanted, answer = self._answer(columns, schema)
        return no_rows(answer) if offset < 0 else layout.row_of(offset, wanted, schema, answer)

    def _locate(self, key: list[pa.Array]) -> tuple[pa.Schema, ChunkLayout, Longs]:
        """Return the offset of each key's row, -1 where there is none, and where they are to be found, at one moment."""
        if self._is_exact and len(key[0]) == 1:
            # As most look-ups ask. Arrays of one element cost several times as much as the numbers themselves.
            schema, layout, offset = self._located_one(int(fixed_values(key[0])[0]))
            return schema, layout, np.array([offset])
        hashes = self._hashing.of(key)
        few = hashes.tolist() if self._is_exact and hashes.size <= _FEW_KEYS else None
        with self._lock:
            self._check_whole()
            offsets = self._find(hashes, key)[1] if few is None else self._index.find_few(few)
            return self._schema, self._layout, offsets

    def _located_one(self, bits: int) -> tuple[pa.Schema, ChunkLayout, int]:
        one = self._hashing.of_bits(bits)
        with self._lock:
            self._check_whole()
            return self._schema, self._layout, self._index.find_one(one)

    def _check_ahead(self, base_offset: int) -> None:
        if base_offset < self._log_offset:
            raise InternalError(
                f"changelog at offset {base_offset}: the store holds all up to {self._log_offset} already"
            )

    def invalidate(self) -> None:
        """Refuse to be read from now on."""
        self._torn = True

    def follow(self, other: KvStore) -> None:
        """Give chunks other ids than those of the store that this one replaces: snapshots know them by their ids."""
        self._ids.coming = max(self._ids.coming, other._ids.coming)

    def _check_whole(self) -> None:
        if self._torn:
            raise ServerUnavailableError("the rows are being rebuilt from the log; try again in a moment")

    def _answer(self, columns: Sequence[int] | None, schema: pa.Schema) -> tuple[list[int], pa.Schema]:
        """Return the columns wanted, checked, and the schema of rows with them."""
        chosen = None if columns is None else tuple(columns)
        asked = self._asked
        if asked is None or asked[0] != chosen or asked[1] is not schema:
            wanted = list(checked_columns(chosen, schema))
            asked = self._asked = chosen, schema, wanted, pa.schema([schema.field(index) for index in wanted])
        return asked[2], asked[3]

    def prefix_lookup(
        self, prefixes: pa.RecordBatch, columns: Sequence[int] | None = None
    ) -> tuple[npt.NDArray[np.int32], pa.RecordBatch]:
        """Look up all rows whose primary key begins with given values, at one moment.

        Args:
            prefixes: The first columns of the primary key, partition columns left out, without nulls.
            columns: Indexes of the columns wanted; None for all.

        Returns:
            How many rows each prefix has, and the rows: prefix by prefix, those of one in ascending order of the log
            offset of their last change.

        Raises:
            InvalidRecordError, InvalidRequestError, RecordTooLargeError: As `lookup`.

        Cost: some 1 us a prefix and chunk; the first time also a sort of all rows (1 s for 10 million).
        """
        places, values = self._checks.prefix_columns(prefixes)
        view = self.view()
        wanted = checked_columns(columns, view.schema)
        return prefix_rows(view.parts, values, places, self._hashing, wanted, view.schema)

    def limit_scan(self, limit: int) -> pa.RecordBatch:
        """Return up to `limit` live rows, those changed least recently first."""
        return self.view().first(limit)

    def view(self) -> KvView:
        """Return the store as it is now; later changes do not show. Cost: next to nothing, whatever the size."""
        with self._lock:
            self._check_whole()
            return KvView(self._log_offset, self._schema_id, self._schema, self._share_chunks(), self.files)

    def image(self) -> KvImage:
        """Return what a snapshot writes: all chunks that have live rows. Cost: next to nothing, whatever the size."""
        with self._lock:
            self._check_whole()
            parts = [(chunk, live) for chunk, live in self._share_chunks() if chunk.live_count]
            chunks, live = tuple(chunk.data for chunk, _ in parts), tuple(live for _, live in parts)
            return KvImage(self._log_offset, chunks, live, self._ids.coming)

    def _share_chunks(self) -> tuple[tuple[Chunk, Mask], ...]:
        for chunk in self._layout.chunks:
            chunk.shared = True
        return tuple((chunk, chunk.live) for chunk in self._layout.chunks)

    @classmethod
    def restore(
        cls,
        descriptor: TableDescriptor,
        schema_id: int,
        schemas: Mapping[int, pa.Schema],
        image: KvImage,
        *,
        hashing: KeyHash | None = None,
        limits: CompactionLimits | None = None,
    ) -> KvStore:
        """Return a store with the rows of an image; replay the changelog from its log offset on.

        Args:
            image: Checked when it was read. (The others are as for the store itself; schemas are those of every chunk.)

        Cost: some 100 ns a row for a number as key. The rows are not copied.
        """
        store = cls(descriptor, schema_id, schemas, hashing=hashing, limits=limits)
        store._index = HashIndex(image.row_count)
        chunks = tuple(Chunk(data, live, shared=True) for data, live in zip(image.chunks, image.live, strict=True))
        for chunk in chunks:
            for key, live, offsets in chunk.keys(store._checks.keys):
                store._index.insert(store._hashing.of(key)[live], offsets[live])
        store._layout = ChunkLayout(chunks)
        store._log_offset, store.files = image.log_offset, image.files
        store._ids.coming = image.next_chunk_id
        return store
