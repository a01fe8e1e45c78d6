"""What a connection holds of servers: channels with their gateways, and a coordinator that is asked with patience."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluss_lab.client.cluster.retry_policy import Attempts
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway

if TYPE_CHECKING:
    from fluss_lab.client.connection import Connection


@dataclass(frozen=True, slots=True)
class Link:
    """A channel to one server with its gateways."""

    channel: Channel
    coordinator: CoordinatorGateway
    tablet_server: TabletServerGateway


class RetryingCoordinator:
    """The coordinator's gateway, each call with patience."""

    def __init__(self, connection: Connection, attempts: Attempts | None) -> None:
        self._connection = connection
        self._attempts = attempts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def invoke(*arguments: Any) -> Any:
            def call(gateway: CoordinatorGateway) -> Any:
                return getattr(gateway, name)(*arguments)

            return self._connection.ask_coordinator(name, call, self._attempts)

        return invoke
