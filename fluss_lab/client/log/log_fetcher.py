"""The threads behind a scanner: they fetch from servers, remote storage and the lake, ahead of the caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from fluss_lab.client.cluster.leader_requests import Attempts
from fluss_lab.client.log.fetch_buffer import FETCHES_PER_SERVER, ScannedBucket, ScannedBuckets
from fluss_lab.client.log.fetch_codec import FetchedBucket, FetchLimits, Projection, fetch_request, fetched_buckets
from fluss_lab.client.log.range_reader import checked_lake_records
from fluss_lab.client.log.remote_reader import SegmentGoneError, remote_records
from fluss_lab.errors import (
    FlussError,
    InternalError,
    LakeSnapshotNotFoundError,
    NotFoundError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    ServerUnavailableError,
    UnavailableError,
)
from fluss_lab.lake import FetchContext, FlussLogSource
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import FETCH_WAIT_MAX
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

log = logging.getLogger(__name__)

#: A bucket gives its turn to the others that are read from the lake after so many bytes: opening its files again costs some
#: milliseconds then, beside a second of reading.
LAKE_TURN_BYTES: Final = 64 * 1024 * 1024
#: Where there are several servers: a thread that finds servers again while those of all others are busy.
_FINDERS: Final = 1


class LogFetcher:
    """Fetches for all positions of a scanner until they are closed.

    Args:
        connection: To the cluster.
        info: The table.
        projection: Which columns.
        positions: What to fetch, and where to put it.
        previous_offsets: Whether records from the cluster have their previous offsets.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        projection: Projection,
        positions: ScannedBuckets,
        *,
        previous_offsets: bool = False,
    ) -> None:
        self._connection = connection
        self._info = info
        self._projection = projection
        self._positions = positions
        self._source: FlussLogSource | None = None
        wait_ms = FETCH_WAIT_MAX.of(connection.options)
        self._limits = FetchLimits(connection.fetch_bytes_max, wait_ms, True, previous_offsets)
        self._servers: set[int] = set()
        self._starting = threading.Lock()
        self._fetchers = 0
        self._start(self._away_loop)
        self._start_fetchers(FETCHES_PER_SERVER)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"scan-{self._info.path}", daemon=True).start()

    def _start_fetchers(self, count: int) -> None:
        with self._starting:
            while self._fetchers < count:
                self._fetchers += 1
                self._start(self._fetch_loop)

    def _add_servers(self, servers: Iterable[int]) -> None:
        """Start threads for every server that holds a bucket, so that none waits for another."""
        self._servers.update(servers)
        if len(self._servers) > 1:
            self._start_fetchers(FETCHES_PER_SERVER * len(self._servers) + _FINDERS)

    # -- from servers ------------------------------------------------------------------------------------------------

    def _fetch_loop(self) -> None:
        while (positions := self._positions.next_fetch()) is not None:
            try:
                self._fetch(positions)
            except FlussError as error:
                for position in positions:
                    self._handle_failure(position, error)
            except Exception as error:  # a defect is raised to the caller and does not end the thread
                log.exception("fetch of %s failed", self._info.path)
                for position in positions:
                    self._handle_failure(
                        position, InternalError(f"fetch of {self._info.path}: {type(error).__name__}: {error}")
                    )
            finally:
                self._positions.release(positions)

    def _fetch(self, positions: list[ScannedBucket]) -> None:
        leader = positions[0].leader
        if leader is None:
            # The positions count the time; the coordinator is called once here.
            attempts = Attempts(f"scan of {self._info.path}", 0, self._connection.closed)
            leaders = self._connection.present_leaders([position.bucket for position in positions], attempts)
            self._add_servers(leaders.values())
            for position in positions:
                if (found := leaders.get(position.bucket)) is not None:
                    position.leader = found
                else:
                    self._handle_failure(position, NotLeaderError("its server is away"))
            return
        wanted = {position.bucket: position for position in positions}
        offsets = [(position.bucket, position.fetch_offset) for position in positions]
        request = fetch_request(self._info.table_id, offsets, self._projection, self._limits)
        for fetched in fetched_buckets(self._connection.gateway(leader).fetch_log(request)):
            if fetched.bucket in wanted:
                self._handle_answer(wanted[fetched.bucket], fetched)

    def _handle_answer(self, position: ScannedBucket, fetched: FetchedBucket) -> None:
        if fetched.error is not None:
            self._handle_failure(position, fetched.error)
            return
        if fetched.lake is None or fetched.lake.snapshot_id != position.lake_gone:
            # A server that names a missing snapshot again has made no progress.
            position.went_well()
        if fetched.lake is not None:
            position.lake = fetched.lake
        elif fetched.remote is not None:
            position.remote = fetched.remote
        elif fetched.size_bytes:
            try:
                next_offset = max(header.next_offset for header, _ in split_headers(fetched.data))
            except FlussError as error:
                self._handle_failure(position, error)
                return
            if next_offset > position.fetch_offset:
                self._positions.accept(position, fetched, next_offset, fetched.size_bytes)

    def _handle_failure(self, position: ScannedBucket, error: FlussError) -> None:
        reason = error
        if isinstance(error, UnavailableError | NotFoundError):
            self._connection.forget_leaders_of([position.bucket])
        if isinstance(error, NotFoundError):
            # Believed when the coordinator agrees: a server that has just started may not have opened it yet.
            reason = self._gone_error(position) or ServerUnavailableError(str(error))
        if isinstance(reason, PartitionNotFoundError) and position.found:
            if self._positions.is_current(position):
                self._positions.drop(position.bucket)
            return
        what = f"scan of {self._info.path}, bucket {position.bucket}, offset {position.fetch_offset}"
        self._positions.note_failure(position, type(reason)(f"{what}: {reason}"))

    def _gone_error(self, position: ScannedBucket) -> FlussError | None:
        try:
            attempts = Attempts(f"scan of {self._info.path}", 0, self._connection.closed)
            self._connection.leaders([position.bucket], attempts)
        except NotFoundError as confirmed:
            return confirmed
        except FlussError:
            return None
        return None

    # -- from remote storage and the lake ----------------------------------------------------------------------------

    def _away_loop(self) -> None:
        while (position := self._positions.next_away()) is not None:
            try:
                if position.remote is not None:
                    self._read_remote(position, position.remote)
                else:
                    self._read_lake(position)
            except LakeSnapshotNotFoundError as error:
                # It was replaced since the server named it: ask the server again.
                position.lake_gone = None if position.lake is None else position.lake.snapshot_id
                position.lake = None
                self._handle_failure(position, ServerUnavailableError(str(error)))
            except FlussError as error:
                self._handle_failure(position, error)
            except Exception as error:  # files and networks under the lake fail in their own ways
                log.warning("reading %s from the lake failed", self._info.path, exc_info=True)
                self._handle_failure(
                    position, UnavailableError(f"the lake cannot be read: {type(error).__name__}: {error}")
                )
            finally:
                self._positions.release([position])

    def _read_remote(self, position: ScannedBucket, place: pb.PbRemoteLogFetchInfo) -> None:
        """Read about one answer's worth; the other buckets have their turn then."""
        what = f"bucket {position.bucket} of {self._info.path}"
        found = remote_records(
            place, what, position.fetch_offset, None, self._projection,
            previous_offsets=self._limits.previous_offsets, files=self._connection.remote_files,
        )  # fmt: skip
        size_bytes = 0
        try:
            for records in found:
                self._positions.accept(position, records, records.next_offset, records.rows.nbytes)
                position.went_well()
                size_bytes += records.rows.nbytes
                if size_bytes >= self._limits.max_bytes or not self._positions.is_current(position):
                    return
        except SegmentGoneError as gone:
            position.remote = None
            position.gone.note(gone, what)
        except FlussError:
            position.remote = None
            raise
        position.remote = None

    def _read_lake(self, position: ScannedBucket) -> None:
        """Read on; what is left when other buckets have their turn, or after an error, is fetched later."""
        place = position.lake
        assert place is not None
        if self._source is None:
            self._source = self._connection.log_source(self._info)
        if self._source is None:
            raise OffsetOutOfRangeError("the offset has left the cluster, and no plug-in here can read the lake")
        context = FetchContext(
            position.fetch_offset,
            place.log_end_offset,
            position.partition,
            position.bucket.bucket,
            place.snapshot_id,
            self._projection.columns,
        )
        what = f"bucket {position.bucket} of {self._info.path}"
        found = checked_lake_records(
            self._source, context, what, keyed=not self._info.is_log_table,
            previous_offsets=self._limits.previous_offsets,
        )  # fmt: skip
        size_bytes = 0
        for records in found:
            self._positions.accept(position, records, records.next_offset, records.rows.nbytes)
            position.went_well()
            position.lake_gone = None
            size_bytes += records.rows.nbytes
            if not (self._positions.has_room() and self._positions.is_current(position)):
                return
            if size_bytes >= LAKE_TURN_BYTES and self._positions.others_away(position):
                return
        position.lake = None
