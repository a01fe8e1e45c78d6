"""``fluss-lab repair TABLE``: shown first, done with a word."""

import shutil

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.unit.cli.shell_kit import call
from tests.unit.tiering.broken_logs import OPTIONS, Broken, a_whole_segment, inside_a_segment, nothing
from tests.unit.tiering.kit import Tables

pytestmark = pytest.mark.slow


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
        shown = call("repair", "db.events", "--adopt", "-f", folder)
        assert shown.code == 0, shown.err
        assert "bucket 0 is tiered up to 10 (the cluster believed 20)" in shown.out
        assert f"`fluss-lab repair db.events --adopt --yes --folder '{folder}'` does it" in shown.out
        assert tables.known(info).snapshot_id == known
        done = call("repair", "db.events", "--adopt", "--yes", "-f", folder)
        assert done.code == 0, done.err
        assert tables.tier(info).rows == 10
        tables.check(info)
        again = call("repair", "db.events", "--adopt", "-f", folder)
        assert "there is nothing to repair" in again.out
        assert "does it" not in again.out
        failed = call("repair", "db.none", "--adopt", "-f", folder)
        assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1)


def test_what_cannot_be_read_is_shown_and_then_given_up(tmp_path):
    folder = tmp_path / "my lab"
    with EmbeddedCluster(folder, OPTIONS) as cluster:
        broken = Broken(Tables(cluster), keyed=False)
        broken.fill("all")
        sound = call("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert (sound.code, sound.out) == (1, "")
        assert "there is nothing to repair" in sound.err
        cluster.stop()
        broken.break_logs((inside_a_segment, a_whole_segment, nothing, nothing, nothing, nothing))
        cluster.start()
        files = {path: path.read_bytes() for number in broken.damage for path in broken.segments(number)}
        shown = call("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert shown.code == 0, shown.err
        for number in (0, 1):
            ((start, stop),) = broken.damage[number]
            assert f"bucket {number}: {folder}" in shown.out
            assert f"offsets [{start}, {stop}) cannot be read (records from 20" in shown.out
            assert f"the lake holds [{start}, {stop})\n  nothing is lost" in shown.out
        assert f"`fluss-lab repair db.broken --skip-corrupt --yes --folder '{folder}'` does it" in shown.out
        assert {path: path.read_bytes() for path in files} == files
        assert "--skip-corrupt" in call("status", folder).out
        done = call("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert done.code == 0, done.err
        broken.check_rows({})
        ((start, stop),) = broken.damage[1]
        for command in ("status", "doctor"):
            reported = call(command, folder)
            assert f"table db.broken, bucket 1: [{start}, {stop}) given up at 20" in reported.out, command
        again = call("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert (again.code, again.out) == (1, "")
        cluster.stop()
        deep = call("doctor", folder, "--deep")
        assert f"offsets [{start}, {stop}) could not be read, and were given up at 20" in deep.out


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
        assert "fluss-lab repair TABLE --skip-corrupt" in call("status", folder).out
        shown = call("repair", "db.broken", "--skip-corrupt", "-f", folder)
        assert shown.code == 0, shown.err
        assert f"bucket 0: {broken.folder(0)}: offsets [0, {end}) cannot be read" in shown.out
        assert f"the lake holds [0, {lake})\n  lost for ever: [{lake}, {end})" in shown.out
        assert f"the rows become what they were at offset {lake}: what [{lake}, {end}) changed is lost" in shown.out
        assert (
            f"`fluss-lab repair db.broken --skip-corrupt --discard-before --yes --folder '{folder}'` does it"
            in shown.out
        )
        refused = call("repair", "db.broken", "--skip-corrupt", "--yes", "-f", folder)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert f"[{lake}, {end}) are held nowhere else" in refused.err
        assert not broken.folder(0).exists()
        done = call("repair", "db.broken", "--skip-corrupt", "--discard-before", "--yes", "-f", folder)
        assert done.code == 0, done.err
        assert f"table db.broken, bucket 0: [0, {end}) given up at 20" in call("doctor", folder).out
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
    failed = call("repair", "db.events", *words, "-f", tmp_path)
    assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1)
    assert failed.err.startswith("fluss-lab: repair")


def test_commands_that_texts_propose_are_those_of_the_folder(tmp_path):
    """Seen: the shell took a folder with a space for two words, and without its folder the command was that of another lab."""
    folder = tmp_path / "my lab"
    missing = call("tables", "-f", folder)
    assert f"`fluss-lab up '{folder}'`" in missing.err
    with EmbeddedCluster(folder):
        locked = call("repair", folder, "--relocate")
    assert f"`fluss-lab down '{folder}'`" in locked.err
    assert f"`fluss-lab up '{folder}'` starts one" in call("status", folder).out
