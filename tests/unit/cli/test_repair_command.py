"""``fluss-lab repair TABLE --adopt``: shown first, done with a word."""

import os
import subprocess
import sys
from pathlib import Path

from fluss_lab.testing import EmbeddedCluster
from tests.unit.tiering.kit import Tables


def run(*arguments: str | Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", "fluss_lab.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def test_a_repair_is_shown_and_then_done(tmp_path):
    folder = tmp_path / "my lab"
    with EmbeddedCluster(folder) as cluster:
        tables = Tables(cluster)
        info = tables.create()
        for _ in range(2):
            tables.append(info, 10)
            tables.tier(info)
        known = tables.known(info).snapshot_id
        lake = tables.lake(info)
        lake.manage_snapshots().rollback_to_snapshot(lake.history()[0].snapshot_id).commit()
        shown = run("repair", "db.events", "--adopt", "-f", folder)
        assert shown.returncode == 0, shown.stderr
        assert "bucket 0 is tiered up to 10 (the cluster believed 20)" in shown.stdout
        assert "`fluss-lab repair db.events --adopt --yes` does it" in shown.stdout
        assert tables.known(info).snapshot_id == known
        done = run("repair", "db.events", "--adopt", "--yes", "-f", folder)
        assert done.returncode == 0, done.stderr
        assert tables.tier(info).rows == 10
        tables.check(info)
        again = run("repair", "db.events", "--adopt", "-f", folder)
        assert "there is nothing to repair" in again.stdout
        assert "does it" not in again.stdout
        failed = run("repair", "db.none", "--adopt", "-f", folder)
        assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
