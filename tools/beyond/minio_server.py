"""MinIO: an object store that speaks S3."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from tools.beyond.part_process import PartFolder, PartProcess, free_port
from tools.beyond.pinned_parts import minio_program

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "lab-access"
_ANSWER_TIMEOUT_S: Final = 2.0


class MinioServer(Closing):
    """A running MinIO on loopback. Use it as a context manager; what it holds goes with it unless a folder is given.

    Args:
        folder: Where the objects are, and the log; it stays. None: a temporary one.
        port: Where it listens; None: a free one.

    Raises:
        PartUnavailableError: There is no MinIO on this machine, and none can be built.
        PartFailedError: It did not start.
    """

    def __init__(self, folder: Path | None = None, *, port: int | None = None) -> None:
        program = minio_program()
        self.port = port or free_port()
        self.access_key, self.secret_key = ACCESS_KEY, secrets.token_hex(16)
        place = PartFolder("minio", folder)
        #: A folder for each bucket.
        self.objects = place.path / "objects"
        command = [
            str(program),
            "server",
            str(self.objects),
            "--address",
            f"127.0.0.1:{self.port}",
            "--quiet",
        ]
        self.process = PartProcess("minio", command, place, self._is_ready, env=self._env())
        self.process.launch()

    @property
    def endpoint(self) -> str:
        """Return the URL of its S3 face."""
        return f"http://127.0.0.1:{self.port}"

    def make_bucket(self, name: str) -> str:
        """Make a bucket, and return its location, ``s3://name``."""
        from pyarrow.fs import S3FileSystem

        store = S3FileSystem(
            access_key=self.access_key, secret_key=self.secret_key, region=REGION, allow_bucket_creation=True,
            endpoint_override=self.endpoint,
        )  # fmt: skip
        store.create_dir(name)
        return f"s3://{name}"

    def lake_options(self, endpoint: str | None = None) -> dict[str, str]:
        """Return pyiceberg's properties by which files here are read and written.

        Args:
            endpoint: Of a proxy before it; None: its own.
        """
        return {
            "s3.endpoint": endpoint or self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": REGION,
        }

    def remote_options(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the cluster's options by which remote storage here is read and written; `endpoint` as above."""
        return {
            "remote.s3.endpoint": endpoint or self.endpoint,
            "remote.s3.access-key-id": self.access_key,
            "remote.s3.secret-access-key": self.secret_key,
            "remote.s3.region": REGION,
            "remote.s3.force-virtual-addressing": "false",
            "remote.s3.allow-http": "true",
        }

    def revoke_credentials(self) -> None:
        """Have it know only another secret from now on; `restore_credentials` goes back."""
        self._restart_with(secrets.token_hex(16))

    def restore_credentials(self) -> None:
        """Have it know the secret again that it began with."""
        self._restart_with(self.secret_key)

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _restart_with(self, secret: str) -> None:
        self.process.stop()
        self.process.env["MINIO_ROOT_PASSWORD"] = secret
        self.process.start()

    def _env(self) -> dict[str, str]:
        return {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_REGION": REGION,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CONFIG_ENV_FILE": "",
        }

    def _is_ready(self) -> bool:
        return answers(f"{self.endpoint}/minio/health/cluster")


def answers(url: str) -> bool:
    """Return whether a server answers a URL, and with success."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310 - of loopback
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
