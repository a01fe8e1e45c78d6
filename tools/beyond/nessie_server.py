"""Nessie: an Iceberg REST catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from tools.beyond.minio_server import REGION, MinioServer, answers
from tools.beyond.part_process import PartFolder, PartProcess, free_port
from tools.beyond.pinned_parts import nessie_jar, nessie_java

WAREHOUSE: Final = "lab"


class NessieServer(Closing):
    """A running Nessie on loopback, whose tables lie in a MinIO. Use it as a context manager.

    What it knows stays on the disk while the object lives: it may be killed and started again.

    Args:
        minio: Where tables lie.
        location: Of the warehouse, such as ``s3://lake``; its bucket must be there.
        store_endpoint: The URL at which it and its clients reach `minio`, when that is a proxy's.
        folder: Where its data are, and the log; it stays. None: a temporary one.
        port: Where it listens; None: a free one.

    Raises:
        PartUnavailableError: Its jar or a Java for it cannot be had.
        PartFailedError: It did not start.
    """

    def __init__(
        self,
        minio: MinioServer,
        location: str,
        *,
        store_endpoint: str | None = None,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        jar, java = nessie_jar(), nessie_java()
        self.port = port or free_port()
        self._minio = minio
        self._store_endpoint = store_endpoint or minio.endpoint
        self._management_port = free_port()
        place = PartFolder("nessie", folder)
        settings = [f"-D{key}={value}" for key, value in self._settings(location, place.path / "versions").items()]
        # Small and soon there: code that the second compiler makes would come too late for a test.
        command = [str(java), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *settings, "-jar", str(jar)]
        secret = {"ACCESS_NAME": minio.access_key, "ACCESS_SECRET": minio.secret_key}
        self.process = PartProcess("nessie", command, place, self._is_ready, env=secret)
        self.process.launch()

    @property
    def uri(self) -> str:
        """Return the URL of its Iceberg REST face."""
        return f"http://127.0.0.1:{self.port}/iceberg/"

    def lake_options(self, uri: str | None = None) -> dict[str, str]:
        """Return the properties of the catalog for pyiceberg, with those of the store.

        Args:
            uri: Of a proxy before it, with the path; None: its own.
        """
        store = self._minio.lake_options(self._store_endpoint)
        return {"type": "rest", "uri": uri or self.uri, "warehouse": WAREHOUSE, **store}

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _settings(self, location: str, versions: Path) -> dict[str, str]:
        store = "nessie.catalog.service.s3.default-options"
        return {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(self._management_port),
            "quarkus.log.console.level": "WARN",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": str(versions),
            "nessie.catalog.default-warehouse": WAREHOUSE,
            f"nessie.catalog.warehouses.{WAREHOUSE}.location": location.rstrip("/") + "/",
            f"{store}.endpoint": self._store_endpoint + "/",
            f"{store}.path-style-access": "true",
            f"{store}.region": REGION,
            f"{store}.auth-type": "STATIC",
            f"{store}.access-key": "urn:nessie-secret:quarkus:access",
        }

    def _is_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.port}/iceberg/v1/config")
