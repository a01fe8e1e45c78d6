"""The cluster as its clients reach it: channels, metadata, and calls repeated until a server answers."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from fluss_lab.client.cluster.leader_requests import Attempts, closed_error
from fluss_lab.client.cluster.metadata_cache import Metadata, check_table_id, load_schema
from fluss_lab.client.cluster.open_resources import OpenResources
from fluss_lab.client.cluster.remote_files import RemoteFiles
from fluss_lab.client.cluster.server_address import ServerAddress
from fluss_lab.client.kv.kept_lookupers import KeptLookupers
from fluss_lab.client.log.fetch_codec import DecodedEnds
from fluss_lab.closing import Closing
from fluss_lab.errors import (
    AuthenticationError,
    BucketNotFoundError,
    ConnectionClosedError,
    FlussError,
    LakeNotConfiguredError,
    NotFoundError,
    NotLeaderError,
    ServerUnavailableError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.interrupts import Flag, Held
from fluss_lab.lake import FlussLogSource, LakeStorage, SupportsCreateFlussLogSource, SupportsPinnedReads, lake_storage
from fluss_lab.model import PartitionInfo, Schema, TableBucket, TableInfo, TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.config.lake_options import FORMAT_KEY, LAKE_PREFIX
from fluss_lab.model.config.options import (
    CLIENT_REQUEST_TIMEOUT,
    CLIENT_TLS_CA,
    FETCH_SIZE_MAX,
    client_options,
    client_time_zone,
)
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import read_trusted
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway
from fluss_lab.rpc.malloc_settings import keep_client_memory
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.rpc.rpc_methods import CALL_TIMEOUT_S

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Link:
    """A channel to one server with its gateways."""

    channel: Channel
    coordinator: CoordinatorGateway
    tablet_server: TabletServerGateway


@check_arguments
class ClusterClient(Closing):
    """Calls of a cluster's servers, and what is known of it. Threads may share it; a forked process uses its own channels.

    While no server answers, calls are repeated with growing pauses, and `locate` is called again before each attempt,
    until ``client.request-timeout``.

    Args:
        locate: Gives the coordinator's present address. It may raise `ServerUnavailableError` or `OSError` while there
            is none. Called again after every failure: a server that was started again has another port.
        options: Client options (``client.*``); unset ones have their defaults.
        folder: Of the lab, when it is on this machine: other processes find its server there, after a restart too. None: they
            have only the address.
        idle_s: After so long without a call a server is left, so that another client has the place; the next call connects
            again. None: not before half an hour.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option.
    """

    def __init__(
        self,
        locate: Callable[[], ServerAddress],
        options: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.options = client_options(options or {})
        keep_client_memory()
        self.request_timeout_ms = CLIENT_REQUEST_TIMEOUT.of(self.options)
        self.fetch_bytes_max = FETCH_SIZE_MAX.of(self.options)
        self._locate = locate
        self.folder = None if folder is None else folder.absolute()
        self._idle_s = idle_s
        self.closed = Flag()
        self._pid = -1
        self._start()
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave(me))

    def _start(self) -> None:
        """Begin afresh in this process: channels and locks of a parent process are of no use."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: By the coordinator's address, and host and port of a tablet server as the coordinator gives them; None: itself.
        self._links: dict[tuple[ServerAddress, tuple[str, int] | None], _Link] = {}
        self._address: ServerAddress | None = None
        self._metadata = Metadata(getattr(self, "_metadata", None))
        self._storage: LakeStorage | None = None
        #: By table id.
        self._pinned: dict[int, LakeStorage] = {}
        #: The places of remote storage.
        self.remote_files = RemoteFiles(self.coordinator)
        self._without_lake: set[int] = set()
        self._kept_lookupers = KeptLookupers()
        #: Of logs that are read again and again while little is added to them.
        self.decoded_ends = DecodedEnds()
        self.open_resources = OpenResources()
        #: Sessions that this process has had at the coordinator, beside that of an attachment.
        self.sessions: set[int] = set()

    def __repr__(self) -> str:
        state = "closed" if self.closed.is_set() else str(self._address or "not yet connected")
        return f"<{type(self).__name__} {state}>"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a connection, and with it labs, tables, scans, writers and scanners, is of the process that opened it, and is not pickled: "
            "open the lab in the other process too, by Lab.open or Lab.connect (in Spark's tasks read and write by the data source fluss)"
        )

    def close(self) -> None:
        """Close the channels. Calls that wait, in any thread, end with `ConnectionClosedError`. Twice is fine."""
        with Held():
            self.closed.set()
            try:
                self.open_resources.close()
            except FlussError as error:
                log.info("connection closed with rows that were not acknowledged: %s", error)
            with self._lock:
                links, self._links = self._links, {}
            if self._pid == os.getpid():
                for channel in {link.channel for link in links.values()}:
                    channel.close()

    def check_open(self, what: str) -> None:
        """Refuse what needs the cluster when the connection was closed.

        Args:
            what: What is not done; the message begins with it.

        Raises:
            ConnectionClosedError: It was.
        """
        if self.closed.is_set():
            raise closed_error(what)

    @cached_property
    def time_zone(self) -> tzinfo | None:
        """Return the zone of times that are given without one; None: the system's."""
        return client_time_zone(self.options)

    @property
    def address(self) -> ServerAddress:
        """Return where the coordinator was last found, for processes that make a connection of their own.

        Raises:
            ServerUnavailableError, OSError: There is none at the moment.
            ConnectionClosedError: The connection was closed.
        """
        return self._coordinator_address()

    # -- tables and the lake ----------------------------------------------------------------------------------------

    def table_info(self, path: TablePath, attempts: Attempts | None = None) -> TableInfo:
        """Return a table as the cluster knows it now.

        Args:
            path: The table.
            attempts: How long to try; None: ``client.request-timeout``.

        Raises:
            TableNotFoundError: There is no such table.
        """
        request = pb.GetTableInfoRequest(table_path=path_message(path))
        answer = self.coordinator(attempts).get_table_info(request)
        return self._cache().table_info(path, answer)

    def remember(self, info: TableInfo) -> None:
        """Take a table from elsewhere (another process) as known, so that its buckets can be found by id."""
        self._cache().remember(info.table_id, info.path)

    def partitions(self, info: TableInfo, *, refresh: bool = True) -> dict[str, PartitionInfo]:
        """Return the partitions of a table by name; without `refresh` as last fetched.

        Raises:
            TableNotFoundError: The table was dropped, also when another one has its path now.
        """
        self.remember(info)
        known = self._cache().partitions(info.table_id)
        if known is None or refresh:
            path = path_message(info.path)
            response = self.coordinator().list_partition_infos(pb.ListPartitionInfosRequest(table_path=path))
            check_table_id(info.path, info.table_id, response.table_id)
            known = self._cache().set_partitions(info.table_id, response)
        return known

    def forget_partitions(self, info: TableInfo) -> None:
        """Drop what is known of a table's partitions: it proved wrong."""
        self._cache().forget_partitions(info.table_id)

    def schema(self, info: TableInfo, schema_id: int) -> Schema:
        """Return a table's schema of an id: an older one than that of `info`, or a newer. Fetched once.

        Raises:
            CorruptDataError: The table has no schema of that id.
            TableNotFoundError: The table was dropped, also when another one has its path now.
        """
        if schema_id == info.schema_id:
            return info.schema
        known = self._cache().schema(info.table_id, schema_id)
        if known is None:
            known = load_schema(self.coordinator(), info, schema_id)
            self._cache().set_schema(info.table_id, schema_id, known)
        return known

    def lake_storage(self) -> LakeStorage | None:
        """Return the lake that the cluster is configured with; None when it has none.

        Raises:
            UnsupportedError: Its format is not installed here.
        """
        self._cache()
        if self._storage is None:
            answer = self.coordinator().describe_cluster(pb.DescribeClusterRequest())
            options = {entry.key: entry.value for entry in answer.options}
            if (format_name := options.get(FORMAT_KEY)) is None:
                return None
            prefix = f"{LAKE_PREFIX}{format_name}."
            properties = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
            self._storage = lake_storage(format_name, properties)
        return self._storage

    def pin_lake(self, info: TableInfo, storage: LakeStorage) -> None:
        """Have a table's lake read by a storage of its own, as a task does: the cluster is not asked for its lake."""
        if isinstance(storage, SupportsPinnedReads):
            storage.renew_from(self._whole_lake)
        self._cache()
        self._pinned[info.table_id] = storage

    def lake_of(self, info: TableInfo) -> LakeStorage | None:
        """Return the lake by which a table is read: the one that was pinned for it, or `lake_storage`."""
        self._cache()
        pinned = self._pinned.get(info.table_id)
        return self.lake_storage() if pinned is None else pinned

    def _whole_lake(self) -> LakeStorage:
        if (storage := self.lake_storage()) is None:
            raise LakeNotConfiguredError("a part of a table is in the lake, and the cluster has no lake now")
        return storage

    def log_source(self, info: TableInfo) -> FlussLogSource | None:
        """Return the table's log in the lake, for one thread; None when the cluster has no lake, or it cannot be read here.

        Why it cannot is logged, once a table. Source: FIP "fetch log from lake", "Changed in FlussClient": a client without
        plug-in goes on as before.

        Raises:
            UnavailableError: The coordinator does not answer.
            ConnectionClosedError: The connection was closed.
        """
        try:
            storage = self.lake_of(info)
            if storage is None:
                return None
            if isinstance(storage, SupportsCreateFlussLogSource):
                return storage.create_fluss_log_source(info)
            reason: object = "its lake format cannot be read as a log"
        except (UnavailableError, ConnectionClosedError):
            raise
        except Exception as error:  # a plug-in may be installed by half, or fail in its own way
            reason = error
        with self._lock:
            known = info.table_id in self._without_lake
            self._without_lake.add(info.table_id)
        if not known:
            log.warning("%s: the lake cannot be read as a log, going on without it: %s", info.path, reason)
        return None

    # -- gateways ----------------------------------------------------------------------------------------------------

    def coordinator(self, attempts: Attempts | None = None) -> CoordinatorGateway:
        """Return the coordinator; each call is repeated while no server answers. For calls that may act twice only.

        Args:
            attempts: Shared by several calls that have one time limit together; None: each call has its own.
        """
        return cast(CoordinatorGateway, _RetryingCoordinator(self, attempts))

    def tablet_server(self, bucket: TableBucket) -> TabletServerGateway:
        """Return the server that holds a bucket. Its calls are not repeated.

        Raises:
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: There is no such bucket (any more).
        """
        return self.gateway(self.leader(bucket))

    def leader(self, bucket: TableBucket) -> int:
        """Return the id of the server that holds a bucket; see `leaders`."""
        known = self._cache().leader(bucket)
        return self.leaders([bucket])[bucket] if known is None else known

    def leaders(self, buckets: Iterable[TableBucket], attempts: Attempts | None = None) -> dict[TableBucket, int]:
        """Return the id of the server that holds each bucket; unknown ones are fetched from the coordinator.

        Raises:
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: There is no such bucket (any more).
            NotLeaderError: No server holds a bucket at present; ask again after a while.
        """
        wanted = list(buckets)
        found = self.present_leaders(wanted, attempts)
        for bucket in wanted:
            if bucket not in found:
                raise NotLeaderError(f"bucket {bucket}: its server is away; ask again after a while")
        return found

    def present_leaders(
        self, buckets: Iterable[TableBucket], attempts: Attempts | None = None
    ) -> dict[TableBucket, int]:
        """Return the id of the server that holds each bucket, but for those whose server is away at present.

        Raises:
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: There is no such bucket (any more).
        """
        wanted = list(buckets)
        metadata = self._cache()
        found = {bucket: leader for bucket in wanted if (leader := metadata.leader(bucket)) is not None}
        if missing := [bucket for bucket in wanted if bucket not in found]:
            # What it answers, not what is remembered of it: another thread may have that forgotten by now.
            loaded = metadata.load(self.coordinator(attempts), missing)
            for bucket in missing:
                if bucket not in loaded:
                    raise BucketNotFoundError(
                        f"bucket {bucket}: the coordinator knows none such; refresh what it came from"
                    )
                if (leader := loaded[bucket]) is not None:
                    found[bucket] = leader
        return found

    def gateway(self, server_id: int) -> TabletServerGateway:
        """Return a tablet server by its id.

        Raises:
            NotLeaderError: No such server is known (any more): look the leader up again.
        """
        if (place := self._cache().server(server_id)) is None:
            raise NotLeaderError(f"tablet server {server_id} is not known; look up the bucket's leader again")
        return self._link(self._coordinator_address(), place).tablet_server

    def servers(self) -> list[int]:
        """Return the ids of all tablet servers, as the coordinator knows them now."""
        metadata = self._cache()
        metadata.load(self.coordinator(), [])
        return metadata.server_ids()

    @property
    def kept_lookupers(self) -> KeptLookupers:
        """Return the lookupers that this process keeps for lookups of tables again and again."""
        self._cache()
        return self._kept_lookupers

    @property
    def has_several_servers(self) -> bool:
        """Return whether more than one tablet server was known when metadata were fetched last."""
        return self._cache().has_several_servers

    def forget_leaders(self) -> None:
        """Drop what is known of who holds which bucket: it proved wrong."""
        self._cache().forget_leaders()

    def forget_leaders_of(self, buckets: Iterable[TableBucket]) -> None:
        """Drop what is known of who holds some buckets. What is known of others stays, and their servers go on."""
        self._cache().forget_leaders_of(buckets)

    def refresh_leader(self, bucket: TableBucket, error: FlussError, attempts: Attempts) -> None:
        """Have the leader of a bucket looked up again after a failure; of a bucket that its server does not know, at once.

        Raises:
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: The coordinator does not know it either.
        """
        self.forget_leaders_of([bucket])
        if isinstance(error, NotFoundError):
            self.present_leaders([bucket], attempts)

    def attempts(self, what: object, timeout_ms: int | None = None) -> Attempts:
        """Return fresh attempts of a call, for so long; None: ``client.request-timeout``."""
        return Attempts(what, self.request_timeout_ms if timeout_ms is None else timeout_ms, self.closed)

    # -- inside ------------------------------------------------------------------------------------------------------

    def call_coordinator(
        self, what: str, call: Callable[[CoordinatorGateway], T], attempts: Attempts | None = None
    ) -> T:
        """Call the coordinator until it answers or the time is up. `call` may act twice."""
        tries = attempts or self.attempts(what)
        self._cache()
        while True:
            used: ServerAddress | None = None
            try:
                used = self._coordinator_address()
                return call(self._link(used).coordinator)
            except (AuthenticationError, UnsupportedError):
                # After a restart the port may be another server's, of the same cluster too: a tablet server knows no such calls.
                if self._locate_again() == used:
                    raise
            except (UnavailableError, OSError) as error:
                if self.closed.is_set():
                    raise closed_error(what) from error
                failure = (
                    error if isinstance(error, FlussError) else ServerUnavailableError(f"no server is known: {error}")
                )
                # At once: whoever makes single attempts (a scanner's threads) would else never find a server that moved.
                self._address = None
                tries.wait_after(failure, str(used or "an unknown address"))

    def _locate_again(self) -> ServerAddress:
        self._address = None
        return self._coordinator_address()

    def _coordinator_address(self) -> ServerAddress:
        self.check_open("the cluster cannot be called")
        address = self._address
        if address is None:
            self._address = address = self._with_certificates(self._locate())
        return address

    def _with_certificates(self, address: ServerAddress) -> ServerAddress:
        """Return an address with the certificates that this client is configured to trust, unless it has its own."""
        path = CLIENT_TLS_CA.of(self.options)
        if not path or not address.tls or address.ca:
            return address
        return replace(address, ca=read_trusted(CLIENT_TLS_CA.key, path))

    def _cache(self) -> Metadata:
        """Return this process's metadata."""
        if self._pid != os.getpid():
            self._start()
        return self._metadata

    def _link(self, coordinator: ServerAddress, place: tuple[str, int] | None = None) -> _Link:
        # One step of a dict is atomic; whether the connection is closed was looked at with the address.
        if (known := self._links.get((coordinator, place))) is not None:
            return known
        with Held(), self._lock:
            self.check_open("the cluster cannot be called")
            if (link := self._links.get((coordinator, place))) is None:
                address = coordinator if place is None else coordinator.other_server(*place)
                link = self._links.get((address, None)) or self._open_link(address)
                self._links[coordinator, place] = self._links[address, None] = link
            return link

    def _open_link(self, address: ServerAddress) -> _Link:
        timeout_s = min(CALL_TIMEOUT_S, self.request_timeout_ms / 1000)
        channel = Channel(
            address.host, address.port, address.token,
            call_timeout_s=timeout_s, trust=address.trust(), idle_s=self._idle_s,
        )  # fmt: skip
        return _Link(channel, channel.coordinator(), channel.tablet_server())


def _leave(reference: weakref.ref[ClusterClient]) -> None:
    """In a forked child: what is open over a connection has its threads in the parent only."""
    if (client := reference()) is not None:
        client.open_resources.leave()


class _RetryingCoordinator:
    """The coordinator's gateway, each call repeated while no server answers."""

    def __init__(self, client: ClusterClient, attempts: Attempts | None) -> None:
        self._client, self._attempts = client, attempts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def invoke(*arguments: Any) -> Any:
            def call(gateway: CoordinatorGateway) -> Any:
                return getattr(gateway, name)(*arguments)

            return self._client.call_coordinator(name, call, self._attempts)

        return invoke
