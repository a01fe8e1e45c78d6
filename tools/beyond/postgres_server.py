"""PostgreSQL: a database for a SQL catalog."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from tools.beyond.part_process import PartFailedError, PartFolder, PartProcess, free_port
from tools.beyond.pinned_parts import PartUnavailableError, postgres_programs

USER: Final = "lab"
DRIVER: Final = "psycopg2"
_MAKE_TIMEOUT_S: Final = 120
#: Of these, the first that there is runs it for root, whom PostgreSQL refuses.
_SERVANTS: Final = ("postgres", "nobody")


class PostgresServer(Closing):
    """A running PostgreSQL on loopback, with a password. Use it as a context manager.

    Args:
        folder: Where its data are, and the log; it stays. None: a temporary one.
        port: Where it listens; None: a free one.

    Raises:
        PartUnavailableError: It is not on this machine, or Python's driver for it is not installed.
        PartFailedError: It did not start.
    """

    def __init__(self, folder: Path | None = None, *, port: int | None = None) -> None:
        self._programs = postgres_programs()
        if find_spec(DRIVER) is None:
            raise PartUnavailableError(f"PostgreSQL: its driver is not installed (pip install {DRIVER}-binary)")
        self.port = port or free_port()
        self.password = secrets.token_hex(16)
        self._user = _servant()
        place = PartFolder("postgres", folder)
        if self._user is not None:
            os.chown(place.path, self._user, self._user)
        data = place.path / "data"
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            # Shared memory in its folder: what is killed leaves nothing elsewhere.
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "16MB",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(data), *options]
        self.process = PartProcess(
            "postgres", command, place, self._is_ready, user=self._user, stop_signal=signal.SIGINT
        )
        with self.process.ended_by_failure():
            if not data.exists():
                self._make(place.path, data)
            self.process.start()

    def uri(self, port: int | None = None) -> str:
        """Return SQLAlchemy's URL of its database.

        Args:
            port: Of a proxy before it; None: its own.
        """
        return f"postgresql+{DRIVER}://{USER}:{self.password}@127.0.0.1:{port or self.port}/postgres"

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _make(self, folder: Path, data: Path) -> None:
        password = folder / "password"
        password.write_text(self.password)
        password.chmod(0o600)
        if self._user is not None:
            os.chown(password, self._user, self._user)
        command = [
            str(self._programs / "initdb"), "-D", str(data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}",
            "--encoding=UTF8", "--no-locale", "--no-sync",
        ]  # fmt: skip
        made = subprocess.run(
            command, capture_output=True, text=True, timeout=_MAKE_TIMEOUT_S, check=False, cwd=folder, user=self._user,
            group=self._user, extra_groups=None if self._user is None else [],
        )  # fmt: skip
        password.unlink()
        if made.returncode:
            raise PartFailedError(
                f"initdb ended with code {made.returncode}: {made.stdout[-1000:]}{made.stderr[-2000:]}"
            )

    def _is_ready(self) -> bool:
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0


def _servant() -> int | None:
    """Return the id of the user who runs it; None: this one."""
    if os.getuid() != 0:
        return None
    known = {each.pw_name: each.pw_uid for each in pwd.getpwall()}
    return next((known[name] for name in _SERVANTS if name in known), 65534)
