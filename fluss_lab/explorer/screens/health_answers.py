"""The answers about the health of a lab: its servers, the room that it takes, and what the doctor finds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, Final

from fluss_lab.display import short
from fluss_lab.errors import FlussError
from fluss_lab.explorer.explored_lab import ExploredLab
from fluss_lab.explorer.explorer_answers import Answer, Steps, now_ms
from fluss_lab.explorer.explorer_requests import HealthRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.model.config.options import DISK_USAGE_TIME
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.health.disk_usage import disk_listing, memory_listing

#: Servers, stores and findings that are shown; and characters of a text.
ROWS_MAX: Final = 200
_TEXT_MAX: Final = 600


class HealthAnswers:
    """What a view shows of a lab's health. `answer` is for one thread, `count` for any.

    Args:
        lab: Whose health.
        tables: What may be seen of its tables: findings may name what is hidden.
    """

    def __init__(self, lab: ExploredLab, tables: ShownTables) -> None:
        self._lab, self._tables, self._mask = lab, tables, tables.mask
        #: What was looked at last, by what it is, each with ``at_ms``; None: it is looked at for the first time.
        self._looks: dict[str, dict[str, Any] | None] = {"disk": None, "doctor": None}

    def count(self) -> dict[str, int] | None:
        """Return how many problems and warnings the doctor found, and when (``at_ms``); None: it has not looked yet."""
        found = self._looks["doctor"]
        if found is None or "error" in found:
            return None
        severities = [row["severity"] for row in found["rows"]]
        return {
            "problems": severities.count("problem"),
            "warnings": severities.count("warning"),
            "at_ms": found["at_ms"],
        }

    def answer(self, request: HealthRequest) -> Steps:
        """Yield the servers as they are now, with what is known of the disk and of the doctor; then with what is new of these.

        ``servers``: ``rows``, ``epoch``, ``attached``, ``ephemeral``, ``started_ms``, ``memory_error``. ``disk``: ``rows``, ``free``, ``total`` (bytes,
        as text). ``doctor``: ``rows``, problems first. Each is ``{"error": ...}`` where it cannot be known; ``disk`` and ``doctor`` have
        ``at_ms``, and are None until they are looked at. ``looking``: what comes next.
        """
        described = self._describe_cluster()
        servers = self._servers(described)
        due = [
            name
            for name, found in self._looks.items()
            if found is None or now_ms() - found["at_ms"] > request.age_s * 1000
        ]
        yield self._answer(servers, due)
        while due:
            name = due.pop(0)
            yield None
            try:
                found = self._disk(described) if name == "disk" else self._doctor()
            except Exception as error:
                found = {"error": self._tables.error_answer(error)}
            self._looks[name] = found | {"at_ms": now_ms()}
            yield self._answer(servers, due)

    def _answer(self, servers: dict[str, Any], due: list[str]) -> Answer:
        return {
            "servers": servers,
            **self._looks,
            "looking": list(due),
            "code": code_lines.health_code(),
            "now_ms": now_ms(),
        }

    def _describe_cluster(self) -> pb.DescribeClusterResponse | FlussError:
        connection = self._lab.connection
        try:
            coordinator = connection.coordinator(connection.attempts("show the health", 0))
            return coordinator.describe_cluster(pb.DescribeClusterRequest())
        except FlussError as error:
            return error

    def _servers(self, described: pb.DescribeClusterResponse | FlussError) -> dict[str, Any]:
        if isinstance(described, FlussError):
            return {"error": self._tables.error_answer(described)}
        memory: Mapping[int, Any] = {}
        memory_error = None
        try:
            listed = memory_listing(self._lab.folder, described.tablet_server_status)
            memory = {row["process"]: row for row in listed}
        except FlussError as error:
            memory_error = self._mask.visible_text(str(error))
        states = list(described.tablet_server_status)[:ROWS_MAX]
        first = next((row for row in memory.values() if "coordinator" in row["server"]), None)
        rows = [
            {
                "name": "coordinator", "state": "running", "address": str(self._lab.connection.address), "process": first and first["process"],
                "bytes": first and first["bytes"], "inside": None, "restarts": None, "why": None,
            }
        ]  # fmt: skip
        for each in states:
            own = memory.get(each.process_id)
            rows.append({
                "name": f"tablet {each.server_id}", "state": each.state, "address": f"{each.host}:{each.port}" if each.host else None,
                "process": each.process_id or (first and first["process"]), "bytes": own and own["bytes"],
                # A tablet server in the coordinator's process has no memory of its own.
                "inside": "coordinator" if each.host and not each.process_id else None,
                "restarts": each.restarts, "why": self._mask.visible_text(short(each.last_error, _TEXT_MAX)) or None,
            })  # fmt: skip
        return {
            "rows": rows,
            "total": len(described.tablet_server_status) + 1,
            "memory_error": memory_error,
            "epoch": described.coordinator_epoch,
            "started_ms": described.started_time,
            "attached": described.attached,
            "ephemeral": described.ephemeral,
        }

    def _disk(self, described: pb.DescribeClusterResponse | FlussError) -> dict[str, Any]:
        if isinstance(described, FlussError):
            raise described  # the servers know where remote storage and the lake are
        folder, options = self._lab.folder, {each.key: each.value for each in described.options}
        listed = disk_listing(folder, options, DISK_USAGE_TIME.of(self._lab.connection.options))
        assert folder is not None
        room = shutil.disk_usage(folder)
        return {
            "rows": [
                [row["store"], row["server"], None if row["bytes"] is None else str(row["bytes"]), row["files"], row["complete"],
                 short(row["place"], _TEXT_MAX)]
                for row in listed[:ROWS_MAX]
            ],
            "free": str(room.free),
            "total": str(room.total),
        }  # fmt: skip

    def _doctor(self) -> dict[str, Any]:
        found = self._lab.doctor()
        return {
            "rows": [
                {
                    "check": self._mask.visible_text(short(row["check"], _TEXT_MAX)), "severity": row["severity"], "found": self._mask.visible_text(short(row["found"], _TEXT_MAX)),
                    "command": None if row["command"] is None else self._mask.visible_text(row["command"]),
                }
                for row in found[:ROWS_MAX]
            ],
            "total": len(found),
        }  # fmt: skip
