"""Channels to servers with their gateways, and the coordinator's gateway with repeated calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fluss_lab.client.cluster.retry_policy import Attempts
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway

#: Calls the coordinator until it answers: the call's name, one attempt, and a shared time limit.
AskCoordinator: TypeAlias = Callable[[str, Callable[[CoordinatorGateway], Any], Attempts | None], Any]


@dataclass(frozen=True, slots=True)
class Link:
    """A channel to one server with its gateways."""

    channel: Channel
    coordinator: CoordinatorGateway
    tablet_server: TabletServerGateway


class RetryingCoordinator:
    """The coordinator's gateway, each call repeated while no server answers."""

    def __init__(self, ask: AskCoordinator, attempts: Attempts | None) -> None:
        self._ask = ask
        self._attempts = attempts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def invoke(*arguments: Any) -> Any:
            def call(gateway: CoordinatorGateway) -> Any:
                return getattr(gateway, name)(*arguments)

            return self._ask(name, call, self._attempts)

        return invoke
