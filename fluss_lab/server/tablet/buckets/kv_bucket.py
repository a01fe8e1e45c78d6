"""The rows of one bucket of a primary-key table, kept in step with its log: the changelog is the write-ahead log.

A put is checked, then under the log's lock: compared with what is known of its writer, its changelog derived, appended,
and only then applied to the rows. So the rows are always those of the log below their offset, whatever fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import CorruptDataError, FlussError, RecordTooLargeError, ServerUnavailableError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.records.batch import NO_WRITER, Buffer, encode
from fluss_lab.records.log_records import fit_to_schema
from fluss_lab.records.row_sizes import RowLimit
from fluss_lab.records.single_key import SingleKey
from fluss_lab.server.folder.remote_storage import KV, bucket_folder
from fluss_lab.server.kv.change_derivation import KvChange
from fluss_lab.server.kv.kv_snapshot import SnapshotStore
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_memory import RowMemory
from fluss_lab.server.kv.store_view import KvImage, KvView
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.buckets.kv_replay import Replay, check_reach
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.log.batch_admission import WriterStates
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.log_segments import DerivedEntry, LogAppendInfo, LogEntry
from fluss_lab.server.tablet.log.payload_validation import CheckedPut, check_put
from fluss_lab.server.tablet.log.previous_offsets import VALUE_BYTES
from fluss_lab.server.tablet.log.segment import UNREADABLE
from fluss_lab.storage.file_store import Place

#: How many times the size allowed the rows may have that a batch replaces or completes: many of them may not change.
_EXTENT_FACTOR: Final = 4
#: Between two tries to rebuild the rows, doubled up to the second: each costs as much as opening the bucket.
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0
_BEHIND: Final = (
    "the last change is in the log, but not yet in the rows: nothing else was changed; they are being rebuilt from the log; "
    "try again in a moment"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How rows are kept: see the cluster options of the same names.

    Attributes:
        remote: ``remote.data.dir``, where snapshots are.
        snapshots_retained: Snapshots kept of each bucket.
        size_max: Bytes of a payload, and of the changelog batch that it leads to, at most.
        memory: Of all rows of the server.
        check_remote: Raises `StorageError` while ``remote.data.dir`` is not there.
        holds: Whether this server writes snapshots: of a lab that is only read, it does not.
    """

    remote: Place
    snapshots_retained: int
    size_max: int
    memory: RowMemory
    check_remote: Callable[[], None] = lambda: None
    holds: bool = True


@dataclass(slots=True)
class _Behind:
    """Why the rows are behind the log, and when to try again to rebuild them.

    Attributes:
        reason: What failed last.
        pause_s: Until the next try, doubled with each.
        due_s: When that is, by the machine's clock.
    """

    reason: str
    pause_s: float = _PAUSE_FIRST_S
    due_s: float = 0.0

    def note_failure(self, reason: str) -> None:
        """Note that a try has failed."""
        self.reason = reason
        self.due_s = time.monotonic() + self.pause_s
        self.pause_s = min(2 * self.pause_s, _PAUSE_MAX_S)

    def check(self, path: TablePath) -> None:
        """Raise `ServerUnavailableError` unless it is time to try."""
        if time.monotonic() < self.due_s:
            raise ServerUnavailableError(f"{path}: {_BEHIND} ({self.reason})")


class KvBucket:
    """The rows of one bucket. Safe for threads: puts take the log's lock, reads take none.

    Args:
        log: Its changelog.
        store: Its rows, as far as the log goes.
        options: How rows are kept.
        failure: Why the rows cannot be read: they could not be brought up to the log's end.

    Attributes:
        key_schema: In which keys are looked up.
        single_key: Reads single keys; None where they are not one integer.
    """

    def __init__(
        self,
        table: RegisteredTable,
        log: BucketLog,
        store: KvStore,
        snapshots: SnapshotStore,
        options: RowOptions,
        failure: FlussError | None = None,
    ) -> None:
        self.table, self.log, self.store, self.snapshots = table, log, store, snapshots
        self.lock = log.lock
        # The key's columns stay as they are, whatever becomes of the table.
        self.key_schema = key_schema(table.descriptor, table.descriptor.schema.primary_key)
        self.single_key = SingleKey.of(self.key_schema) if store.takes_bits else None
        self._size_max, self._memory = options.size_max, options.memory
        self._row_limit = RowLimit.of(options.size_max, keyed=True)
        self._failure = failure
        self._behind: _Behind | None = None
        self._definition, self._schema_id = table.definition, table.schema_id

    @staticmethod
    def open(
        table: RegisteredTable,
        log: BucketLog,
        bucket: TableBucket,
        partition: str | None,
        options: RowOptions,
        logger: BucketLogger,
    ) -> KvBucket:
        """Return the bucket as its newest whole snapshot and its log have it.

        What is damaged does not raise: the bucket cannot be written then, and its rows not be read; the log can.

        Raises:
            StorageError, OSError: The file system refused to read or repair it.
        """
        folder = bucket_folder(options.remote, KV, table.path, partition, bucket)
        snapshots = SnapshotStore(
            folder, retained=options.snapshots_retained, bucket=bucket, check=options.check_remote, holds=options.holds
        )
        # As it is now: when it is altered while the log is replayed, the store follows with the first call after it.
        definition, schema_id = table.definition, table.schema_id
        fresh = KvStore(table.descriptor, schema_id, table.schemas)
        if log.stopped is not None:
            return KvBucket(table, log, fresh, snapshots, options, log.stopped)
        try:
            store = options.memory.watch(_restore(table, schema_id, log, snapshots, fresh))
            check_reach(table.path, store, log.start, snapshots.folder)
            schema, pace = table.schemas[schema_id], options.memory.pace
            replay = Replay(log.reader.view, store, table.schemas, schema, pace=pace)
            replay.run()
        except UNREADABLE as error:
            log.end_by(error)
            return KvBucket(table, log, fresh, snapshots, options, error)
        if replay.mended:
            logger.info("the previous offsets of %d batches were written again", replay.mended)
        opened = KvBucket(table, log, store, snapshots, options)
        opened._definition, opened._schema_id = definition, schema_id
        return opened

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, payload: Sequence[Buffer], columns: Sequence[int], wait_ms: int = 0) -> LogAppendInfo:
        """Make all changes of a payload or none, and log them; a retry returns where they are logged already.

        Args:
            payload: One batch of rows with change types: see `check_put`.
            columns: Indexes of the columns that the rows have, ascending, the key's among them; empty for all.
            wait_ms: How long to wait for a writer's earlier batch that is still on its way.

        Returns:
            The offsets of the changelog: none when nothing changed. Pass it to `BucketLog.acknowledge` before the
            put is answered.

        Raises:
            InvalidRecordError: Rows that do not fit the table.
            RecordTooLargeError: The payload, a row as it would become, or the changelog is too large; send smaller batches.
            FlussError: As `BucketLog.append_derived`.
        """
        table = self.table
        self._catch_up()
        self._memory.wait()
        put = check_put(
            payload,
            columns,
            table.descriptor.schema.primary_key,
            table.schemas,
            current_schema_id=table.schema_id,
            size_max=self._size_max,
        )
        return self.log.append_derived(put.batch, wait_ms, lambda base_offset: self._derive(put, columns, base_offset))

    def _derive(self, put: CheckedPut, columns: Sequence[int], base_offset: int) -> DerivedEntry:
        if self._behind is not None:  # since this put began
            raise ServerUnavailableError(f"{self.table.path}: {_BEHIND}")
        self._follow_table()
        header, rows = put.batch.header, put.rows
        known = len(rows.schema) if not columns and header.schema_id != self._schema_id else None
        if columns:
            names: Sequence[str] | None = rows.schema.names
        else:
            names, rows = None, _widen(rows, self.table.schemas[self._schema_id])
        # What would be far too large is refused before it takes the memory for it.
        extent = _EXTENT_FACTOR * self._size_max
        change = self.store.prepare(
            rows, put.change_types, base_offset=base_offset, columns=names, known=known, bytes_max=extent
        )
        # As it will be, also where only a part of it was sent: an update must be possible afterwards.
        self._row_limit.check(change.rows, bytes(change.change_types))
        if not change.rows.num_rows and header.writer_id == NO_WRITER:
            return DerivedEntry(None, _nothing)
        entry = LogEntry.encode(
            encode(
                change.rows,
                schema_id=self._schema_id,
                writer_id=header.writer_id,
                batch_sequence=header.batch_sequence,
                change_types=bytes(change.change_types),
            ),
            change.previous_offsets,
            header.crc,
        )
        # It must fit into one answer, with its previous offsets beside it.
        if (size := entry.header.size + VALUE_BYTES * entry.header.record_count) > self._size_max:
            raise RecordTooLargeError(
                f"the changelog of these {rows.num_rows} rows would have {size} bytes, expected at most {self._size_max}; "
                "send smaller batches"
            )
        return DerivedEntry(entry, lambda timestamp_ms: self._commit(change, timestamp_ms))

    def _commit(self, change: KvChange, timestamp_ms: int) -> None:
        if not change.rows.num_rows:
            return
        try:
            self.store.commit(change, timestamp_ms)
        except Exception as error:
            # The change is in the log, so it is made; the rows are behind until they are rebuilt.
            self.store.invalidate()
            self._behind = _Behind(f"{type(error).__name__}: {error}")
            log.exception("%s: a change is in the log, but not in the rows", self.table.path)

    def _catch_up(self) -> None:
        """Rebuild the rows from the newest snapshot and the log, if a change of the log could not be applied to them.

        Raises:
            ServerUnavailableError: That failed too, and is tried again in a while.
            CorruptDataError: Log and snapshot do not give the rows.
        """
        if self._behind is None and (changed := self.store.files.find_changed()) is not None:
            self._lose_rows(f"{changed} was changed since it was read")
        if self._behind is None:
            return
        self.log.settle()  # what is not readable yet would be missing
        with self.lock:
            behind = self._behind
            if behind is None:
                return
            behind.check(self.table.path)
            try:
                self._rebuild()
            except UNREADABLE as error:
                self._failure, self._behind = error, None
                self.log.end_by(error)
                raise
            except Exception as error:
                behind.note_failure(f"{type(error).__name__}: {error}")
                log.exception("%s: the rows could not be rebuilt", self.table.path)
                behind.check(self.table.path)
            self._behind = None

    def _lose_rows(self, reason: str) -> None:
        with self.lock:
            if self._behind is None and self.store.files.find_changed() is not None:
                self.store.invalidate()
                self._behind = _Behind(reason)
                log.error("event=rows_lost table=%s error=%s", self.table.path, reason)

    def _rebuild(self) -> None:
        table = self.table
        # The old rows go first: memory may be what was missing.
        invalid = KvStore(table.descriptor, table.schema_id, table.schemas)
        invalid.invalidate()
        invalid.follow(self.store)
        self.store = invalid
        failpoint("kv.remake.before")
        definition, schema_id = table.definition, table.schema_id
        loaded = self.snapshots.load(table.schemas)
        if loaded is None:
            store = KvStore(table.descriptor, schema_id, table.schemas)
        else:
            store = KvStore.restore(table.descriptor, schema_id, table.schemas, loaded[1])
        store.follow(invalid)
        check_reach(table.path, store, self.log.start, self.snapshots.folder)
        schema, pace = table.schemas[schema_id], self._memory.pace
        Replay(self.log.reader.view, self._memory.watch(store), table.schemas, schema, confirms=False, pace=pace).run()
        if store.log_offset != self.log.end:
            raise ServerUnavailableError(f"expected rows up to offset {self.log.end}, found {store.log_offset}")
        self.store, self._definition, self._schema_id = store, definition, schema_id

    def _follow_table(self) -> None:
        """Take over the table's definition, if it is another one by now."""
        table = self.table
        if self._definition is table.definition:
            return
        with self.lock:
            definition, schema_id = table.definition, table.schema_id
            self.store.define(table.descriptor, schema_id, table.schemas)
            self._definition, self._schema_id = definition, schema_id

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def schema_id(self) -> int:
        """Return the schema id of the rows that are read."""
        self._follow_table()
        return self._schema_id

    def check_readable(self) -> None:
        """Raise the reason why the rows cannot be read, if there is one."""
        if self._failure is not None:
            raise type(self._failure)(f"{self.table.path}: the rows cannot be read: {self._failure}")
        self._catch_up()

    @property
    def memory_problem(self) -> str:
        """Return why the server's rows take more memory than they should; empty when they do not."""
        return self._memory.problem

    @property
    def is_live(self) -> bool:
        """Return whether the rows are those of the whole log, whatever became of the log's files since they were made."""
        is_current = self._failure is None and self._behind is None and self.store.log_offset == self.log.end
        return is_current and self.store.files.find_changed() is None

    def rows_offset(self) -> int:
        """Return the offset from which on the log is needed to rebuild the rows: its end where they are in memory.

        Raises:
            FlussError: A snapshot cannot be read at the moment, or has rows of a newer version.

        Cost: where they are not, a snapshot is read, and not kept.
        """
        if self.is_live:
            return self.log.end
        found = self.snapshots.check(self.table.schemas)
        return 0 if found is None else found.log_offset

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[int]) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """Return which keys have a row, and the rows; call `BucketLog.settle` before the answer."""
        self.check_readable()
        return self.store.lookup(keys, columns)

    def lookup_one(self, bits: int, columns: Sequence[int]) -> pa.RecordBatch:
        """Return the row of one key, by the bits that `single_key` gives, if there is one; else as `lookup`."""
        self.check_readable()
        return self.store.lookup_one(bits, columns)

    def prefix_lookup(
        self, prefixes: pa.RecordBatch, columns: Sequence[int]
    ) -> tuple[npt.NDArray[np.int32], pa.RecordBatch]:
        """Return how many rows each prefix has, and the rows; call `BucketLog.settle` before the answer."""
        self.check_readable()
        return self.store.prefix_lookup(prefixes, columns)

    def limit_scan(self, limit: int) -> pa.RecordBatch:
        """Return up to some live rows, whichever; call `BucketLog.settle` before the answer."""
        self.check_readable()
        return self.store.limit_scan(limit)

    def view(self) -> KvView:
        """Return the rows as they are now; call `BucketLog.settle` before the answer."""
        self.check_readable()
        return self.store.view()

    # -- previous offsets ----------------------------------------------------------------------------------------------

    def previous(self, start: int, stop: int) -> bytes:
        """Return the previous offsets of records: see `BucketLogReader.previous`. Damaged ones are rebuilt from the log.

        Raises:
            OffsetOutOfRangeError: The records are no longer held.
            CorruptDataError: They are damaged or lost, and neither the log nor a snapshot reaches back far enough.

        Cost: a rebuild replays the log, or what follows the newest snapshot; writes of the bucket wait for it.
        """
        try:
            return self.log.reader.previous(start, stop)
        except CorruptDataError as error:
            self.rebuild_previous(start, stop, error)
            return self.log.reader.previous(start, stop)

    def rebuild_previous(self, start: int, stop: int, damage: CorruptDataError) -> bool:
        """Write the previous offsets of records again, from the log; return False when they are not damaged.

        Raises:
            CorruptDataError: Neither the log nor a snapshot reaches back far enough; or the log is damaged too.
        """
        with self.lock:
            try:
                self.log.reader.previous(start, stop)
            except CorruptDataError:
                pass
            else:
                return False  # or another reader had the same damage rebuilt
            # What is not on the device yet is the log's too: with the rest of its marks it would be cut off.
            view, table = self.log.whole(), self.table
            schema_id = table.schema_id
            store = self._store_before(start, view.start, schema_id)
            if store is None or view.end != self.log.end:
                raise CorruptDataError(
                    f"{damage}; they can be rebuilt neither from the log, which begins at {view.start}, nor from a snapshot "
                    "before them: restore the file from a copy"
                ) from damage
            store, pace = self._memory.watch(store), self._memory.pace
            replay = Replay(view, store, table.schemas, table.schemas[schema_id], pace=pace)
            replay.run()
        log.warning("event=previous_offsets_rebuilt table=%s batches=%d damage=%s", table.path, replay.mended, damage)
        return True

    def _store_before(self, offset: int, log_start: int, schema_id: int) -> KvStore | None:
        """Return a store as it was at an offset from which the log can be replayed, at or before the one given."""
        table = self.table
        if log_start == 0:
            return KvStore(table.descriptor, schema_id, table.schemas)
        loaded = self.snapshots.load(table.schemas)
        if loaded is None or loaded[0].log_offset > offset:
            return None
        return KvStore.restore(table.descriptor, schema_id, table.schemas, loaded[1])

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def capture(self) -> tuple[KvImage, object]:
        """Return the rows and the writers as they are at one offset, for a snapshot.

        The snapshot may be completed when `BucketLog.sync` has returned since.

        Raises:
            FlussError: The rows are not those of the log.
        """
        self.check_readable()
        with self.lock:
            return self.store.image(), self.log.writers().to_json()


def key_schema(descriptor: TableDescriptor, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema in which keys travel, or parts of them: some columns, not null."""
    return pa.schema([pa.field(name, descriptor.schema.column(name).type.arrow(), nullable=False) for name in names])


def _restore(
    table: RegisteredTable, schema_id: int, log: BucketLog, snapshots: SnapshotStore, fresh: KvStore
) -> KvStore:
    """Return the rows of the newest whole snapshot; without one, none, which is right at the log's first offset."""
    loaded = snapshots.load(table.schemas)
    if loaded is None:
        return fresh
    completed, image = loaded
    try:
        log.adopt_writers(WriterStates.from_json(completed.writers))
    except CorruptDataError as error:
        raise CorruptDataError(f"snapshot {completed.snapshot_id}: its writers cannot be read: {error}") from error
    return KvStore.restore(table.descriptor, schema_id, table.schemas, image)


def _widen(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of an older schema with the columns that were added since, null; nullability stays as it was sent."""
    if len(rows.schema) == len(schema):
        return rows
    known = {field.name: field for field in rows.schema}
    return fit_to_schema(rows, pa.schema([known.get(field.name, field) for field in schema]))


def _nothing(_timestamp_ms: int) -> None:
    """Do nothing: nothing changed."""
