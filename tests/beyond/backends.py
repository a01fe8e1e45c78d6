"""Lakes on other people's servers, a fresh one whenever it is asked for: a catalog of one kind, files in MinIO."""

from __future__ import annotations

import json
import urllib.request
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from fluss_lab.closing import Closing
from tools.beyond.rest_catalog_server import RestCatalogServer

#: Kinds of catalogs; the files of all of them lie in MinIO. SQLite with files on this machine is what other tests have.
#: `iceberg` is Apache Iceberg's own REST server; `rest` one of ours over SQLite. Both keep of a table all that its metadata have.
KINDS: Final = ("sqlite", "postgres", "rest", "iceberg", "nessie")
#: Those that keep a table's snapshots and tags. Nessie tells of the newest snapshot alone, and forgets tags.
HISTORIES: Final = ("sqlite", "postgres", "rest", "iceberg")
_ANSWER_TIMEOUT_S: Final = 30


class Backends(Closing):
    """Makes lakes in the servers of a file of tests, which start when they are first needed.

    Args:
        request: Of a fixture of the file, whose fixtures the servers are.
    """

    def __init__(self, request: Any) -> None:
        self._request = request
        self._servers = ExitStack()

    def lake(self, kind: str, folder: Path) -> dict[str, str]:
        """Return the storage's properties for a lake that is empty.

        Args:
            kind: Of `KINDS`.
            folder: For what lies on this machine.
        """
        name = "lake" + uuid.uuid4().hex[:12]
        if kind == "nessie":
            nessie = self._request.getfixturevalue("nessie")
            return nessie.lake_options(f"{nessie.uri}{branch(nessie.port, name)}/")
        if kind == "iceberg":
            return dict(self._request.getfixturevalue("iceberg_rest").lake_options(name))
        minio = self._request.getfixturevalue("minio")
        # In PostgreSQL, catalogs of other names are other catalogs.
        uri = f"sqlite:///{folder}/catalog/lake.db"
        if kind == "postgres":
            uri = self._request.getfixturevalue("postgres").uri()
        sql = {"name": name, "type": "sql", "uri": uri, "warehouse": minio.make_bucket(name), **minio.lake_options()}
        if kind == "rest":
            (folder / "catalog").mkdir(parents=True, exist_ok=True)
            server = self._servers.enter_context(RestCatalogServer(sql))
            return {**server.lake_options(), **minio.lake_options()}
        return sql

    def close(self) -> None:
        """End the servers that were started for one lake each."""
        self._servers.close()

    def cluster(self, kind: str, folder: Path) -> dict[str, str]:
        """Return the cluster's options for such a lake."""
        return {f"datalake.iceberg.{key}": value for key, value in self.lake(kind, folder).items()}


def branch(port: int, name: str) -> str:
    """Make a branch of a Nessie that begins where it began itself: a catalog with nothing in it; return its name."""
    root = f"http://127.0.0.1:{port}/api/v2/trees"
    empty = {"type": "BRANCH", "name": "main", "hash": _asked(f"{root}/main")["reference"]["hash"]}
    _asked(f"{root}?name={name}&type=BRANCH", empty)
    return name


def _asked(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:
        return dict(json.loads(answer.read()))
