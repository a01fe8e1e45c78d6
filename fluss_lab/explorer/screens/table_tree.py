"""The tree of a lab: databases, tables with what is known of them, and servers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluss_lab.client.table_listing import tables_by_database
from fluss_lab.display import ago, plural
from fluss_lab.errors import TableNotFoundError
from fluss_lab.explorer.explorer_answers import Answer, now_ms
from fluss_lab.explorer.explorer_requests import TreeRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.zone_offsets import zone_offsets
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.times import zone_text
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.cards.table_facts import TableFacts, states_by_path, table_facts

#: A tree waits no longer for tables whose facts are old; those that were not asked come with the next one.
_TREE_S: Final = 0.15
#: Facts of tables that nobody looks at are asked again after so long.
_FACTS_AGE_S: Final = 10.0

#: So far ahead it is known when clocks are changed: of when jobs are due.
_OFFSETS_S: Final = 10 * 366 * 86_400

#: How well a table is, by the rank of its facts.
STATES: Final = ("bad", "warn", "ok", "off")


class TableTree:
    """The tree of a lab, and the facts of its tables as they were last found. For one thread.

    Args:
        tables: Those that requests mean.
        name: What the lab is called.
    """

    def __init__(self, tables: ShownTables, name: str) -> None:
        self._name, self._connection = name, tables.lab.connection
        self._offsets = zone_offsets(self._connection.time_zone, int(time.time()) + _OFFSETS_S)
        #: By path: when its facts were asked, and what was found.
        self._facts: dict[str, tuple[float, TableFacts | None]] = {}

    def answer(self, _request: TreeRequest) -> Answer:
        """Return databases, tables and servers. Facts of tables are those of the last some seconds, or still to come.

        ``zone``: its name; ``offsets``: its `zone_offsets`.

        Raises:
            UnavailableError: The coordinator is away; it is not waited for.
        """
        connection = self._connection
        coordinator = connection.coordinator(connection.attempts("explore", 0))
        described = coordinator.describe_cluster(pb.DescribeClusterRequest())
        states = states_by_path(described)
        databases = tables_by_database(connection.admin())
        paths = [f"{database}.{name}" for database, names in databases.items() for name in names]
        self._facts = {path: self._facts[path] for path in paths if path in self._facts}
        self._renew(paths, states)
        return {
            "lab": self._name,
            "zone": zone_text(connection.time_zone),
            "offsets": self._offsets,
            "databases": [
                {"name": database, "tables": [self._leaf(f"{database}.{name}") for name in names]}
                for database, names in databases.items()
            ],
            "servers": _servers(described),
            "code": [] if any(databases.values()) else code_lines.empty_lab_code(),
            "now_ms": now_ms(),
        }

    def look(self, path: str, state: pb.PbTieringState | None) -> TableFacts | None:
        """Return the facts of a table as they are now, which the tree shows then too; None of one that was dropped."""
        try:
            found = table_facts(self._connection, TablePath.parse(path), state)
        except TableNotFoundError:
            found = None  # dropped since it was listed
        self._facts[path] = (time.monotonic(), found)
        return found

    def _renew(self, paths: Sequence[str], states: Mapping[str, pb.PbTieringState]) -> None:
        """Ask again for the facts that are oldest, as many as there is time for."""
        begin = time.monotonic()
        for path in sorted(paths, key=lambda path: self._facts.get(path, (0.0, None))[0]):
            if path in self._facts and begin - self._facts[path][0] < _FACTS_AGE_S:
                break
            if time.monotonic() - begin > _TREE_S:
                break
            self.look(path, states.get(path))

    def _leaf(self, path: str) -> dict[str, Any]:
        facts = self._facts.get(path, (0.0, None))[1]
        if facts is None:
            return {"path": path, "kind": None, "rows": None, "state": None}
        return {"path": path, "kind": table_kind(facts.info), "rows": str(facts.records), "state": STATES[facts.rank]}


def _servers(described: pb.DescribeClusterResponse) -> dict[str, Any]:
    away = [each for each in described.tablet_server_status if each.state != "running"]
    count = len(described.tablet_server_status)
    up = ago(max(0, now_ms() - described.started_time))
    text = f"{plural(count, 'server')} · up {up}" if not away else f"{count - len(away)} of {plural(count, 'server')}"
    return {"ok": not away, "text": text}


def table_kind(info: TableInfo) -> str:
    """Return ``log`` or ``pk``."""
    return "log" if info.is_log_table else "pk"
