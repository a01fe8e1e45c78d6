"""A Java for tests that notes each JVM of Spark, and does something else in its place."""

import shlex
from pathlib import Path

from fluss_lab.spark.session.java_home import find_java

_JAVA = """\
#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
case "$*" in *org.apache.spark.launcher.Main*) exec {java} "$@";; esac
echo $$ >> {pids}
{then}
"""
#: Never listens, and ends with its standard input, as a JVM does.
WAITS = "exec cat > /dev/null"
ENDS = 'echo "no memory"; echo "no memory" >&2; exit 7'
RUNS = 'exec {java} "$@"'


def java_home(folder: Path, then: str) -> Path:
    """Return a ``JAVA_HOME`` in a folder whose Java does `then` where a JVM of Spark would run."""
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = shlex.quote(str(find_java().java))
    java.write_text(_JAVA.format(java=real, pids=shlex.quote(str(folder / "pids")), then=then.format(java=real)))
    java.chmod(0o700)
    return folder / "jdk"


def pids(folder: Path) -> list[str]:
    """Return the process of each JVM so far."""
    return (folder / "pids").read_text().split() if (folder / "pids").exists() else []


def lives(pid: str) -> bool:
    """Return whether a process is there, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
