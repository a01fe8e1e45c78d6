"""The surroundings that a JVM of Spark's takes over: arguments, and folders for files. Read and checked before it starts."""

from __future__ import annotations

import atexit
import logging
import os
import pwd
import resource
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import InvalidPropertyError, ResourceExhaustedError, StorageError, UnsupportedError
from fluss_lab.spark.session.user_cache import check_private, private_caches

log = logging.getLogger(__name__)

#: Where a person has arguments of ``spark-submit`` for pyspark; and the last of them, by which that knows what to start.
ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
#: Of ``spark-submit``: say where Spark runs, which a lab says itself.
_PLACES: Final = ("--master", "--deploy-mode", "--remote")
#: What else decides how a JVM starts.
_DECISIVE: Final = (
    ARGUMENTS,
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
)
_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
_LOCAL_DIR: Final = "spark.local.dir"
#: Where a JVM puts temporary files, whatever TMPDIR says.
_JVM_DEFAULT: Final = Path("/tmp")  # noqa: S108  # that is where it does
_TEMP_OPTION: Final = "java.io.tmpdir"
#: Files of a JVM beside the archives of its classes; and how many are enough for all that it does.
_OTHER_FILES: Final = 128
_FILES_ADVISED: Final = 4096
#: Threads, which count as processes, of a JVM, its context and a first query: on each core, and beside; and how many are enough.
_CORE_THREADS: Final = 8
_OTHER_THREADS: Final = 64
_PROCESSES_ADVISED: Final = 4096
#: Of a process that no limit of its user's processes holds for: CAP_SYS_ADMIN and CAP_SYS_RESOURCE, as bits.
_UNLIMITED: Final = 1 << 21 | 1 << 24
#: Of a file that a disk with any room takes.
_LOOK_BYTES: Final = 4096
_NO_EXECUTION: Final = getattr(os, "ST_NOEXEC", 0)


def submit_arguments(env: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Return what follows a start's own settings on the command line of ``spark-submit``: a person's arguments, and what to start.

    A master among them is not used: the settings say where Spark runs.

    Args:
        env: The environment.
        settings: Of the start, ``spark.master`` among them.

    Raises:
        InvalidPropertyError: They cannot be read, or start something else than pyspark.
    """
    try:
        words = shlex.split(env.get(ARGUMENTS, _SHELL))
    except ValueError as error:
        raise InvalidPropertyError(f"{ARGUMENTS}: it cannot be read as words of a shell: {error}") from error
    if _SHELL not in words:
        raise InvalidPropertyError(
            f"{ARGUMENTS}: expected options of spark-submit and then {_SHELL}, as '--conf a=b {_SHELL}', found {env[ARGUMENTS][:200]!r}"
        )
    at, master = words.index(_SHELL), settings.get("spark.master", "")
    kept = list(_without_places(words[:at], master))
    # Behind theirs: the last one counts.
    return [*kept, "--master", master, "--deploy-mode", "client", "--conf", f"spark.master={master}", *words[at:]]


def _without_places(words: list[str], master: str) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if name not in _PLACES:
            yield word
            continue
        value = value if sign else next(rest, "")
        if value not in {master, "client"}:
            log.warning(
                "%s has %s %s, which is not used: Spark starts as %s; lab.start_spark(master) or client.spark.master says otherwise",
                ARGUMENTS, name, value, master,
            )  # fmt: skip


def check_open_files(home: Path | None) -> None:
    """Check that a JVM of Spark's may open as many files as it must at its start, which are the archives of its classes.

    With fewer it ends, and prints traces of Java's that speak of damaged installations.

    Args:
        home: Spark's; None: it is not known.

    Raises:
        ResourceExhaustedError: It may not.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # to which a JVM raises its own limit
    needed = _OTHER_FILES + (0 if home is None else sum(1 for _ in (home / "jars").glob("*.jar")))
    if most != resource.RLIM_INFINITY and most < needed:
        raise ResourceExhaustedError(
            f"Spark's JVM needs {needed} open files and more to start; a process may have {most} here: allow more: ulimit -n {_FILES_ADVISED}"
        )


def check_user() -> None:
    """Check that this user has a name, as one of a container may not: without one Java knows no home, and Hadoop no user.

    Raises:
        UnsupportedError: The system's list of users has none.
    """
    user = os.getuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        entry = f"fluss:x:{user}:{os.getgid()}::{os.environ.get('HOME') or '/tmp'}:/bin/sh"  # noqa: S108
        raise UnsupportedError(
            f"user id {user} has no entry in the system's list of users, without which Spark's JVM does not start: run as a user "
            f"that has one, or add one, as {entry} to /etc/passwd"
        ) from None


def check_threads() -> None:
    """Check that this user may start as many threads as Spark's JVM must: it waits for ever for one that could not be started.

    Raises:
        ResourceExhaustedError: They are too few.
    """
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    needed = _OTHER_THREADS + _CORE_THREADS * (os.cpu_count() or 1)
    if most == resource.RLIM_INFINITY or (begun := _threads()) is None or most - begun >= needed:
        return
    raise ResourceExhaustedError(
        f"Spark's JVM needs {needed} threads and more, which count as processes; this user may have {most} here, and has {begun}: "
        f"allow more: ulimit -u {_PROCESSES_ADVISED}"
    )


def _threads() -> int | None:
    """Return how many threads the user of this process has; None: no limit holds for this process, or the system does not say."""
    user, count = os.getuid(), 0
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        powers = int(status.partition("CapEff:")[2].split()[0], 16)
        if user == 0 or powers & _UNLIMITED:
            return None
        for process in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):  # it has ended
                if os.stat(f"/proc/{process}").st_uid == user:
                    count += len(os.listdir(f"/proc/{process}/task"))
    except (OSError, IndexError, ValueError):
        return None
    return count


def check_temporary_files() -> None:
    """Check that temporary files can be written: a start of Spark needs some.

    Raises:
        StorageError: They cannot.
    """
    with files.temporary_folder("fluss_lab-look-") as folder:
        try:
            (folder / "look").write_bytes(bytes(_LOOK_BYTES))
        except OSError as error:
            raise files.temporary_refusal(folder.parent, error) from error


def check_local_dirs(env: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Check that Spark on this machine has a folder for what does not fit into memory: without, its JVM ends without an error.

    Like Spark, this makes them where they are not there.

    Raises:
        StorageError: Folders are named, and none of them can be written.
    """
    name, value = next(
        ((name, where[name]) for name, where in ((_LOCAL_DIRS, env), (_LOCAL_DIR, settings)) if name in where), ("", "")
    )
    reasons = []
    for place in filter(None, value.split(",")):
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return
        except (OSError, ValueError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    if reasons:
        raise StorageError(
            f"{name}: Spark can write no folder of it ({'; '.join(reasons)}); name one that it can, or unset it"
        )


def temp_options(env: Mapping[str, str]) -> list[str]:
    """Return the options by which a JVM puts temporary files where this process does; none where it does so anyway.

    Where no programs may be run from there (``noexec``), which JVMs load parts of compression from, it is a folder of the user's
    cache, which goes with this process. What a person says in the environment is left alone.
    """
    if any(_TEMP_OPTION in env.get(name, "") for name in _DECISIVE):
        return []
    folder = Path(tempfile.gettempdir()).absolute()
    if not _runs_programs(folder):
        folder = next(_spare_folders(env), folder)
    text = str(folder)
    if folder == _JVM_DEFAULT or not (text.isascii() and text.isprintable()):
        return []
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return [f'"-D{_TEMP_OPTION}={escaped}"']


def _spare_folders(env: Mapping[str, str]) -> Iterator[Path]:
    for base in private_caches(env):
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_private(base)
            if not _runs_programs(base):
                continue
            folder = Path(tempfile.mkdtemp(prefix="jvm-", dir=base))
        except OSError as error:
            log.info("no temporary files of Spark's in %s: %s", base, error)
            continue
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _runs_programs(folder: Path) -> bool:
    try:
        return not os.statvfs(folder).f_flag & _NO_EXECUTION
    except OSError:
        return True  # what is wrong with it is said where it is used


def decisive_variables(env: Mapping[str, str]) -> str:
    """Return, as the end of an error, which variables decided how a JVM started; empty without any."""
    found = [name for name in _DECISIVE if env.get(name)]
    return f" Of the environment it took over {', '.join(found)}: are they right?" if found else ""
