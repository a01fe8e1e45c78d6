"""The lake side of a table: its listings, its rounds, and its upkeep by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fluss_lab.client import Connection
from fluss_lab.display import Waiting
from fluss_lab.errors import (
    InvalidRequestError,
    LakeNotConfiguredError,
    TableNotFoundError,
    TieringCancelledError,
    UnsupportedError,
)
from fluss_lab.lake import LakeFileInfo, LakeMaintenance, LakeSnapshotInfo, LakeStorage, SupportsMaintenance
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.times import parse_duration
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.union.scan import Scan
from fluss_lab.tiering.maintenance.automatic_maintenance import ORPHAN_AGE_MS, TableMaintenance
from fluss_lab.tiering.maintenance.manual_maintenance import NoTieringExecutor, maintain
from fluss_lab.tiering.round.round_report import (
    CompactionReport,
    ExpiryReport,
    OrphanReport,
    TieringReport,
    TieringReports,
)
from fluss_lab.tiering.round.table_lag import SAMPLES_MAX, LagSample, complete_ms, lag_samples, table_lag
from fluss_lab.tiering.round.tiering_round import check_cancelled, run_round
from fluss_lab.tiering.task.round_progress import RoundState
from fluss_lab.tiering.task.tiering_task import TieringExecutor
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.cards.round_progress_view import RoundProgress
from fluss_lab.workbench.cards.table_listings import (
    FILE_COLUMNS,
    SCHEMA_COLUMNS,
    SNAPSHOT_COLUMNS,
    file_row,
    lag_listing,
    round_listing,
    snapshot_row,
)
from fluss_lab.workbench.lab_spark import LabSpark, LateExecutor

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

ReportT = TypeVar("ReportT")


class TableContext(Protocol):
    """A lab as its tables use it; see `fluss_lab.workbench.lab.Lab`."""

    @property
    def connection(self) -> Connection:
        """Return the connection to the cluster."""

    @property
    def compute(self) -> LabSpark:
        """Return where tiering and maintenance run."""

    @property
    def session_id(self) -> int | None:
        """Return the lab's session at the coordinator."""

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; the first call starts it."""

    def lake_storage(self) -> LakeStorage:
        """Return the lake that the cluster is configured with."""

    def iceberg(self, path: str | TablePath) -> IcebergTable:
        """Return the pyiceberg table behind a lake-enabled table, as it is now."""


def to_spark(lab: TableContext, read: Scan | Changelog) -> Any:
    """Return a read as a Spark frame."""
    from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark

    return changelog_to_spark(lab.spark, read) if isinstance(read, Changelog) else scan_to_spark(lab.spark, read)


def tier_each(
    tables: Iterable[Callable[[], TieringReport]],
) -> TieringReports:
    """Run a round of each table, one after another; the first failure is raised after every table had its turn.

    A table that was dropped is left out. A round that was cancelled ends all.
    """
    reports = TieringReports()
    failures: list[Exception] = []
    for tier in tables:
        try:
            reports.append(tier())
        except TableNotFoundError:
            continue  # dropped since it was listed
        except TieringCancelledError:
            raise
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return reports


class LakeUpkeep:
    """The lake side of one table. What it lists, tiers and keeps in shape are methods of `fluss_lab.workbench.table.Table`."""

    def __init__(self, lab: TableContext, path: TablePath) -> None:
        self._lab = lab
        self._path = path

    # -- what is in the lake -------------------------------------------------------------------------------------------

    def snapshots(self) -> Listing:
        """Return the lake snapshots, oldest first.

        Returns:
            ``snapshot_id``, ``time``, ``operation``, ``ours`` (committed by tiering), ``rows`` and ``files`` that it
            added, ``total_rows`` and ``total_files`` that it has, ``deletes`` among the rows, ``tags`` that keep it, and
            ``offsets``: how far each bucket is tiered in it, as far as the snapshot itself says so.
        """
        rows = [snapshot_row(snapshot) for snapshot in self.lake_snapshots()]
        return Listing(f"snapshots of {self._path}", rows, SNAPSHOT_COLUMNS)

    def lake_snapshots(self) -> Sequence[LakeSnapshotInfo]:
        """Return the lake snapshots as the lake format has them, oldest first."""
        with self._maintenance() as lake:
            return list(lake.snapshots())

    def files(self, snapshot_id: int | None = None) -> Listing:
        """Return the data and delete files of a lake snapshot: partition, bucket, offsets, times, rows, bytes, path.

        Args:
            snapshot_id: Which; None: the newest.

        Raises:
            LakeSnapshotNotFoundError: There is no such snapshot.
        """
        rows = [file_row(file) for file in self.lake_files(snapshot_id)]
        return Listing(f"files of {self._path}", rows, FILE_COLUMNS)

    def lake_files(self, snapshot_id: int | None) -> Sequence[LakeFileInfo]:
        """Return the files of a lake snapshot as the lake format has them; None: of the newest."""
        with self._maintenance() as lake:
            return list(lake.files(snapshot_id))

    def lake_schemas(self) -> Listing:
        """Return the schemas that the lake table has had: ``schema_id``, ``current``, ``columns`` (name to type)."""
        with self._maintenance() as lake:
            return Listing(f"lake schemas of {self._path}", lake.schemas(), SCHEMA_COLUMNS)

    # -- a round -------------------------------------------------------------------------------------------------------

    def tier(
        self, *, cancel: Event | None = None, progress: Callable[[RoundState], None] | None = None
    ) -> TieringReport:
        """Run one tiering round of this table now, on Spark.

        Args:
            cancel: Ends the round when any thread sets it, as an interrupt does: within seconds, once Spark has started
                and the servers answer. Behind the commit it only ends the maintenance that follows.
            progress: Called with how far the round is whenever that changes, by any thread; keep the last state to look at
                it from another one. What it raises is noted and changes nothing.

        Returns:
            What was tiered; zero rows when the lake was up to date.

        Raises:
            TieringCancelledError: It was cancelled before its commit. Nothing of it is in the lake, and the next round starts
                from the same offsets; files that its tasks had written are orphans, which maintenance removes after three days.
            LakeNotConfiguredError: The table is not lake-enabled.
            TieringInProgressError: A living tierer works on it.
            FlussError: The round failed; nothing of it is in the lake, and the next round starts from the same offsets.
        """
        check_cancelled(cancel)
        storage, executor = self._storage(), self._round_executor()
        with RoundProgress(str(self._path), progress) as shown:
            report = run_round(
                self._lab.connection,
                storage,
                executor,
                table_id=self._info().table_id,
                session_id=self._lab.session_id,
                progress=shown,
                cancel=cancel,
            )
        if report is None:
            raise LakeNotConfiguredError(f"table {self._path}: the coordinator gave no round")
        return report

    def rounds(self) -> Listing:
        """Return the last tiering rounds of this table, oldest first, whoever ran them: also after restarts.

        The coordinator keeps ``lake.tiering.rounds-kept`` of them (200 by default) until the table is dropped.

        Returns:
            ``round`` (its tiering epoch), ``start`` and ``end``, ``state`` (``tiering``: under way; ``done``; ``limited``: a
            limit ended it, and the next went on; ``failed``), ``rows``, ``events`` (ends of rows), ``files``, ``bytes``,
            ``seconds`` in all, ``plan_s``, ``write_s``, ``commit_s``, ``maintain_s``, ``lag_records`` and ``lag_ms``: how far
            the lake lagged at its end, ``snapshot_id``, ``idle_before``: so many rounds before it had nothing to tier
            either, and are not listed; of a failed one ``error_class`` (none where the coordinator gave the round up) and
            ``error``. What is not known is None.

        Raises:
            TableNotFoundError: It was dropped.
            UnsupportedError: The server is of an older release, which keeps none.

        Cost: one call.
        """
        return round_listing(self._lab.connection, self._path)

    def lag_history(self, samples: int = SAMPLES_MAX) -> Listing:
        """Return how far the lake lagged behind when each kept round was planned, and at its end; last, how far it does now.

        Args:
            samples: At most so many, the newest.

        Returns:
            ``time``, ``records`` (log records in the cluster that were not in the lake), ``lag_ms`` (so old at most was the
            oldest of them; 0 without any), ``round`` (its tiering epoch; None: now). The one of now is missing where a
            bucket is not known. Between a round's end and the next plan the lag grows.

        Raises:
            InvalidRequestError: Fewer than one sample.
            LakeNotConfiguredError: The table is not lake-enabled.
            TableNotFoundError, UnsupportedError: As `rounds`.

        Cost: four small calls, and one for each server that holds buckets.
        """
        return lag_listing(self._path, self.lag_samples(samples))

    def lag_samples(self, most: int = SAMPLES_MAX) -> list[LagSample]:
        """Return what `lag_history` lists."""
        if most < 1:
            raise InvalidRequestError(f"lag of {self._path}: expected at least one sample, found {most}")
        self._storage()
        rounds = self._lab.connection.admin().tiering_rounds(self._path)
        now_ms = time.time_ns() // 1_000_000
        lag = table_lag(self._lab.connection, self._path, now_ms, complete_ms(rounds))
        now = [LagSample(now_ms, lag.records, lag.ms)] if lag.is_complete else []
        return (lag_samples(rounds) + now)[-most:]

    # -- keeping it in shape -------------------------------------------------------------------------------------------

    def compact(self) -> CompactionReport:
        """Rewrite the table's files in the lake so that it is read as fast as if it had been written at once. On Spark.

        The rows stay as they are; a tag keeps what the changelog needs for ``table.datalake.changelog-retention``.

        Raises:
            LakeNotConfiguredError: The table is not lake-enabled.
            TieringInProgressError: A living tierer works on it; try again when its round is over.
            CommitConflictError: Another commit to the lake table came in between; nothing was changed, try again.
        """
        executor = self._executor() if self._lab.compute.is_started else LateExecutor(self._executor)
        with Waiting(f"compacting {self._path}"):
            return self._maintain(lambda held: held.compact(force=True), executor)

    def expire_snapshots(
        self, older_than: str | int | timedelta | None = None, *, keep: int | None = None
    ) -> ExpiryReport:
        """Remove old lake snapshots, and the files that nothing refers to any more.

        Those younger than an hour stay, and so does whatever a branch or tag keeps. After it, reads at a past time and
        the changelog reach back as far as the snapshots and tags that are left.

        Args:
            older_than: A duration, as ``"7d"``; None: as ``table.datalake.snapshot-retention`` says.
            keep: So many stay, however old; None: as ``table.datalake.snapshots-min`` says.

        Raises:
            InvalidPropertyError: No duration.
            LakeNotConfiguredError, TieringInProgressError, CommitConflictError: As `compact`.
        """
        age_ms = None if older_than is None else parse_duration(older_than)
        with Waiting(f"expiring snapshots of {self._path}"):
            return self._maintain(lambda held: held.expire(older_than_ms=age_ms, keep=keep))

    def remove_orphan_files(
        self, *, dry_run: bool = False, older_than: str | int | timedelta = ORPHAN_AGE_MS
    ) -> OrphanReport:
        """Remove files in the lake table's folder that nothing refers to: of rounds that were killed, mostly.

        Args:
            dry_run: Only report which.
            older_than: A duration. Younger files stay: another engine, or a change of the table that goes on (a partition that is
                dropped, a column that is added), may have written them and commit them yet. Less than that takes is for tables
                that nobody else changes meanwhile.

        Raises:
            InvalidPropertyError: No duration.
            LakeNotConfiguredError, TieringInProgressError: As `compact`.
        """
        age_ms = parse_duration(older_than)
        with Waiting(f"looking for orphan files of {self._path}"):
            return self._maintain(lambda held: held.remove_orphans(older_than_ms=age_ms, dry_run=dry_run))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _info(self) -> TableInfo:
        return self._lab.connection.admin().table_info(self._path)

    def _maintain(
        self, action: Callable[[TableMaintenance], ReportT], executor: TieringExecutor | None = None
    ) -> ReportT:
        return maintain(
            self._lab.connection,
            self._storage(),
            executor or NoTieringExecutor(),
            action,
            table_id=self._info().table_id,
            session_id=self._lab.session_id,
        )

    def _round_executor(self) -> TieringExecutor:
        """Return where a round runs; with nothing to tier Spark starts only if the round has tasks all the same."""
        if not self._lab.compute.is_started:
            lag = table_lag(self._lab.connection, self._path, time.time_ns() // 1_000_000)
            if lag.is_complete and not lag.records:
                return LateExecutor(self._executor)
        return self._executor()

    def _executor(self) -> TieringExecutor:
        from fluss_lab.spark.tiering.spark_executor import POOL

        return self._lab.compute.executor(self._storage(), f"{POOL}-{self._path}")

    def _maintenance(self) -> LakeMaintenance:
        storage = self._storage()
        if not isinstance(storage, SupportsMaintenance):
            raise UnsupportedError(f"table {self._path}: its lake format offers no maintenance")
        return storage.create_lake_maintenance(self._info())

    def _storage(self) -> LakeStorage:
        if not self._info().descriptor.lake_enabled:
            raise LakeNotConfiguredError(f"table {self._path} is not lake-enabled; set table.datalake.enabled")
        return self._lab.lake_storage()
