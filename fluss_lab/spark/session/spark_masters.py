"""The meaning of a Spark master's name: where its tasks run."""

from __future__ import annotations

import re
from typing import Final

from fluss_lab.rpc.access.tls import LOOPBACK

#: `spark.task.maxFailures` of a master that is not local.
ATTEMPTS_DEFAULT: Final = 4

_ONE_PROCESS: Final = re.compile(r"local(\[[^\]]*\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[[^\]]*\]")


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
