"""The REST catalog of our own with what Nessie 0.99 does otherwise than the specification says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.lake.rest_server import RestServer
from tools.beyond.rest_catalog_server import error_text


class NessieLikeServer(RestServer):
    """Takes a requirement that there be no snapshot for granted, refuses a schema without its last column's id.

    Args:
        folder: Of its database and warehouse.
        hides_history: Whether it shows of each table the newest snapshot only.
    """

    def __init__(self, folder: Path, *, hides_history: bool = False, **options: Any) -> None:
        self.hides_history = hides_history
        super().__init__(folder, **options)

    def answer(self, method: str, path: list[str], body: bytes) -> tuple[int, str]:
        """Answer as it does."""
        if method == "POST" and len(path) == 4:
            asked = json.loads(body)
            if any(each["action"] == "add-schema" and "last-column-id" not in each for each in asked["updates"]):
                return 400, error_text(400, "BadRequestException", "Cannot build AddSchema, not set [lastColumnId]")
            asked["requirements"] = [each for each in asked["requirements"] if not _of_no_snapshot(each)]
            body = json.dumps(asked).encode()
        status, text = super().answer(method, path, body)
        if status == 200 and self.hides_history and "metadata-location" in text:
            found = json.loads(text)
            _hide(found["metadata"])
            text = json.dumps(found)
        return status, text


def _of_no_snapshot(requirement: dict[str, Any]) -> bool:
    return requirement["type"] == "assert-ref-snapshot-id" and requirement.get("snapshot-id") is None


def _hide(metadata: dict[str, Any]) -> None:
    newest = metadata.get("current-snapshot-id")
    metadata["snapshots"] = [each for each in metadata["snapshots"] if each["snapshot-id"] == newest]
    for each in metadata["snapshots"]:
        each.pop("parent-snapshot-id", None)
    metadata["snapshot-log"] = [each for each in metadata["snapshot-log"] if each["snapshot-id"] == newest]
    metadata["metadata-log"] = []
    metadata["refs"] = {name: each for name, each in metadata["refs"].items() if name == "main"}
