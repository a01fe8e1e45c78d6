"""``fluss-lab repair TABLE``: shown first, done with a word."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.unit.tiering.broken_logs import OPTIONS, Broken, a_whole_segment, inside_a_segment, nothing
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


def test_what_cannot_be_read_is_shown_and_then_given_up(tmp_path):
    folder = tmp_path / "my lab"
    with EmbeddedCluster(folder, OPTIONS) as cluster:
        broken = Broken(Tables(cluster), keyed=False)
        broken.fill("all")
        sound = run("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert (sound.returncode, sound.stdout) == (1, "")
        assert "there is nothing to repair" in sound.stderr
        cluster.stop()
        broken.break_logs((inside_a_segment, a_whole_segment, nothing, nothing, nothing, nothing))
        cluster.start()
        files = {path: path.read_bytes() for number in broken.damage for path in broken.segments(number)}
        shown = run("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert shown.returncode == 0, shown.stderr
        for number in (0, 1):
            ((start, stop),) = broken.damage[number]
            assert f"bucket {number}: {folder}" in shown.stdout
            assert f"offsets [{start}, {stop}) cannot be read (records from 20" in shown.stdout
            assert f"the lake holds [{start}, {stop})\n  nothing is lost" in shown.stdout
        assert "`fluss-lab repair db.broken --skip-corrupt --yes` does it" in shown.stdout
        assert {path: path.read_bytes() for path in files} == files
        assert "--skip-corrupt" in run("status", folder).stdout
        done = run("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert done.returncode == 0, done.stderr
        broken.check_rows({})
        ((start, stop),) = broken.damage[1]
        for command in ("status", "doctor"):
            told = run(command, folder)
            assert f"table db.broken, bucket 1: [{start}, {stop}) given up at 20" in told.stdout, command
        again = run("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert (again.returncode, again.stdout) == (1, "")
        cluster.stop()
        deep = run("doctor", folder, "--deep")
        assert f"offsets [{start}, {stop}) could not be read, and were given up at 20" in deep.stdout


def test_a_bucket_whose_folder_is_gone_is_shown_and_then_begun_anew_by_a_word(tmp_path):
    folder = tmp_path / "my lab"
    with EmbeddedCluster(folder, OPTIONS) as cluster:
        tables = Tables(cluster)
        broken = Broken(tables, keyed=True)
        broken.fill("part")
        lake = tables.known(broken.info).offsets[broken.bucket(0)].end
        end = broken.ends()[0]
        cluster.stop()
        broken.forget_snapshots()
        shutil.rmtree(broken.folder(0))
        cluster.start()
        assert "fluss-lab repair TABLE --skip-corrupt" in run("status", folder).stdout
        shown = run("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert shown.returncode == 0, shown.stderr
        assert f"bucket 0: {broken.folder(0)}: offsets [0, {end}) cannot be read" in shown.stdout
        assert f"the lake holds [0, {lake})\n  lost for ever: [{lake}, {end})" in shown.stdout
        assert f"the rows become what they were at offset {lake}: what [{lake}, {end}) changed is lost" in shown.stdout
        assert "`fluss-lab repair db.broken --skip-corrupt --discard-before --yes` does it" in shown.stdout
        refused = run("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert f"[{lake}, {end}) are held nowhere else" in refused.stderr
        assert not broken.folder(0).exists()
        done = run("repair", "db.broken", "--skip-corrupt", "--discard-before", "--yes", "-f", folder)
        assert done.returncode == 0, done.stderr
        assert f"table db.broken, bucket 0: [0, {end}) given up at 20" in run("doctor", folder).stdout
        broken.write(1)
        broken.check_rows({})


@pytest.mark.parametrize(
    "words",
    [
        ("--adopt", "--skip-corrupt"),
        ("--skip-corrupt", "--accept-gaps"),
        ("--adopt", "--discard-before"),
        ("--relocate", "--yes"),
        (),
    ],
)
def test_words_that_do_not_go_together_are_refused(tmp_path, words):
    failed = run("repair", "db.events", *words, "-f", tmp_path)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert failed.stderr.startswith("fluss-lab: repair")
