"""A lake behind two proxies, one before its catalog's server and one before its object store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fluss_lab.closing import Closing
from tests.beyond.backends import Backends
from tools.beyond.fault_proxy import FaultProxy


@dataclass(frozen=True)
class Requests:
    """What a block asked of both, by method; filled when it ends."""

    catalog: Counter[str]
    store: Counter[str]


class ProxiedLake(Closing):
    """The options of a lake whose requests are counted, and harmed where a test says so.

    Args:
        backends: Where it is.
        kind: ``rest`` or ``nessie``.
        folder: For what lies on this machine.
    """

    def __init__(self, backends: Backends, kind: str, folder: Path) -> None:
        self._stack = ExitStack()
        lake = backends.lake(kind, folder)
        self.secret = lake["s3.secret-access-key"]
        self.catalog = self._before(lake["uri"])
        self.store = self._before(lake["s3.endpoint"])
        #: Of pyiceberg; what the catalog says of the store does not count.
        self.properties = {**lake, "uri": _moved(lake["uri"], self.catalog), "s3.endpoint": self.store.endpoint}
        self.options = {f"datalake.iceberg.{key}": value for key, value in self.properties.items()}

    @contextmanager
    def counted(self) -> Iterator[Requests]:
        """Give a block's requests."""
        with self.catalog.counted() as catalog, self.store.counted() as store:
            yield Requests(catalog, store)

    def heal(self) -> None:
        """Do no harm from now on."""
        for proxy in (self.catalog, self.store):
            proxy.disarm()

    def close(self) -> None:
        """End the proxies."""
        self._stack.close()

    def _before(self, url: str) -> FaultProxy:
        return self._stack.enter_context(FaultProxy(_port(url)))


def _port(url: str) -> int:
    return int(url.split("/")[2].rpartition(":")[2])


def _moved(url: str, proxy: FaultProxy) -> str:
    _, _, path = url.removeprefix("http://").partition("/")
    return f"{proxy.endpoint}/{path}"
