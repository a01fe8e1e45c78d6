"""The placement of a Spark that is started here: where it runs, and what its workers are given, by its master.

Spark on this machine (see `runs_here`) listens on loopback only and runs its workers on this Python. Workers in
processes beside the driver's, on this machine or another, get fluss_lab as a file; what a round's tasks
need beyond it, the server's address with token and certificate and the lake's configuration, is in each task. Nothing
else of this process goes to them: no folder of the driver's, no environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

from fluss_lab.files import process_folder, write_atomic
from fluss_lab.rpc.access.tls import LOOPBACK
from fluss_lab.spark.session.class_archive import OPTIONS_VARIABLE, ClassArchive, takes_archive
from fluss_lab.spark.session.java_home import JavaHome, find_java
from fluss_lab.spark.session.jvm_surroundings import temp_options

if TYPE_CHECKING:
    from pyspark import SparkContext

#: `spark.task.maxFailures` of a master that is not local.
ATTEMPTS_DEFAULT: Final = 4

_ONE_PROCESS: Final = re.compile(r"local(\[[^\]]*\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[[^\]]*\]")

DISTRIBUTION: Final = "fluss-lab"
#: What an executor's Python looks for to find lake formats and the release.
_METADATA: Final = ("METADATA", "entry_points.txt")
#: The earliest time that a zip can hold: files of the same content make the same bytes.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
DAEMON: Final = "fluss_lab.spark.session.worker_daemon"
PYTHON: Final = "spark.pyspark.python"
#: What a Spark home must have, and may have.
_HOME_PARTS: Final = ("bin", "jars", "sbin", "conf")
#: Packages in which Spark itself looks for data sources begin so.
_STATIC_SOURCES: Final = "pyspark_"
#: What no command is called: then Spark looks for no such packages.
_NO_PYTHON: Final = "no-python-with-data-sources"
#: When the JVM's second compiler, which makes the fastest code at the greatest cost, takes a method up: ten times as late as by
#: default and more. Of a start and the first query it takes two fifths of the CPU, for code that is hardly run again; what goes
#: over millions of rows it compiles all the same.
_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
#: The path of a socket is at most so long on every system, and Spark calls it by a slash, a dot, a UUID and ``.sock``.
SOCKET_PATH_BYTES_MAX: Final = 103
_SOCKET_NAME_BYTES: Final = 43
WORKER_PATH: Final = "spark.executorEnv.PYTHONPATH"
FILES: Final = "spark.files"


def is_one_process(master: str) -> bool:
    """Return whether driver and executors are one JVM: ``local``, ``local[4]``, ``local[*,3]``."""
    return _ONE_PROCESS.fullmatch(master) is not None


def runs_here(master: str) -> bool:
    """Return whether all of Spark runs on this machine.

    True for ``local...`` and ``local-cluster[...]``, and for a standalone master that is called by a loopback address:
    no worker of another machine can reach such a master, so all of them are on this one. A standalone master that is
    called by a name or another address may have workers anywhere, even when it is this machine's own: False.
    """
    if is_one_process(master) or _LOCAL_CLUSTER.fullmatch(master):
        return True
    scheme, _, places = master.partition("://")
    return scheme == "spark" and all(_host(place) in LOOPBACK for place in places.split(","))


def attempts_of(master: str, configured: str | None) -> int:
    """Return how often Spark tries a task: ``local[N,F]`` says so itself, plain ``local[N]`` tries once.

    Args:
        master: Spark's master.
        configured: The value of ``spark.task.maxFailures``, if it is set.
    """
    if match := re.fullmatch(r"local\[[^,\]]+,\s*(\d+)\s*\]", master):
        return int(match.group(1))
    if is_one_process(master):
        return 1
    return int(configured) if configured and configured.isdigit() else ATTEMPTS_DEFAULT


def _host(place: str) -> str:
    return place.rpartition(":")[0].removeprefix("[").removesuffix("]")


def release() -> str:
    """Return the installed release, as ``0.1.0``; ``0`` for a checkout that was never installed."""
    try:
        return distribution(DISTRIBUTION).version
    except PackageNotFoundError:
        return "0"


def write_package(folder: Path) -> Path:
    """Write this fluss_lab as a zip into a folder and return its path.

    The name holds release and content, so that executors never take one for another. One that is there is left alone.

    Cost: some 20 ms; about 0.6 MB.
    """
    entries = sorted(_entries())
    digest = hashlib.sha256()
    for name, data in entries:
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    target = folder / f"fluss_lab-{release()}-{digest.hexdigest()[:12]}.zip"
    if not target.exists():
        write_atomic(target, _zip_bytes(entries), durable=False)
    return target


def _zip_bytes(entries: list[tuple[str, bytes]]) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _entries() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package and its metadata, by their names in the archive."""
    root = Path(__file__).parents[2]
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root.parent).as_posix(), path.read_bytes()
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return
    for name in _METADATA:
        if (text := installed.read_text(name)) is not None:
            yield f"fluss_lab-{installed.version}.dist-info/{name}", text.encode()


class SparkPlacement:
    """Settings and environment of a Spark that is going to start.

    Args:
        master: Spark's master.
        asked: Settings that the caller asked for; they win, and paths among them are added to.
        folder: Where Spark may put files; None: a temporary folder that goes with the process.
        has_archive: Whether an archive of Spark's classes may be used.
    """

    def __init__(
        self, master: str, asked: Mapping[str, str], folder: Path | None, *, has_archive: bool = False
    ) -> None:
        self._has_archive = has_archive
        self._master = master
        self._asked = asked
        self._given = folder.absolute() if folder is not None else None
        self._temporary: Path | None = None

    def settings(self) -> dict[str, str]:
        """Return the Spark settings of the place, those asked for included."""
        found = self._local_settings() if runs_here(self._master) else {}
        found["spark.python.daemon.module"] = DAEMON
        if not is_one_process(self._master):
            return found | dict(self._asked) | self._shipped_settings()
        if (source := _source()) is not None:
            # A checkout: workers find it wherever the driver's current folder is.
            found[WORKER_PATH] = source
        return found | _socket_settings(self._scratch()) | dict(self._asked)

    def environment(self) -> dict[str, str | None]:
        """Return the environment variables that Spark's start reads; None stands for one that must be absent.

        Raises:
            JavaNotFoundError: No Java 17 or newer.
        """
        python = _python(self._master, self._asked)
        wanted: dict[str, str | None] = {
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # Any of these would make a Spark Connect session.
            "SPARK_REMOTE": None,
            "SPARK_API_MODE": None,
            "SPARK_CONNECT_MODE_ENABLED": None,
        }
        java = find_java() if "PYSPARK_GATEWAY_PORT" not in os.environ else None
        if java is not None:
            wanted["JAVA_HOME"] = str(java.home)
        if runs_here(self._master):
            # The block manager and the UI follow this one only, not spark.driver.bindAddress.
            wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
            # Another Spark's jars do not fit this pyspark; and the scripts' own search breaks on paths with spaces.
            if (home := spark_home()) is not None:
                parts = self.parts(home)
                if "python" not in parts:
                    wanted["PYSPARK_DRIVER_PYTHON"] = _NO_PYTHON
                archive = self._archive(home, parts, java)
                linked = _link_home(home, self._scratch(), parts) if archive is None else archive.home
                wanted["SPARK_HOME"] = str(linked)
                if archive is not None and (options := archive.options()) is not None:
                    wanted[OPTIONS_VARIABLE] = f"{os.environ.get(OPTIONS_VARIABLE, '')} {options}".strip()
        return wanted

    def _archive(self, home: Path, parts: tuple[str, ...], java: JavaHome | None) -> ClassArchive | None:
        """Return the place of an archive of Spark's classes, if one may be used."""
        if java is None or not self._has_archive or not is_one_process(self._master) or not takes_archive(os.environ):
            return None
        return ClassArchive.of(home, parts, java.java, os.environ)

    def _local_settings(self) -> dict[str, str]:
        log_settings = Path(str(resources.files("fluss_lab.spark").joinpath("log4j2.properties")))
        folder = self._given or self._scratch()
        temporary = temp_options(os.environ)
        # Its executors are on this machine, and of this user.
        beside = (
            {"spark.executor.defaultJavaOptions": " ".join(temporary)} if _LOCAL_CLUSTER.fullmatch(self._master) else {}
        )
        return {
            **beside,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
            # As a URI: the launcher splits options at spaces.
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
            # Before a person's own options, which win.
            "spark.driver.defaultJavaOptions": " ".join((*_COMPILER, *temporary)),
        }

    def _shipped_settings(self) -> dict[str, str]:
        """Return the settings by which executors get this fluss_lab, joined with what was asked for."""
        package = write_package(self._scratch())
        path, files = self._asked.get(WORKER_PATH), self._asked.get(FILES)
        return {
            # Relative: the file lands in each executor's working folder.
            WORKER_PATH: os.pathsep.join([package.name, path] if path else [package.name]),
            FILES: ",".join([package.as_uri(), files] if files else [package.as_uri()]),
        }

    def parts(self, home: Path) -> tuple[str, ...]:
        """Return which parts of Spark's home this Spark has.

        Its archives of Python modules are of no use to workers here, which run on this Python, but each of them, and each
        process that plans a read, reads them from end to end. Spark also starts another Python, before the first read of
        anything, to look for data sources in packages named ``pyspark_...``. Without any of these it needs neither.
        """
        has_sources = any(module.name.startswith(_STATIC_SOURCES) for module in iter_modules())
        is_found = _is_installed(home.parent) and is_one_process(self._master)
        return _HOME_PARTS if is_found and not has_sources else (*_HOME_PARTS, "python")

    def _scratch(self) -> Path:
        if self._temporary is None:
            self._temporary = scratch_folder()
        return self._temporary


def ship_package(context: SparkContext) -> None:
    """Give fluss_lab to the executors of a session that was not made here; once a context is enough.

    A session that `SparkPlacement` set up has it from its start, and workers that start faster.
    """
    if not is_one_process(str(context.master)) and "fluss_lab-" not in (context.getConf().get(WORKER_PATH) or ""):
        context.addPyFile(str(write_package(scratch_folder())))


def scratch_folder() -> Path:
    """Return a new folder that goes with the process, or with a later one of this user where it is killed."""
    return process_folder("fluss_lab-spark-")


def worker_python(master: str) -> str | None:
    """Return the Python that workers of a session must run, whoever made it; None: what the session says."""
    return sys.executable if runs_here(master) else None


def spark_home() -> Path | None:
    """Return the folder of the installed pyspark, which has Spark's scripts and jars; pyspark is not imported."""
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _python(master: str, asked: Mapping[str, str]) -> str:
    """Return the Python of the workers: this one, or on other machines one that was named.

    Without a name it is this one's path there too, which is right for one image or one shared disk. Spark's own
    default, whatever ``python3`` is, has fluss_lab's requirements by luck only.
    """
    if runs_here(master):
        return sys.executable
    return asked.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _source() -> str | None:
    """Return the folder to find this package in, when it is not installed where every Python looks."""
    source = Path(__file__).parents[3]
    return None if _is_installed(source) else str(source)


def _is_installed(folder: Path) -> bool:
    """Return whether every process of this Python finds what is in a folder."""
    return str(folder) in {*site.getsitepackages(), site.getusersitepackages()}


def _socket_settings(folder: Path) -> dict[str, str]:
    """Return the settings by which Spark and its Python workers on this machine talk through sockets in a folder of the user's.

    Over TCP a task with little data waits 40 ms for an acknowledgement that the system delays. Measured: a round of 1,000 rows
    160 to 180 ms instead of 240 to 260.
    """
    if os.name != "posix" or len(os.fsencode(folder)) > SOCKET_PATH_BYTES_MAX - _SOCKET_NAME_BYTES:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _link_home(home: Path, folder: Path, names: Iterable[str]) -> Path:
    """Return a Spark home that links to parts of another. Executors of ``local-cluster`` leave their folders in it."""
    linked = folder / "home"
    if not linked.exists():
        linked.mkdir()
        for name in names:
            if (home / name).exists():
                (linked / name).symlink_to(home / name)
    return linked
