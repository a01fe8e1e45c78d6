"""The discovery of partitions that are made while a scanner reads: how soon they are seen, and where they are read from."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.interrupts import Flag, Held
from fluss_lab.model import PartitionInfo, TableInfo

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

log = logging.getLogger(__name__)

#: How soon a new partition is noticed: one small call a second costs a server a thousandth of its time.
DISCOVERY_INTERVAL_S: Final = 1.0


class PartitionDiscovery:
    """Looks for partitions made since, in a thread of its own, until the scanner is closed or the table is gone.

    Args:
        connection: To the cluster.
        info: The table.
        known: The partitions that the scanner knows.
        begin: Has new partitions read from their beginning: all their records are new.
        end: Ends the scan with an error, which the next poll raises.
        closing: Set when the scanner is closed.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        known: Iterable[PartitionInfo],
        begin: Callable[[Sequence[PartitionInfo]], None],
        end: Callable[[FlussError], None],
        closing: Flag,
    ) -> None:
        self._connection = connection
        self._info = info
        self._known = {partition.partition_id for partition in known}
        self._begin = begin
        self._end = end
        self._closing = closing
        self._thread = threading.Thread(target=self._run, name=f"discover-{info.path}", daemon=True)

    def start(self) -> None:
        """Begin. To be called once, by who already keeps this: an interrupt may be raised when the thread runs."""
        with Held():
            self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(DISCOVERY_INTERVAL_S):
            try:
                present = self._connection.partitions(self._info)
                made = [each for each in present.values() if each.partition_id not in self._known]
                self._begin(made)
                self._known |= {partition.partition_id for partition in made}
            except NotFoundError as error:
                # Its buckets go silently with their partitions; that all are gone, and why, is said here.
                self._end(type(error)(f"scan of {self._info.path}: {error}"))
                return
            except FlussError as error:
                log.warning("scan of %s: cannot look for new partitions: %s", self._info.path, error)
