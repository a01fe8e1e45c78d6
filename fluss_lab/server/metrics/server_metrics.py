"""The counters and gauges of a server process, in Prometheus's text format.

Names are Apache Fluss's (its "Monitor Metrics" page), as its Prometheus reporter writes them: ``fluss_``, the scope, the
metric. Where Fluss reports a rate, ``xPerSecond``, here is the counter that it is the rate of, ``x_total``; Prometheus
makes rates itself. Names that Fluss does not have follow the same pattern.

Nothing is gathered before somebody asks: a registry holds functions that look at the live parts. What only the moment
itself can tell is counted where it happens, by adding to a plain attribute: no lock, so an addition may be lost when
two threads make it at once.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from fluss_lab.rpc.rpc_methods import COORDINATOR
from fluss_lab.rpc.serving.call_metrics import TIME_EDGES_MS, CallCounters, Calls

PREFIX: Final = "fluss"
#: The content type of the text format, version 0.0.4.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, object]


@dataclass(slots=True)
class Family:
    """All values of one metric.

    Attributes:
        name: Without the prefix ``fluss_``; one that begins with ``process_`` gets none.
        kind: ``counter``, ``gauge`` or ``histogram``.
        meaning: One line.
        samples: (suffix of the name, labels, value) of each value.
    """

    name: str
    kind: str
    meaning: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float | None, labels: Labels | None = None, suffix: str = "") -> None:
        """Add a value; None is none."""
        if value is not None:
            self.samples.append((suffix, labels or {}, value))


def single(name: str, kind: str, meaning: str, value: float | None) -> Family:
    """Return a metric of one value, without labels."""
    family = Family(name, kind, meaning)
    family.add(value)
    return family


Collector: TypeAlias = Callable[[], Iterable[Family]]


class Metrics:
    """The metrics of one process. Safe for threads."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def add(self, collector: Collector) -> None:
        """Ask a collector too, from now on. It is called by any thread, and must not wait for others."""
        self._collectors.append(collector)

    def text(self) -> str:
        """Return all metrics as text. Families of one name are put together."""
        families: dict[str, Family] = {}
        for collect in list(self._collectors):
            for found in collect():
                families.setdefault(found.name, Family(found.name, found.kind, found.meaning)).samples += found.samples
        return "".join(line for family in families.values() if family.samples for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = family.name if family.name.startswith("process_") else f"{PREFIX}_{family.name}"
    yield f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"
    for suffix, labels, value in family.samples:
        inside = ",".join(f'{key}="{_escaped(str(each))}"' for key, each in labels.items() if each is not None)
        shown = repr(value) if isinstance(value, float) else str(value)
        yield f"{name}{suffix}{{{inside}}} {shown}\n" if inside else f"{name}{suffix} {shown}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def request_families(calls: Calls) -> Iterator[Family]:
    """Yield requests, errors and times of a server's methods."""
    scopes: dict[str, list[tuple[str, CallCounters]]] = {}
    for (service, method), counters in sorted(calls.counters.items()):
        scope = "coordinator" if service == COORDINATOR else "tabletserver"
        scopes.setdefault(scope, []).append((_camel(method), counters))
    for scope, found in scopes.items():
        requests = Family(f"{scope}_request_requests_total", "counter", "Requests, by type.")
        errors = Family(f"{scope}_request_errors_total", "counter", "Requests that were refused as a whole.")
        times = Family(f"{scope}_request_totalTimeMs", "histogram", "Milliseconds that requests took.")
        for name, counters in found:
            labels = {"request": name}
            requests.add(counters.total, labels)
            errors.add(counters.failed, labels)
            below = 0
            for edge, count in zip((*TIME_EDGES_MS, "+Inf"), counters.slots, strict=True):
                below += count
                times.add(below, {**labels, "le": edge}, "_bucket")
            times.add(counters.time_ms, labels, "_sum")
            times.add(below, labels, "_count")
        yield from (requests, errors, times)
    refused = Family("request_refused_total", "counter", "Requests refused unread, by reason.")
    refused.add(calls.unauthenticated, {"reason": "unauthenticated"})
    refused.add(calls.crowded_out, {"reason": "too many at once"})
    yield refused


def _camel(name: str) -> str:
    """Return a method's name as Fluss calls its requests: ``fetchLog``."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


class ProcessMetrics:
    """What the system tells of this process, under the names that Prometheus's own clients use."""

    def __init__(self) -> None:
        self._started_s = time.time()

    def collect(self) -> Iterator[Family]:
        """Yield CPU time, memory, descriptors, threads and the time of the start."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield single(
            "process_cpu_seconds_total", "counter", "User and system CPU time.", usage.ru_utime + usage.ru_stime
        )
        yield single("process_start_time_seconds", "gauge", "When the server started, epoch seconds.", self._started_s)
        yield single("process_threads", "gauge", "Threads of Python.", threading.active_count())
        yield single("process_resident_memory_bytes", "gauge", "Memory in use.", resident_bytes())
        yield single("process_max_fds", "gauge", "Most open files.", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            yield single("process_open_fds", "gauge", "Open files.", len(os.listdir("/proc/self/fd")))
        except OSError:
            return  # only Linux tells


def resident_bytes(pid: int | str = "self") -> int | None:
    """Return the memory that a process has in use; None where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
