"""The lake-tiering state machine: which tierer holds which table, and when.

::

    New, Initialized ─► Scheduled ─► Pending ─► Tiering ─► Tiered ─► Scheduled
                                        ▲          │          └────► Pending  (force-finished)
                                        └─ Failed ◄┘

A table is *New* when it is created (or its lake enabled) and *Initialized* when a coordinator finds it at its start.
A failed round is retried after a back-off (a cancelled one too, though it is no failure of the table's); at once when the table was altered, which may have fixed the cause, and after the
longest back-off when only a person can fix it. A round requested by hand never waits. Each entry to Pending gives the table
the next tiering epoch; only the holder of the newest one may commit. State and epoch are durable before any tierer gets
them; the holder of a table and its last heartbeat are not: after a restart of the coordinator no table has a holder,
because the coordinator has a new epoch.

There is no timer thread: states are brought up to date when they are read.

Source: Apache Fluss ``LakeTableTieringManager``, with durable epochs, back-off, and detection of holders that ended.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    ERROR_CODES,
    CommitOutcomeUnknownError,
    ConflictError,
    FencedTieringEpochError,
    InternalError,
    LakeNotConfiguredError,
    StorageError,
    TableNotFoundError,
    TieringCancelledError,
)
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.config.options import DATALAKE_ENABLED, DATALAKE_FRESHNESS
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.tiering.leaving_tierers import LeavingTierers
from fluss_lab.server.coordinator.tiering.round_history import RoundHistory
from fluss_lab.server.coordinator.tiering.round_metrics import TieringStats
from fluss_lab.server.coordinator.tiering.table_tiering import (
    PREDECESSORS,
    TableTiering,
    TieringState,
    stored_tiering,
    write_tiering,
)
from fluss_lab.server.coordinator.tiering.tierer_leases import LeaseTimes, TiererLease

log = logging.getLogger(__name__)

#: Characters kept of an error's text; it is shown in tables.
ERROR_LENGTH_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class TieringGrant:
    """A table granted to a tierer.

    Attributes:
        takeover: Whether an earlier epoch did not end by itself: fence it before planning.
    """

    table_id: int
    path: TablePath
    epoch: int
    takeover: bool


class TieringManager:
    """Keeps the state of every lake-enabled table's tiering. Threads may share it.

    Args:
        store: The metadata file; its lock is this manager's.
        clock: Wall time for freshness, monotonic time for silence.
        coordinator_epoch: This start of the coordinator.
        lease_times: After which silence a tierer loses its table.
        rounds_kept: Rounds that the history of each table keeps.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        *,
        coordinator_epoch: int,
        lease_times: LeaseTimes,
        rounds_kept: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch
        self._lease_times = lease_times
        self._tables: dict[int, TableTiering] = {}
        self._leases: dict[int, TiererLease] = {}
        self.stats = TieringStats(clock)
        self._history = RoundHistory(store, rounds_kept)
        #: Who held a table when it was dropped.
        self.leaving = LeavingTierers(lease_times.takeover_ms)
        # Pending tables in order of arrival -> monotonic time before which only a request by id gets them.
        self._queue: OrderedDict[int, int] = OrderedDict()
        # Coordinator and tiering epoch of the last finished round: its report may arrive twice.
        self._finished: dict[int, tuple[int, int]] = {}
        # Whether transitions that are due could not be written.
        self._is_behind = False

    # -- tables come, change and go ----------------------------------------------------------------------------------

    def register(self, info: TableInfo, *, new: bool) -> None:
        """Start the tiering of a lake-enabled table; of a known one, update the options.

        Args:
            new: Whether it was just created, or its lake enabled. An earlier epoch is continued.
        """
        freshness_ms = DATALAKE_FRESHNESS.of(info.descriptor.properties)
        with self._store.read():
            if (known := self._tables.get(info.table_id)) is not None:
                self._tables[info.table_id] = replace(known, freshness_ms=freshness_ms)
                if info.table_id in self._queue:
                    self._queue[info.table_id] = self._clock.monotonic_ms()
                return
            first = TieringState.NEW if new else TieringState.INITIALIZED
            fresh = TableTiering(info.table_id, info.path, freshness_ms, first, self._clock.now_ms())
            stored = stored_tiering(self._store, info.table_id)
            if stored is not None:
                fresh = replace(stored, path=info.path, freshness_ms=freshness_ms, state=first)
                if new:
                    fresh = replace(fresh, since_ms=self._clock.now_ms(), failures=0, last_error=None)
            try:
                self._move(fresh, TieringState.SCHEDULED)
            except StorageError as error:
                # The table is there by now, and must not be left out: it is written when its first round is due.
                log.warning("event=tiering_state_not_written table=%s error=%s", info.path, error)
                self._tables[info.table_id] = replace(fresh, state=TieringState.SCHEDULED)

    def remove(self, table_id: int) -> None:
        """Forget a table whose lake was disabled, or that was dropped; its holder may no longer commit."""
        with self._store.read():
            self._tables.pop(table_id, None)
            self._leases.pop(table_id, None)
            self._queue.pop(table_id, None)
            self._finished.pop(table_id, None)
            self.stats.forget(table_id)

    def drop(self, table_id: int) -> None:
        """Forget a dropped table, but not its holder: see `leaving_tierers`."""
        with self._store.read():
            if (lease := self._leases.get(table_id)) is not None:
                self.leaving.add(table_id, self._tables[table_id].epoch, lease.session_id)
            self.remove(table_id)

    def states(self) -> list[TableTiering]:
        """Return every table's tiering as it is now, by table id."""
        return [table for table, _ in self.schedule()]

    def schedule(self) -> list[tuple[TableTiering, int | None]]:
        """Return every table's tiering as it is now, by table id, and when its next round is due (epoch milliseconds).

        None: a round is under way.
        """
        with self._store.read():
            self._tick()
            return [(self._tables[table_id], self._due_ms(table_id)) for table_id in sorted(self._tables)]

    def rounds(self, table_id: int) -> list[pb.PbTieringRound]:
        """Return the last rounds of a table, oldest first; of one that was never tiered none."""
        with self._store.read():
            if table_id in self._tables:
                self._tick()
            held = self._tables[table_id].epoch if table_id in self._leases else None
            return self._history.rounds(table_id, held)

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def fail(
        self,
        table_id: int,
        coordinator_epoch: int,
        epoch: int,
        message: str,
        error_code: int | None = None,
        facts: pb.PbRoundFacts | None = None,
        *,
        is_upkeep: bool = False,
    ) -> None:
        """End a holder's round as failed: the table becomes pending after a back-off.

        Args:
            coordinator_epoch: As given with the table.
            epoch: As given with the table.
            message: The reason, as text.
            error_code: The reason, as a wire code; one of `FOR_A_PERSON` has the longest back-off.
            facts: What the tierer says of the round, for the history.
            is_upkeep: Whether it was no round: the history does not keep it.

        Raises:
            TableNotFoundError, LakeNotConfiguredError, ConflictError, FencedTieringEpochError: See `_lease`.
        """
        with self._store.read():
            self.leaving.note_round_end(table_id, epoch)
            lease = self._lease(table_id, coordinator_epoch, epoch)
            # A round that had to fence a predecessor may have failed before it did.
            self._fail(
                table_id, message, unfinished=lease.takeover, error_code=error_code, facts=facts, is_upkeep=is_upkeep
            )

    def renew(self, table_id: int, coordinator_epoch: int, epoch: int, session_id: int | None = None) -> None:
        """Note that a holder's round is still running.

        Raises:
            TableNotFoundError, LakeNotConfiguredError, ConflictError, FencedTieringEpochError: See `_lease`.
        """
        with self._store.read():
            lease = self._lease(table_id, coordinator_epoch, epoch)
            lease.heard_ms = self._clock.monotonic_ms()
            if session_id is not None:
                lease.session_id = session_id

    def finish(
        self,
        table_id: int,
        coordinator_epoch: int,
        epoch: int,
        *,
        again: bool = False,
        size_bytes: int | None = None,
        records: int | None = None,
        facts: pb.PbRoundFacts | None = None,
        unfinished: bool = False,
        is_upkeep: bool = False,
    ) -> None:
        """End a holder's round as finished; a repeated report is ignored.

        Args:
            coordinator_epoch: As given with the table.
            epoch: As given with the table.
            again: The round ended early: the table becomes pending at once.
            size_bytes: Bytes of the files that the round wrote, for metrics.
            records: Rows that it wrote, for metrics.
            facts: What the tierer says of the round, for the history. None: of a tierer of an older release those two; it
                held the table for its upkeep where it wrote nothing.
            unfinished: A commit of the upkeep after the round may still arrive: it is fenced before the table is worked on again.
            is_upkeep: Whether it was no round: when the last one was stays as it is.

        Raises:
            TableNotFoundError, LakeNotConfiguredError, ConflictError, FencedTieringEpochError: See `_lease`.
        """
        with self._store.read():
            self.leaving.note_round_end(table_id, epoch)
            if self._finished.get(table_id) == (coordinator_epoch, epoch):
                return
            self._lease(table_id, coordinator_epoch, epoch)
            now_ms = self._clock.now_ms()
            done = replace(self._tables[table_id], unfinished=unfinished, failures=0, last_error=None)
            if not is_upkeep:
                done = replace(done, last_tiered_ms=now_ms)
                self.stats.note_finish(table_id, size_bytes=size_bytes, records=records)
            if facts is None and records:
                facts = pb.PbRoundFacts(row_count=records, size_in_bytes=size_bytes)
            self._move(
                done, TieringState.TIERED, TieringState.PENDING if again else TieringState.SCHEDULED,
                note=lambda: self._history.finish(table_id, epoch, now_ms, facts),
            )  # fmt: skip
            self._finished[table_id] = (coordinator_epoch, epoch)

    def request_due(self, session_id: int | None) -> TieringGrant | None:
        """Grant the table that has been due for longest; None when none is due."""
        self._store.reserve.check_writable("no tiering round was begun")
        with self._store.read():
            self._tick()
            now_ms = self._clock.monotonic_ms()
            for table_id, not_before_ms in self._queue.items():
                if not_before_ms <= now_ms:
                    return self._grant(table_id, session_id)
            return None

    def request(self, table_id: int, session_id: int | None) -> TieringGrant:
        """Grant one table, due or not. A holder that was silent for the takeover time loses it.

        Raises:
            TableNotFoundError, LakeNotConfiguredError: There is no such table, or it is not tiered.
            TieringInProgressError: A live tierer holds it.
        """
        self._store.reserve.check_writable("nothing was begun in the lake")
        with self._store.read():
            self._tick()
            table = self._require(table_id)
            if table.state is TieringState.TIERING:
                now_ms = self._clock.monotonic_ms()
                message = self._lease_times.takeover_reason(self._leases[table_id], table, now_ms)
                self._fail(table_id, message, unfinished=True)
            elif table.state is TieringState.SCHEDULED:
                self._move(table, TieringState.PENDING)
            return self._grant(table_id, session_id)

    def session_ended(self, session_id: int) -> None:
        """End the rounds of a tierer whose process ended; on a full disk, as soon as there is room."""
        with self._store.read():
            self.leaving.session_ended(session_id)
            for lease in self._leases.values():
                lease.has_ended |= lease.session_id == session_id
            self._tick()

    @contextmanager
    def hold_for_commit(self, table_id: int, coordinator_epoch: int, epoch: int) -> Iterator[None]:
        """Check that a tierer holds a table, and keep it the holder while the block runs.

        Raises:
            TableNotFoundError, LakeNotConfiguredError: There is no such table, or no longer, or it is not tiered.
            FencedTieringEpochError: The tierer no longer holds the table, or the coordinator was restarted.
        """
        with self._store.read():
            try:
                lease = self._lease(table_id, coordinator_epoch, epoch)
            except ConflictError as error:
                raise FencedTieringEpochError(str(error)) from error
            yield
            lease.heard_ms = self._clock.monotonic_ms()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _require(self, table_id: int) -> TableTiering:
        if (table := self._tables.get(table_id)) is not None:
            return table
        with self._store.read() as db:
            row = db.execute("SELECT database, name FROM tables WHERE table_id = ?", (table_id,)).fetchone()
        if row is None:
            raise TableNotFoundError(f"no table with id {table_id}: it was dropped, or created again under another id")
        raise LakeNotConfiguredError(f"table {row[0]}.{row[1]} is not tiered: set {DATALAKE_ENABLED.key}")

    def _lease(self, table_id: int, coordinator_epoch: int, epoch: int) -> TiererLease:
        """Return a tierer's lease after checking its epochs.

        Raises:
            TableNotFoundError, LakeNotConfiguredError: There is no such table, or it is not tiered.
            ConflictError: The table was granted before the coordinator was restarted.
            FencedTieringEpochError: The epoch is not the newest, or its round has ended.
        """
        self._tick()
        table = self._require(table_id)
        if coordinator_epoch != self._coordinator_epoch:
            raise ConflictError(
                f"table {table.path}: granted by coordinator epoch {coordinator_epoch}, the coordinator's is "
                f"{self._coordinator_epoch} since its restart: run it again"
            )
        if epoch != table.epoch or table.state is not TieringState.TIERING:
            raise FencedTieringEpochError(
                f"table {table.path}: tiering epoch {epoch} no longer holds it; the newest is {table.epoch} ({table.state}): "
                "run it again, unless another tierer has the table"
            )
        return self._leases[table_id]

    def _tick(self) -> None:
        """Apply the transitions that only depend on time, as far as they can be written."""
        now_ms = self._clock.now_ms()
        waiting = [
            table.clamp_times(now_ms) for table in self._tables.values() if table.state is TieringState.SCHEDULED
        ]
        self._tables.update({table.table_id: table for table in waiting})
        ended = {}
        for table_id, lease in self._leases.items():
            if (reason := self._lease_times.end_reason(lease, self._clock.monotonic_ms())) is not None:
                ended[table_id] = reason
        try:
            for table in sorted(waiting, key=lambda table: (table.due_ms, table.table_id)):
                if now_ms >= table.due_ms:
                    self._move(table, TieringState.PENDING)
            for table_id, reason in ended.items():
                self._fail(table_id, reason, unfinished=True)
        except StorageError as error:
            # States are read, and heartbeats taken, on a full disk too; nothing is granted until this is done.
            if not self._is_behind:
                log.warning("event=tiering_states_not_written error=%s", error)
            self._is_behind = True
        else:
            self._is_behind = False

    def _due_ms(self, table_id: int) -> int | None:
        table = self._tables[table_id]
        if table.state is TieringState.TIERING:
            return None
        if (not_before_ms := self._queue.get(table_id)) is None:
            return table.due_ms
        return self._clock.now_ms() + max(0, not_before_ms - self._clock.monotonic_ms())

    def _fail(
        self,
        table_id: int,
        message: str,
        *,
        unfinished: bool,
        error_code: int | None = None,
        facts: pb.PbRoundFacts | None = None,
        is_upkeep: bool = False,
    ) -> None:
        table, now_ms, message = self._tables[table_id], self._clock.now_ms(), message[:ERROR_LENGTH_MAX]
        kind = ERROR_CODES.get(error_code) if error_code is not None else None
        unfinished |= kind is CommitOutcomeUnknownError  # its commit may still arrive
        failed = replace(table, failures=table.failures + 1, last_error=message, unfinished=unfinished)
        if kind is TieringCancelledError:  # as a person wanted it: nothing is wrong with the table
            failed = replace(table, unfinished=unfinished)
        else:
            self.stats.note_failure(table_id)

        def note() -> None:
            if is_upkeep:
                self._history.forget(table_id, table.epoch)
            else:
                self._history.fail(table_id, table.epoch, now_ms, message, error_code, facts)

        self._move(failed, TieringState.FAILED, TieringState.PENDING, note=note)
        self._queue[table_id] = self._clock.monotonic_ms() + failed.retry_delay_ms(kind)

    def _grant(self, table_id: int, session_id: int | None) -> TieringGrant:
        table = self._tables[table_id]
        takeover = table.unfinished
        now_ms = self._clock.now_ms()
        self._move(
            replace(table, unfinished=True), TieringState.TIERING,
            note=lambda: self._history.begin(table_id, table.epoch, now_ms),
        )  # fmt: skip
        self._leases[table_id] = TiererLease(session_id, self._clock.monotonic_ms(), takeover)
        return TieringGrant(table_id, table.path, table.epoch, takeover)

    def _move(self, table: TableTiering, *states: TieringState, note: Callable[[], None] | None = None) -> None:
        """Move a table through states; the last one is durable when this returns, and what `note` writes with it."""
        for state in states:
            if table.state not in PREDECESSORS[state]:
                raise InternalError(f"table {table.path}: tiering may not go from {table.state} to {state}")
            table = replace(table, state=state, epoch=table.epoch + (state is TieringState.PENDING))
        with self._store.write():
            write_tiering(self._store, table)
            if note is not None:
                note()
        table_id = table.table_id
        self._tables[table_id] = table
        self._queue.pop(table_id, None)
        if table.state is TieringState.PENDING:
            self._queue[table_id] = self._clock.monotonic_ms()
            self.stats.pending(table_id)
        if table.state is TieringState.TIERING:
            self.stats.note_grant(table_id)
        else:
            self._leases.pop(table_id, None)
