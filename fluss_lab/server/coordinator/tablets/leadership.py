"""The notification of tablet servers about the buckets they lead; what fails is noted and sent again."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from fluss_lab.errors import (
    ConflictError,
    FlussError,
    NotLeaderError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableNotFoundError,
    error_from_code,
)
from fluss_lab.model import TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.server.coordinator import coordinator_messages
from fluss_lab.server.coordinator.coordinator_messages import bucket_message, chunks, is_done, lake_offset_message
from fluss_lab.server.coordinator.metadata.lab_identity import LabIdentity
from fluss_lab.server.coordinator.metadata.table_catalog import LEADER_EPOCH, NO_PARTITION, BucketGroup, TableCatalog
from fluss_lab.server.coordinator.tablets.bucket_assignment import leaders_for
from fluss_lab.server.coordinator.tablets.durable_offsets import DurableOffsets, LogEnd, partition_key
from fluss_lab.server.coordinator.tablets.retrying_notifier import RetryingNotifier, is_settled
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger

log = logging.getLogger(__name__)

#: Longest wait of a change until the servers are notified; a server that hangs is notified later.
SETTLE_WAIT_S: Final = 10.0
#: How long `close` waits for a running call to a server; the metadata is closed after that.
_CLOSE_WAIT_S: Final = 5.0
#: Buckets whose release one call requests, at first and at most: how long each takes is the file system's, or an object store's.
_STOPPED_FIRST: Final = 8
_STOPPED_MAX: Final = 256
#: A call that takes less is followed by one for twice as many, one that takes longer, or failed, by one for a quarter.
_STOP_QUICK_S, _STOP_SLOW_S = 0.5, 2.0


class _PlacedGroup(NamedTuple):
    """Buckets with the name and creation time of their partition; None and 0 for a table without partitions."""

    name: str | None
    created_ms: int
    group: BucketGroup


class TabletServers:
    """The registered tablet servers, and the notifications that each has not received yet.

    Args:
        catalog: The tables, partitions and buckets.
        ledger: How far they are tiered.
        durables: The durable offsets of their logs.
        count: How many servers belong to the cluster, with ids from 0.
        coordinator_epoch: Sent with every notification.
        connect: Opens a connection to a host and port.
    """

    def __init__(
        self,
        catalog: TableCatalog,
        ledger: LakeLedger,
        durables: DurableOffsets,
        *,
        identity: LabIdentity,
        count: int,
        coordinator_epoch: int,
        connect: Callable[[str, int], Channel],
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._durables = durables
        self._identity = identity
        self._count = count
        self._coordinator_epoch = coordinator_epoch
        self._connect = connect
        self._lock = threading.Lock()
        self._nodes: dict[int, pb.PbServerNode] = {}
        self._channels: dict[int, Channel] = {}
        #: Kind of notification and table id -> ids of its partitions; None: all its buckets.
        self._pending: dict[tuple[str, int], set[int] | None] = {}
        self._stops = bool(catalog.pending_stops())
        self._stopped_at_once = _STOPPED_FIRST
        #: Groups to unseal, and the number of their last seal.
        self._unseals: dict[BucketGroup, int] = {}
        #: How often each server has registered: one that registered again has lost its seals.
        self._terms: Counter[int] = Counter()
        self._opening: set[int] = set()
        self._notifier = RetryingNotifier(self._notify_all)

    # -- who is there ------------------------------------------------------------------------------------------------

    def register(self, request: pb.RegisterTabletServerRequest) -> pb.RegisterTabletServerResponse:
        """Note where a server listens, and return every bucket that it leads.

        A server that must open its buckets first registers as opening, and again when it has opened them: until then clients
        do not see it, and changes in the meantime are sent to it afterwards.

        Raises:
            ConflictError: It has opened the buckets that an earlier coordinator sent.
        """
        server_id = request.server_id
        if request.HasField("opened_epoch"):
            return self._finish_opening(request)
        with self._lock:
            old = self._forget(server_id)
            self._terms[server_id] += 1
            if request.opening:
                self._opening.add(server_id)
            else:
                self._list(request)
        if old is not None:
            old.close()
        response = pb.RegisterTabletServerResponse(coordinator_epoch=self._coordinator_epoch)
        for info in self._catalog.all_tables():
            response.buckets.extend(self._buckets(info, server_id, self._groups(info.table_id, None)))
            response.lake_offsets.extend(self._lake_offsets(info.table_id, server_id))
        return response

    def _finish_opening(self, request: pb.RegisterTabletServerRequest) -> pb.RegisterTabletServerResponse:
        with self._lock:
            if request.opened_epoch != self._coordinator_epoch or request.server_id not in self._opening:
                raise ConflictError(
                    f"tablet server {request.server_id} has opened the buckets of epoch {request.opened_epoch}; this is epoch "
                    f"{self._coordinator_epoch}: register again"
                )
            self._opening.discard(request.server_id)
            self._list(request)
        self.settle(0)
        return pb.RegisterTabletServerResponse(coordinator_epoch=self._coordinator_epoch)

    def _list(self, request: pb.RegisterTabletServerRequest) -> None:
        self._nodes[request.server_id] = pb.PbServerNode(
            node_id=request.server_id, host=request.host, port=request.port
        )
        # For drops while it was away.
        self._stops = True
        log.info("event=registered server=%d address=%s:%d", request.server_id, request.host, request.port)

    def _forget(self, server_id: int) -> Channel | None:
        """Remove a server; return the connection to close."""
        self._opening.discard(server_id)
        if self._nodes.pop(server_id, None) is not None:
            log.info("event=unregistered server=%d", server_id)
        return self._channels.pop(server_id, None)

    def note_lost(self, server_id: int) -> None:
        """Note that a server has gone; its buckets have no leader until it registers again."""
        with self._lock:
            old = self._forget(server_id)
        if old is not None:
            old.close()

    def nodes(self) -> list[pb.PbServerNode]:
        """Return the servers that have registered, by id."""
        with self._lock:
            return [self._nodes[server_id] for server_id in sorted(self._nodes)]

    def ids(self) -> list[int]:
        """Return the ids of the servers that have registered."""
        with self._lock:
            return sorted(self._nodes)

    def assign(self, buckets: int, groups: int = 1) -> list[tuple[int, ...]]:
        """Return a server for each bucket of new tables or partitions, whether it is registered at the moment or not.

        Args:
            buckets: Buckets of each table or partition.
            groups: Number of tables or partitions.

        Raises:
            ServerUnavailableError: No server has registered yet.
        """
        with self._lock:
            there = {*self._nodes, *self._opening}
        if not there:
            raise ServerUnavailableError("no tablet server has registered yet; try again in a moment")
        servers, load = sorted({*range(self._count), *there}), self._catalog.load()
        found = []
        for _ in range(groups):
            found.append(leaders_for(servers, buckets, load))
            load.update(found[-1])
        return found

    def close(self) -> None:
        """Stop notifying, and close the connections."""
        self._notifier.close()
        self._close_channels()
        self._notifier.join(_CLOSE_WAIT_S)
        self._close_channels()

    def _close_channels(self) -> None:
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    # -- notifications ------------------------------------------------------------------------------------------------

    def note_table(self, table_id: int) -> None:
        """Note that the servers of a table's buckets need its new definition; `settle` sends it."""
        with self._lock:
            self._pending["buckets", table_id] = None

    def note_partitions(self, table_id: int, partition_ids: Collection[int]) -> None:
        """Note that the servers of new partitions' buckets need these, and no others."""
        with self._lock:
            noted = self._pending.setdefault(("buckets", table_id), set())
            if noted is not None:
                noted.update(partition_ids)

    def note_offsets(self, table_id: int) -> None:
        """Note that the servers of a table's buckets need its new tiered offsets."""
        with self._lock:
            self._pending["lake", table_id] = None

    def note_drop(self) -> None:
        """Note that servers must release the buckets that the catalog has as dropped."""
        with self._lock:
            self._stops = True

    def settle(self, wait_s: float = SETTLE_WAIT_S) -> None:
        """Send all pending notifications; failures are logged and retried.

        Args:
            wait_s: Longest wait until every server that answers is notified.
        """
        if self._pending or self._stops or self._unseals:
            self._notifier.ask(wait_s)

    def _notify_all(self) -> bool:
        with self._lock:
            pending, self._pending = self._pending, {}
            stops, self._stops = self._stops, False
            unseals, self._unseals = self._unseals, {}
        sealed = {
            group: number
            for group, number in unseals.items()
            if not is_settled(partial(self._unseal_group, group, number), "unseal")
        }
        again = {
            item: ids
            for item, ids in pending.items()
            if not is_settled(partial(self._notify_table, *item, ids), item[0])
        }
        unstopped = stops and not is_settled(self._stop_dropped, "stop")
        with self._lock:
            for item, ids in again.items():
                newer = self._pending.setdefault(item, ids)
                self._pending[item] = None if newer is None or ids is None else newer | ids
            self._stops = self._stops or unstopped
            self._unseals = {**sealed, **self._unseals}
            return not self._pending and not self._stops and not self._unseals

    def _notify_table(self, what: str, table_id: int, partition_ids: Collection[int] | None) -> bool:
        try:
            info = self._catalog.table_by_id(table_id)
        except TableNotFoundError:
            return True  # dropped meanwhile
        placed = self._groups(table_id, partition_ids)
        servers = sorted({leader for each in placed for leader in each.group.leaders})
        deaf = [server_id for server_id in servers if not self._notify_server(server_id, what, info, placed)]
        return not deaf

    def _notify_server(self, server_id: int, what: str, info: TableInfo, placed: Sequence[_PlacedGroup]) -> bool:
        """Return whether a notification of the server needs no retry."""
        with self._lock:
            if server_id not in self._nodes:
                # One that is away gets everything when it registers; one that is opening its buckets needs this.
                return server_id not in self._opening
        try:
            server = self._channel(server_id).tablet_server()
            if what == "lake":
                for offsets in chunks(self._lake_offsets(info.table_id, server_id)):
                    server.notify_lake_table_offset(
                        pb.NotifyLakeTableOffsetRequest(
                            coordinator_epoch=self._coordinator_epoch, notify_buckets_req=offsets
                        )
                    )
                return True
            responses = [
                server.notify_leader_and_isr(
                    pb.NotifyLeaderAndIsrRequest(
                        coordinator_epoch=self._coordinator_epoch, notify_buckets_leader_req=buckets
                    )
                )
                for buckets in chunks(self._buckets(info, server_id, placed))
            ]
            answers = [each for response in responses for each in response.notify_buckets_leader_resp]
            opened = [each.table_bucket for each in answers if not each.HasField("error_code")]
            self._durables.note_opened(info.table_id, [(partition_key(each), each.bucket_id) for each in opened])
            return not [each for each in answers if not is_done(each)]
        except FlussError as error:
            log.warning("event=not_notified what=%s table=%s server=%d error=%s", what, info.path, server_id, error)
            return False

    def _stop_dropped(self) -> bool:
        """Have the servers release dropped buckets; return whether every registered one has."""
        groups = self._catalog.pending_stops()
        with self._lock:
            there = set(self._nodes)
        left: set[BucketGroup] = set()
        for server_id in sorted({leader for group in groups for leader in group.leaders} & there):
            held = [
                (group, place) for group in groups for place, leader in enumerate(group.leaders) if leader == server_id
            ]
            left |= self._stop_buckets(server_id, held)
        # Servers that are away are notified when they register.
        if done := [group for group in groups if group not in left and there.issuperset(group.leaders)]:
            self._catalog.forget_stops(done)
        return not left

    def _stop_buckets(self, server_id: int, held: Sequence[tuple[BucketGroup, int]]) -> set[BucketGroup]:
        """Have a server release buckets; return the groups of those that it has not released."""
        left: set[BucketGroup] = set()
        start = 0
        while start < len(held):
            asked, begun_s = held[start : start + self._stopped_at_once], time.monotonic()
            stops = [
                pb.PbStopReplicaReqForBucket(
                    table_bucket=bucket_message(group, bucket), leader_epoch=LEADER_EPOCH, delete=True
                )
                for group, bucket in asked
            ]
            request = pb.StopReplicaRequest(coordinator_epoch=self._coordinator_epoch, stop_replicas_req=stops)
            try:
                answers = self._channel(server_id).tablet_server().stop_replica(request).stop_replicas_resp
            except FlussError as error:
                log.warning("event=not_stopped server=%d buckets=%d error=%s", server_id, len(asked), error)
                # Maybe they were too many for the time that there is.
                self._stopped_at_once = max(1, len(asked) // 4)
                return left | {group for group, _ in held[start:]}
            left |= {group for (group, _), answer in zip(asked, answers, strict=True) if not is_done(answer)}
            start += len(asked)
            taken_s = time.monotonic() - begun_s
            if taken_s > _STOP_SLOW_S:
                self._stopped_at_once = max(1, len(asked) // 4)
            elif taken_s < _STOP_QUICK_S and len(asked) == self._stopped_at_once:
                self._stopped_at_once = min(2 * len(asked), _STOPPED_MAX)
        return left

    # -- seals ---------------------------------------------------------------------------------------------------------

    def terms(self) -> Mapping[int, int]:
        """Return how often each server has registered."""
        with self._lock:
            return dict(self._terms)

    def seal(self, group: BucketGroup, ends: Sequence[int], number: int) -> list[LogEnd | FlussError]:
        """Seal the buckets of a group that end where expected against writes; return where each of them ends.

        Args:
            ends: The expected end of each.
            number: The number of the seal; larger than any before.

        Returns:
            The end of each, or the error because of which it is not known; then it may be sealed or not.
        """
        found: list[LogEnd | FlussError] = [NotLeaderError("not asked")] * len(group.leaders)
        for server_id in sorted(set(group.leaders)):
            mine = [bucket for bucket, leader in enumerate(group.leaders) if leader == server_id]
            try:
                for bucket, answer in zip(mine, self._stop(server_id, group, mine, number, ends), strict=True):
                    has_failed = answer.HasField("error_code")
                    error = error_from_code(answer.error_code, answer.error_message)
                    found[bucket] = error if has_failed else LogEnd(answer.log_end_offset, answer.log_max_timestamp)
            except FlussError as error:
                for bucket in mine:
                    found[bucket] = error
        return found

    def unseal(self, group: BucketGroup, number: int) -> None:
        """Unseal the buckets of a group; servers that do not answer are notified later."""
        with self._lock:
            self._unseals[group] = number
        self.settle(0)

    def _unseal_group(self, group: BucketGroup, number: int) -> bool:
        """Unseal a group; return whether every registered server has."""
        try:
            for server_id in sorted(set(group.leaders)):
                with self._lock:
                    if server_id not in self._nodes:
                        continue  # a seal ends with its server's run
                mine = [bucket for bucket, leader in enumerate(group.leaders) if leader == server_id]
                self._stop(server_id, group, mine, number, None)
        except FlussError as error:
            log.warning("event=not_unsealed table=%d partition=%d error=%s", group.table_id, group.partition_id, error)
            return False
        return True

    def _stop(
        self, server_id: int, group: BucketGroup, buckets: Sequence[int], number: int, ends: Sequence[int] | None
    ) -> list[pb.PbStopReplicaRespForBucket]:
        """Send seals at the given ends, or without ends unseals."""
        stops = [
            pb.PbStopReplicaReqForBucket(
                table_bucket=bucket_message(group, bucket), leader_epoch=LEADER_EPOCH, delete=False, seal_number=number,
                seal_at_offset=None if ends is None else ends[bucket], unseal=ends is None,
            )
            for bucket in buckets
        ]  # fmt: skip
        server, answers = self._channel(server_id).tablet_server(), []
        for chunk in chunks(stops):
            request = pb.StopReplicaRequest(coordinator_epoch=self._coordinator_epoch, stop_replicas_req=chunk)
            answers += server.stop_replica(request).stop_replicas_resp
        return answers

    # -- inside ------------------------------------------------------------------------------------------------------

    def _channel(self, server_id: int) -> Channel:
        with self._lock:
            if (channel := self._channels.get(server_id)) is None:
                if (node := self._nodes.get(server_id)) is None:
                    raise NotLeaderError(f"tablet server {server_id} is away")
                self._channels[server_id] = channel = self._connect(node.host, node.port)
            return channel

    def _groups(self, table_id: int, partition_ids: Collection[int] | None) -> list[_PlacedGroup]:
        """Return the buckets of a table, or of some of its partitions that exist, with the partitions' names."""
        if partition_ids is not None:
            return list(self._groups_of_partitions(table_id, partition_ids))
        known = {each.info.partition_id: each for each in self._catalog.partitions(table_id)}
        found = []
        for group in self._catalog.bucket_groups(table_id):
            if group.partition_id == NO_PARTITION:
                found.append(_PlacedGroup(None, 0, group))
            elif (partition := known.get(group.partition_id)) is not None:  # else dropped between the two queries
                found.append(_PlacedGroup(partition.info.name, partition.created_ms, group))
        return found

    def _groups_of_partitions(self, table_id: int, partition_ids: Iterable[int]) -> Iterator[_PlacedGroup]:
        for partition_id in sorted(partition_ids):
            try:
                found = self._catalog.partition_by_id(partition_id)
            except PartitionNotFoundError:
                continue
            yield _PlacedGroup(found.info.name, found.created_ms, BucketGroup(table_id, partition_id, found.leaders))

    def _buckets(
        self, info: TableInfo, server_id: int, placed: Sequence[_PlacedGroup]
    ) -> list[pb.PbNotifyLeaderAndIsrReqForBucket]:
        """Return the buckets of a table that a server leads; the first message has its definition and schemas."""
        durable_offsets = self._durables.of_partitions(info.table_id, {each.group.partition_id for each in placed})
        found = []
        for name, created_ms, group in placed:
            path = pb.PbPhysicalTablePath(database_name=info.path.database, table_name=info.path.table)
            if name is not None:
                path.partition_name = name
            found += [
                pb.PbNotifyLeaderAndIsrReqForBucket(
                    physical_table_path=path,
                    table_bucket=bucket_message(group, bucket),
                    leader=leader,
                    leader_epoch=LEADER_EPOCH,
                    table_json=b"",
                    schema_id=info.schema_id,
                    durable_offset=durable_offsets.get((group.partition_id, bucket)),
                    identity=self._identity.of_bucket(
                        info.table_id, info.created_ms, group.partition_id, created_ms, bucket
                    ),
                    adopt_unmarked=not self._identity.is_marked(info.table_id, group.partition_id),
                )
                for bucket, leader in enumerate(group.leaders)
                if leader == server_id
            ]
        if found:
            found[0].table_json = json.dumps(info.descriptor.to_json()).encode()
            schemas = self._catalog.schemas(info.table_id)
            found[0].schemas.extend(
                coordinator_messages.schema_message(number, schema) for number, schema in schemas.items()
            )
        return found

    def _lake_offsets(self, table_id: int, server_id: int) -> list[pb.PbNotifyLakeTableOffsetReqForBucket]:
        if (snapshot := self._ledger.snapshot(table_id)) is None:
            return []
        found = []
        for group in self._catalog.bucket_groups(table_id):
            for bucket, leader in enumerate(group.leaders):
                if leader == server_id:
                    # Also without an offset: after a repair the lake may no longer hold anything of a bucket.
                    offset = snapshot.offsets.get((group.partition_id, bucket))
                    found.append(lake_offset_message(group, bucket, snapshot, offset))
        return found
