"""A connection whose fetches a test watches or changes on their way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fluss_lab.client import Connection


class _Gateway:
    """A tablet server with another `fetch_log`."""

    def __init__(self, found: Any, fetch_log: Callable[[Any], Any]) -> None:
        self._found = found
        self.fetch_log = fetch_log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


def hook_fetches(monkeypatch, connection: Connection, hook: Callable[[Callable[[Any], Any], Any], Any]) -> None:
    """Have a hook called instead of each fetch, with the fetch itself and the request."""
    gateway = connection.gateway

    def hooked(server_id: int) -> Any:
        found = gateway(server_id)
        return _Gateway(found, partial(hook, found.fetch_log))

    monkeypatch.setattr(connection, "gateway", hooked)


def watch_fetches(monkeypatch, connection: Connection) -> list[int]:
    """Return how many buckets each fetch asks for, as the fetches come."""
    asked: list[int] = []

    def watching(fetch: Callable[[Any], Any], request: Any) -> Any:
        asked.append(len(request.tables_req[0].buckets_req))
        return fetch(request)

    hook_fetches(monkeypatch, connection, watching)
    return asked
