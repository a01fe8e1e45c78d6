"""The commit of a batch of staged rows into a table, exactly once, wherever the process that does it dies.

1. The batch is written down (`Intent`): which staged rows, for which bucket, in which order, under which writer id and
   numbers. From here on this is the batch: what tasks stage when Spark runs it again is thrown away.
2. Its rows are sent under these numbers; see `fluss_lab.spark.sink.sink_resend`.
3. The batch is noted as done, and what it needed is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fluss_lab.client import Connection
from fluss_lab.client.write.delete_check import check_absence
from fluss_lab.errors import (
    CorruptDataError,
    InternalError,
    InvalidRequestError,
    PartitionExistsError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model import OffsetSpec, PartitionInfo, TableBucket
from fluss_lab.model.config.options import WRITER_DYNAMIC_PARTITIONS
from fluss_lab.model.names import BucketKey, partition_values
from fluss_lab.model.times import format_moment
from fluss_lab.spark.sink.complete_mode import stage_gone
from fluss_lab.spark.sink.sink_journal import FIRST_BATCH, Intent, IntentBucket, SinkFolder, SinkState
from fluss_lab.spark.sink.sink_resend import SinkResend, new_writer_id
from fluss_lab.spark.sink.sink_rows import RowForm
from fluss_lab.spark.sink.sink_staging import StagedFile


class SinkCommit:
    """Writes batches into one table. Used by one thread of one process at a time, which the folder's lock sees to.

    Args:
        connection: To the cluster.
        form: How rows were staged.
        whole: Whether a batch is all that the table is to hold: rows of other keys are deleted with it.
    """

    def __init__(self, connection: Connection, form: RowForm, folder: SinkFolder, *, whole: bool = False) -> None:
        self._connection = connection
        self._form = form
        self._info = form.info
        self._folder = folder
        self._is_whole = whole

    def commit(self, batch_id: int, staged: Sequence[StagedFile], query: str, extent: str | None = None) -> None:
        """Write a batch, or the rest of it; nothing when it is done already.

        Args:
            batch_id: Spark's number of it; ascending.
            staged: What its tasks staged, in their order.
            query: Id of the streaming query; another one must not go on with this folder.
            extent: Stands for how far Spark's checkpoint says that the batch goes; None: not known.

        Raises:
            InvalidRequestError: The folder is another query's.
            TableNotFoundError: The table was dropped; also when another one has its path now.
            UnavailableError: Another process has been writing for too long.
            CommitOutcomeUnknownError: See `SinkResend.run`.
            CorruptDataError: What the folder has is damaged, does not know of the batches before, or knows this one, or later
                ones, otherwise: Spark's part of the checkpoint is older, or parts of it were removed.
            FlussError: Rows were refused; none of later batches was sent.
        """
        with self._folder.locked(2 * self._connection.request_timeout_ms / 1000):
            state = self._check_state(self._load_state(batch_id, query), query)
            intent = self._folder.intent(self._info.table_id)
            if intent is not None and intent.batch_id <= state.done:
                self._folder.clear(state.done)
                intent = None
            if intent is not None:
                self._check_table(intent.table_id, intent.created_ms)
            self._check_same(batch_id, extent, state, intent)
            if batch_id > state.done:
                self._write(batch_id, staged, replace(state, extent=extent), intent)
            # What tasks staged for a batch that was written down or done before.
            self._folder.remove(each.name for each in staged)

    def _load_state(self, batch_id: int, query: str) -> SinkState:
        """Return the state of the sink; a new one for the first batch.

        Its writer id is decided before anything is sent: where a copy of notes without one is gone on with, rows would come again
        under another one.
        """
        state = self._folder.state()
        if state is None and batch_id > FIRST_BATCH:
            raise CorruptDataError(
                f"{self._folder.path}: expected notes of the batches before batch {batch_id}, found none: whether this one was "
                "written already is not known. Restore the folder with the checkpoint, from one backup; or start a new query, "
                "with a new checkpoint, behind what the table has"
            )
        return state or SinkState(self._info.table_id, query, writer_id=new_writer_id(self._connection, self._info))

    def _check_state(self, state: SinkState, query: str) -> SinkState:
        self._check_table(state.table_id, state.created_ms)
        if state.query != query:
            raise InvalidRequestError(
                f"{self._folder.path}: expected batches of query {state.query!r}, found query {query!r}: a new query would "
                "have its first batches taken for those that the old one wrote; give it a folder of its own"
            )
        return replace(state, created_ms=self._info.created_ms)

    def _check_same(self, batch_id: int, extent: str | None, state: SinkState, intent: Intent | None) -> None:
        """See that a batch that was written down or done is the one that Spark runs again.

        Spark runs the last one again, as it was. One that it plans anew, since its own notes of it are gone, may have other
        records, which would be taken for written.
        """
        known = state.extent if batch_id == state.done else None
        if intent is not None and intent.batch_id == batch_id:
            known = intent.extent
        if batch_id < state.done:
            expected, found = f"batch {state.done} or {state.done + 1}", f"batch {batch_id} again"
        elif known is not None and extent is not None and known != extent:
            expected, found = f"batch {batch_id} as it was", "one that ends elsewhere"
        else:
            return
        raise CorruptDataError(
            f"{self._folder.path}: expected {expected}, found {found}: the query's checkpoint is older than what it wrote, or a part "
            "of it (offsets, commits) was removed. Nothing of the batch was written now. Restore the checkpoint; or start a new query, "
            "with a new checkpoint, behind what the table has"
        )

    def _check_table(self, table_id: int | None, created_ms: int | None) -> None:
        """See that the table is the one that notes are of; what they do not say is None."""
        if table_id is not None and table_id != self._info.table_id:
            raise TableNotFoundError(
                f"write to {self._info.path}: expected the table with id {table_id}, found id {self._info.table_id}: it was dropped "
                "and made again; start a new query, with a new checkpoint"
            )
        if created_ms is not None and created_ms != self._info.created_ms:
            raise TableNotFoundError(
                f"write to {self._info.path}: expected the table that was made at {format_moment(created_ms)}, found one of the same "
                f"id that was made at {format_moment(self._info.created_ms)}: it is another lab's; start a new query, with a new "
                "checkpoint"
            )

    def _write(self, batch_id: int, staged: Sequence[StagedFile], state: SinkState, intent: Intent | None) -> None:
        if intent is None:
            if self._is_whole:
                # Which rows are deleted is decided once, and journalled with the batch.
                staged = [*staged, stage_gone(self._connection, self._form, self._folder.staged, batch_id, staged)]
            intent = self._make_intent(batch_id, staged, state)
            if intent.buckets:
                failpoint("sink.intent.before")
                self._folder.write_intent(intent)
                failpoint("sink.intent.after")
        elif intent.batch_id != batch_id:
            raise CorruptDataError(
                f"{self._folder.path}: batch {intent.batch_id} is under way, so batch {batch_id} cannot be next: this is not "
                "the checkpoint that the folder belongs to"
            )
        positions = SinkResend(self._connection, self._info, self._folder, intent).run()
        failpoint("sink.done.before")
        writers = self._live_writers(state.writers) | {
            each.bucket: (position.writer_id, position.sequence)
            for each, position in zip(intent.buckets, positions, strict=True)
        }
        self._folder.write_state(replace(state, done=batch_id, writers=writers))
        failpoint("sink.done.after")
        self._folder.clear(batch_id)

    def _live_writers(self, writers: Mapping[TableBucket, tuple[int, int]]) -> dict[TableBucket, tuple[int, int]]:
        """Return the writers of buckets that still are."""
        if not self._info.descriptor.partitioned_by:
            return dict(writers)
        known = {each.partition_id for each in self._connection.partitions(self._info, refresh=False).values()}
        return {bucket: writer for bucket, writer in writers.items() if bucket.partition_id in known}

    # -- 1: what a batch is --------------------------------------------------------------------------------------------

    def _make_intent(self, batch_id: int, staged: Sequence[StagedFile], state: SinkState) -> Intent:
        """Decide what a batch is made of. Partitions that it needs are made."""
        files = [each for each in staged if each.name]
        runs: dict[BucketKey, list[tuple[int, int, int]]] = {}
        written: set[str | None] = set()
        for number, file in enumerate(files):
            if file.schema_id != files[0].schema_id:
                raise InternalError(
                    f"batch {batch_id}: tasks staged rows of schemas {files[0].schema_id}, {file.schema_id}"
                )
            for place, run in enumerate(file.runs):
                runs.setdefault((run.partition, run.bucket), []).append((number, place, run.rows))
                if run.writes:
                    written.add(run.partition)
        partitions = self._partitions({name for name, _ in runs if name is not None}, written)
        found = [key for key in runs if key[0] is None or key[0] in partitions]
        buckets: list[IntentBucket] = []
        writer_id: int | None = None
        for name in dict.fromkeys(name for name, _ in found):
            partition = None if name is None else partitions[name]
            numbers = sorted(number for other, number in found if other == name)
            ends = self._connection.admin().list_offsets(
                self._info, OffsetSpec.latest(), partition=partition, buckets=numbers
            )
            for number in numbers:
                partition_id = None if partition is None else partition.partition_id
                bucket = TableBucket(self._info.table_id, partition_id, number)
                writer = state.writers.get(bucket)
                if writer is None:
                    writer_id = self._usual_writer(state) if writer_id is None else writer_id
                    writer = (writer_id, 0)
                buckets.append(IntentBucket(bucket, name, *writer, ends[number].offset, tuple(runs[name, number])))
        names = tuple((each.name, each.size_bytes) for each in files)
        # The table may have got columns since tasks staged its rows.
        schema_id = files[0].schema_id if files else self._info.schema_id
        return Intent(
            batch_id, schema_id, self._form.targets, names, tuple(buckets), self._info.table_id, self._info.created_ms,
            state.extent,
        )  # fmt: skip

    def _usual_writer(self, state: SinkState) -> int:
        """Return the writer id for buckets that are met for the first time: one for all, as long as none was forgotten."""
        known = [writer_id for writer_id, _ in state.writers.values()]
        if not known and state.writer_id is not None:
            return state.writer_id
        return max(known) if known else new_writer_id(self._connection, self._info)

    def _partitions(self, names: set[str], written: set[str | None]) -> Mapping[str, PartitionInfo]:
        """Return the partitions of rows; those that do not exist are made, unless all their rows are deletes.

        Raises:
            UnsupportedError: Rows to delete are in a partition that only the lake has, where none is deleted by itself.
        """
        if not names:
            return {}
        known = self._connection.partitions(self._info)
        missing = sorted(name for name in names - known.keys() if name in written)
        # Rows to delete in a partition that neither cluster nor lake has are not there.
        deleted = names - known.keys() - written
        check_absence(self._connection, self._info, deleted, f"write to {self._info.path}")
        if not missing:
            return known
        if not WRITER_DYNAMIC_PARTITIONS.of(self._connection.options):
            raise PartitionNotFoundError(
                f"write to {self._info.path}: partition {missing[0]!r} does not exist; create it first, or set "
                f"{WRITER_DYNAMIC_PARTITIONS.key}=true; nothing of the batch was sent"
            )
        columns = self._info.descriptor.partitioned_by
        specs = [dict(zip(columns, partition_values(name), strict=True)) for name in missing]
        try:
            self._connection.admin().create_partitions(self._info.path, specs, if_not_exists=True)
        except PartitionExistsError as error:
            raise PartitionExistsError(f"write to {self._info.path}: {error}; nothing of the batch was sent") from error
        known = self._connection.partitions(self._info)
        if gone := sorted(name for name in missing if name not in known):
            raise PartitionNotFoundError(
                f"write to {self._info.path}: partition {gone[0]!r} was dropped as soon as it was made; nothing of the batch was "
                "sent: start the query again"
            )
        return known
