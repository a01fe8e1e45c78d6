"""Memory of a server's process: after many scans, while readers are stopped in the midst of one, and when they are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.data import rows
from benchmarks.report import Figures
from fluss_lab.server.cluster import read_discovery
from fluss_lab.workbench import Lab

ROWS = 200_000
REWRITES = 4
SCANS = 40
READERS = 12
BATCH_ROWS = 20_000
#: Memory is looked at when it has not shrunk for so long; the server gives it back within 30 s of its load.
SETTLE_S = 40.0

_READER = """
import sys
from fluss_lab.workbench import Lab
lab = Lab.open(sys.argv[1])
print("ready", flush=True)
while True:
    lab.table("bench.t").scan().to_arrow()
"""


def run() -> None:
    """Measure and print."""
    figures = Figures(f"memory of a server: {ROWS:,} keys written {REWRITES} times, MB that are its own")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        found = read_discovery(Path(folder) / "lab")
        assert found is not None
        pid = found.servers[0].pid
        lab.create_database("bench")
        table = lab.create_table("bench.t", rows(1).schema, primary_key=["id"], buckets=4)
        data = rows(ROWS)
        for _ in range(REWRITES):
            for start in range(0, ROWS, BATCH_ROWS):
                table.upsert(data.slice(start, BATCH_ROWS))
        before = _settled_mb(pid)
        figures.add("before", f"{before:.0f} MB")
        for _ in range(SCANS):
            table.scan().to_arrow()
        figures.add(f"right after {SCANS} scans", f"{_own_mb(pid):.0f} MB")
        after = _settled_mb(pid)
        figures.add("when it has settled", f"{after:.0f} MB", f"{before:.0f} MB", after / before, "1.1")
        readers = [_reader(Path(folder) / "lab") for _ in range(READERS)]
        time.sleep(5)
        for reader in readers:
            reader.send_signal(signal.SIGSTOP)
        stopped = _settled_mb(pid)
        figures.add(f"{READERS} readers, stopped", f"{stopped:.0f} MB")
        for reader in readers:
            reader.kill()
            reader.wait()
        after = _settled_mb(pid)
        figures.add("gone", f"{after:.0f} MB", f"{before:.0f} MB", after / before, "1.1")
    figures.print()


def _reader(folder: Path) -> subprocess.Popen[bytes]:
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, str(folder)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    return reader


def _own_mb(pid: int) -> float:
    """Return the memory that is a process's own: files that are mapped are not."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def _settled_mb(pid: int) -> float:
    """Return the memory of a process when it has not shrunk for a while."""
    least, since_s = _own_mb(pid), time.monotonic()
    while time.monotonic() - since_s < SETTLE_S:
        time.sleep(1)
        if (now := _own_mb(pid)) < 0.98 * least:
            least, since_s = now, time.monotonic()
    return _own_mb(pid)
