"""The class-data archive of Spark's JVM: the classes of a start, in a file that the next JVM maps.

Half of the CPU seconds of a start, and of the first queries, go into finding and verifying some twenty thousand classes
in Spark's jars. A JVM writes such a file at its end when it is asked to (``-XX:ArchiveClassesAtExit``), for the same Java
and the same jars at the same paths. It is made once, in the user's cache, by a process in the background that ends
with the one that began it. Whatever is wrong with it, Spark starts without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fluss_lab.files import replace, try_lock, write_atomic
from fluss_lab.spark.session.user_cache import check_private, private_caches

log = logging.getLogger(__name__)

#: Where the launcher of a JVM finds options for it.
OPTIONS_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
#: Options by which a person, or the process that makes one, has an archive of its own.
_OWN: Final = ("ArchiveClassesAtExit", "SharedArchiveFile", "AutoCreateSharedArchive", "Xshare")
_FORMAT: Final = 1
_ARCHIVE: Final = "classes.jsa"
_MANIFEST: Final = "classes.json"
_FAILED: Final = "failed"
_LOCK: Final = "lock"
#: What makes a folder known as such a place.
_PLACE: Final = "place"
_DRAFT: Final = ".draft-"
_FOLDER: Final = "spark-"
#: An archive takes 165 MB; a disk with less than this is left alone.
_FREE_BYTES_MIN: Final = 1 << 30
_CHUNK_BYTES: Final = 1 << 22
#: What could not be made is tried again after this.
_FAILED_S: Final = 86_400
#: Archives of other Sparks and Javas that no JVM has mapped for this long go.
_UNUSED_S: Final = 30 * 86_400
#: One whose beginner went first is tried again after this: by who stays longer, it may be.
_LEFT_S: Final = 3_600
#: A JVM maps no classes of jars whose path is another one as a URL; and a classpath cannot have a colon in it.
_FIT: Final = re.compile(r"[A-Za-z0-9/._~+@=-]+")
#: Beside the work of the one that began it.
_NICENESS: Final = 10


class ClassArchive:
    """A Spark home at a place that stays, and the archive for it.

    Args:
        folder: Of both; private.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(home: Path, parts: Iterable[str], java: Path, env: Mapping[str, str]) -> ClassArchive | None:
        """Return the place for a Spark and a Java; None where no private folder can be had, or the paths do not serve.

        Args:
            home: The installed Spark.
            parts: Which of its parts the home at the place links to.
            java: The program.
            env: The environment: options of the JVM, and where the cache is.
        """
        if not _FIT.fullmatch(str(home.resolve())):
            return None
        for base in private_caches(env):
            if not _FIT.fullmatch(str(base)):
                continue
            try:
                folder = base / f"{_FOLDER}{_digest(home, parts, java, env)}"
                base.mkdir(parents=True, exist_ok=True, mode=0o700)
                folder.mkdir(exist_ok=True, mode=0o700)
                check_private(base)
                check_private(folder)
                _link(home, folder / "home", parts)
                (folder / _PLACE).touch(mode=0o600)
                os.utime(folder)  # used now
            except OSError as error:
                log.info("no archive of Spark's classes in %s: %s", base, error)
                continue
            return ClassArchive(folder)
        return None

    @property
    def home(self) -> Path:
        """Return the Spark home that the archive is for."""
        return self.folder / "home"

    def options(self) -> str | None:
        """Return the JVM options by which it is used; None while there is none, or none that is whole.

        Cost: its bytes are read, some 0.1 s; the JVM reads them next.
        """
        path = self.folder / _ARCHIVE
        if not self._is_whole(path):
            return None
        return f'-XX:SharedArchiveFile="{path}" -Xlog:cds=off,cds+dynamic=off'

    def _is_whole(self, path: Path) -> bool:
        """Return whether the archive is what was written: of one that was cut short a JVM dies."""
        try:
            manifest = json.loads((self.folder / _MANIFEST).read_bytes())
            wanted = (manifest["version"], manifest["size"], manifest["crc32"])
            check_private(path)
            return wanted == (_FORMAT, path.stat().st_size, _crc32(path))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def drop(self) -> None:
        """Remove the archive: a JVM ended with it. It is made again, after a day."""
        with suppress(OSError):
            self.note_failure()
            (self.folder / _MANIFEST).unlink(missing_ok=True)
            (self.folder / _ARCHIVE).unlink(missing_ok=True)

    def begin(self) -> threading.Thread | None:
        """Have a process make the archive, unless it is there or has failed lately; returns at once, and never fails.

        Returns:
            The thread that waits for the process; None when none is needed.
        """
        if (self.folder / _MANIFEST).exists() or self._has_failed():
            return None
        waiting = threading.Thread(target=self._make_elsewhere, name="fluss-spark-archive", daemon=True)
        waiting.start()
        return waiting

    def _has_failed(self) -> bool:
        with suppress(OSError):
            return time.time() - (self.folder / _FAILED).stat().st_mtime < _FAILED_S
        return False

    def note_failure(self, *, is_left: bool = False) -> None:
        """Note that it could not be made: it is tried again after a day, or after an hour where its beginner left it."""
        (self.folder / _FAILED).touch(mode=0o600)
        if is_left:
            since_s = time.time() - _FAILED_S + _LEFT_S
            os.utime(self.folder / _FAILED, (since_s, since_s))

    def _make_elsewhere(self) -> None:
        command = [sys.executable, "-m", "fluss_lab.spark.session.class_archive_maker", str(self.folder)]
        try:
            # Its standard input is a pipe, by whose end it knows that this process has gone.
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as maker:
                if maker.wait() and not self._has_failed():
                    self.note_failure()
        except OSError as error:
            log.info("no archive of Spark's classes is made: %s", error)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Give a path to write a new archive to, and keep it if it was written; one process at a time does that.

        Raises:
            BlockingIOError: Another process makes one.
            OSError: There is no room for it.
        """
        with (self.folder / _LOCK).open("w") as lock:
            if not try_lock(lock.fileno()):
                raise BlockingIOError("another process makes it")
            if self.options() is not None:
                raise BlockingIOError("it is there")
            for left in self.folder.glob(f"{_DRAFT}*"):
                left.unlink(missing_ok=True)
            if shutil.disk_usage(self.folder).free < _FREE_BYTES_MIN:
                raise OSError(f"{self.folder}: less than 1 GB is free")
            path = self.folder / f"{_DRAFT}{os.getpid()}"
            try:
                yield path
                self._keep(path)
            except Exception:
                self.note_failure()
                raise
            finally:
                path.unlink(missing_ok=True)
            self._remove_unused()

    def _keep(self, path: Path) -> None:
        path.chmod(0o600)
        manifest = {"version": _FORMAT, "size": path.stat().st_size, "crc32": _crc32(path)}
        replace(path, self.folder / _ARCHIVE)
        write_atomic(self.folder / _MANIFEST, json.dumps(manifest).encode(), durable=False)

    def _remove_unused(self) -> None:
        for other in self.folder.parent.glob(f"{_FOLDER}*"):
            with suppress(OSError):
                if other != self.folder and time.time() - other.stat().st_mtime > _UNUSED_S:
                    shutil.rmtree(other)


def archive_of(environment: Mapping[str, str | None]) -> ClassArchive | None:
    """Return the archive's place that the environment of a start names, if it names one."""
    home = Path(environment.get("SPARK_HOME") or "")
    return ClassArchive(home.parent) if (home.parent / _PLACE).exists() else None


def takes_archive(env: Mapping[str, str]) -> bool:
    """Return whether a JVM started in an environment may be given an archive: it has no option of that kind yet."""
    given = env.get(OPTIONS_VARIABLE, "")
    return not any(option in given for option in _OWN)


def lower_priority() -> None:
    """Leave the cores of this machine to what a person waits for."""
    with suppress(OSError):
        os.nice(_NICENESS)


def _digest(home: Path, parts: Iterable[str], java: Path, env: Mapping[str, str]) -> str:
    """Return what an archive depends on: Java, options, and path, size and time of every jar."""
    release = java.resolve().parents[1] / "release"
    lines = [f"{_FORMAT} {java.resolve()} {env.get(OPTIONS_VARIABLE, '')} {sorted(parts)}"]
    with suppress(OSError):
        lines.append(release.read_text())
    for jar in sorted((home / "jars").glob("*.jar")):
        status = jar.stat()
        lines.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _link(home: Path, linked: Path, parts: Iterable[str]) -> None:
    wanted = [name for name in parts if (home / name).exists()]
    if linked.is_dir() and all((linked / name).exists() for name in wanted):
        return
    draft = linked.with_name(f"{_DRAFT}home-{os.getpid()}-{threading.get_ident()}")
    for old in (draft, linked):  # of a crash, or with links that are missing
        if old.is_dir():
            shutil.rmtree(old)
    draft.mkdir(mode=0o700)
    for name in wanted:
        (draft / name).symlink_to(home / name)
    try:
        replace(draft, linked)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not linked.is_dir():  # another process was first
            raise


def _crc32(path: Path) -> int:
    found = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            found = zlib.crc32(chunk, found)
    return found
