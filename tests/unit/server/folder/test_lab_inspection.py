"""The deep look at files: whatever is damaged is found and named, what is whole is not, and nothing is changed."""

import random
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing

import pytest

from fluss_lab.errors import LabLockedError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.folder.folder_lock import lock_out_servers
from fluss_lab.server.folder.lab_inspection import inspect_lab
from fluss_lab.server.tablet.buckets.bucket_inspection import Finding
from fluss_lab.server.tablet.remote.remote_manifest import DroppedMark
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.server.disks import fill, small_disk

pytestmark = pytest.mark.slow

TYPES = {"id": "bigint not null", "text": "string"}
OPTIONS = {
    "log.segment.file-size": "16kb",
    "log.index.interval-size": "1kb",
    "kv.snapshot.interval": "1h",
    "remote.log.task-interval-duration": "50ms",
    "log.flush.interval": "10ms",
}

#: What was copied stays here too.
LOCAL = {"table.log.tiered.local-segments": 100}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A lab with logs of several segments, rows, snapshots and remote segments, stopped cleanly."""
    folder = tmp_path_factory.mktemp("inspected") / "lab"
    with EmbeddedCluster(folder, OPTIONS, lake=False) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        log = admin.create_table(TablePath("db", "log"), make_descriptor(TYPES, properties=LOCAL))
        keyed = make_descriptor(TYPES, primary_key=["id"], buckets=1, properties=LOCAL)
        admin.create_table(TablePath("db", "rows"), keyed)
        parted = make_descriptor({**TYPES, "day": "string not null"}, partitioned_by=["day"])
        admin.create_table(TablePath("db", "parted"), parted)
        with cluster.connection.append_writer(TablePath("db", "parted")) as days:
            days.append([{"id": 1, "text": "x", "day": "monday"}])
        with cluster.connection.append_writer(log.path) as writer:
            for first in range(0, 800, 20):
                rows = [{"id": number, "text": f"{number:0100}"} for number in range(first, first + 20)]
                writer.append(rows).result()
        with cluster.connection.upsert_writer(TablePath("db", "rows")) as upserts:
            for turn in range(40):
                upserts.upsert([{"id": number, "text": f"{turn:0100}"} for number in range(10)]).result()
        written = int(segments(bucket(folder, "log"))[-1].stem)
        wait_until(lambda: admin.buckets(log)[0].remote_end_offset == written)
    return folder


@pytest.fixture
def lab(whole, tmp_path):
    """A copy that may be damaged."""
    copy = tmp_path / "lab"
    shutil.copytree(whole, copy)
    # Its remote storage is in it, wherever it lies.
    return copy


def findings(folder):
    with lock_out_servers(folder):
        return [found for found in inspect_lab(folder) if isinstance(found, Finding)]


def state(folder):
    """Every file's name, content and time of change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def bucket(lab, name):
    """The folder of a table's first bucket."""
    table_id = {"log": 1, "rows": 2}[name]
    return lab / "tablet" / "data" / f"t{table_id}" / "b0"


def segments(folder):
    return sorted(folder.glob("*.log"))


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_whole_lab_has_no_findings_and_is_not_changed(lab):
    before = state(lab)
    with lock_out_servers(lab):
        found = list(inspect_lab(lab))
    assert [each for each in found if isinstance(each, Finding)] == []
    read = "\n".join(found)
    for part in ("metadata.db", "t1/b0", "t2/b0", "/p", "kv/db/rows-2/0"):
        assert part in read
    assert len(segments(bucket(lab, "log"))) > 3
    assert state(lab) == before


def test_any_flipped_byte_of_a_log_is_found_where_it_lies(lab, seed):
    chance = random.Random(seed)
    for path in (*segments(bucket(lab, "log"))[:-1], *segments(bucket(lab, "rows"))[:-1]):
        good = path.read_bytes()
        if not good:
            continue
        at = chance.randrange(len(good))
        flip(path, at)
        found = [each for each in findings(lab) if each.path == path]
        assert found, (path, at)
        assert not found[0].is_harmless
        assert found[0].position is not None
        assert found[0].position <= at
        path.write_bytes(good)
    assert findings(lab) == []


def test_a_torn_tail_is_harmless_and_a_hole_is_not(lab):
    last = segments(bucket(lab, "log"))[-1]
    (bucket(lab, "log") / "recovery-point").unlink()
    last.write_bytes(last.read_bytes() + b"\1" * 30)
    (torn,) = findings(lab)
    assert torn.is_harmless
    assert "torn tail" in torn.found
    assert torn.position == last.stat().st_size - 30
    segments(bucket(lab, "log"))[1].unlink()
    lost = [found for found in findings(lab) if not found.is_harmless]
    assert any("expected a segment at offset" in found.found for found in lost)


def test_a_log_that_is_shorter_than_its_recovery_point_has_lost_records(lab):
    last = segments(bucket(lab, "log"))[-1]
    last.write_bytes(b"")
    found = [each for each in findings(lab) if not each.is_harmless]
    assert any("was on the device up to" in each.found for each in found)
    for path in segments(bucket(lab, "log")):
        path.unlink()
    assert any("no segment is left" in each.found for each in findings(lab))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_harmless(lab, suffix):
    path = next(path for path in sorted(bucket(lab, "log").glob(f"*{suffix}")) if path.stat().st_size)
    flip(path, 1)
    (found,) = findings(lab)
    assert found.is_harmless
    assert "indexes" in found.found


def test_a_damaged_recovery_point_is_harmless(lab):
    flip(bucket(lab, "log") / "recovery-point", 20)
    (found,) = findings(lab)
    assert found.is_harmless
    assert "recovery point" in found.found


def test_a_time_that_rotted_is_found_by_the_index(lab):
    """The CRC does not cover it, and it is not out of order."""
    path = segments(bucket(lab, "log"))[0]
    data = bytearray(path.read_bytes())
    stamp = int.from_bytes(data[13:21], "little")
    data[13:21] = (stamp - 1).to_bytes(8, "little")
    path.write_bytes(data)
    found = findings(lab)
    assert found
    assert "the index has a batch here" in found[0].found


@pytest.mark.parametrize("suffix", [".prev", ".prevcrc"])
def test_damaged_previous_offsets_are_found(lab, suffix):
    path = next(path for path in sorted(bucket(lab, "rows").glob(f"*{suffix}")) if path.stat().st_size)
    good = path.read_bytes()
    flip(path, 3)
    assert [each for each in findings(lab) if "previous offsets" in each.found]
    path.write_bytes(good)
    path.unlink()
    assert findings(lab)


def test_a_failed_fsync_left_word(lab):
    (bucket(lab, "log") / "fsync-failed").write_text("Input/output error")
    (found,) = findings(lab)
    assert "Input/output error" in found.found
    assert not found.is_harmless


def test_leftovers_are_harmless(lab):
    (bucket(lab, "log") / ".recovery-point.abc").write_bytes(b"half")
    (lab / "tablet" / "data" / "trash" / "old").mkdir()
    assert [found.is_harmless for found in findings(lab)] == [True, True]


def test_every_file_of_a_snapshot_is_checked(lab):
    folder = lab / "remote" / "kv" / "db" / "rows-2" / "0"
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        if not good:
            continue
        flip(path, len(good) // 2)
        assert [found for found in findings(lab) if found.path.parent == folder], path
        path.write_bytes(good)
    next(folder.glob("*.chunks")).unlink()
    assert "missing" in findings(lab)[0].found


def test_every_file_of_the_remote_log_is_checked(lab):
    folder = lab / "remote" / "log" / "db" / "log-1" / "0"
    copied = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    assert len(copied) > 3
    for path in copied:
        good = path.read_bytes()
        flip(path, len(good) // 2)
        assert [found for found in findings(lab) if folder in (found.path, *found.path.parents)], path
        path.write_bytes(good)
    assert findings(lab) == []


def test_a_bucket_whose_folder_or_mark_is_gone_is_found(lab):
    """A copy that lacks them is no backup: the bucket is refused."""
    folder = bucket(lab, "log")
    (mark,) = folder.glob("identity-*")
    mark.unlink()
    (found,) = findings(lab)
    assert found.path == folder
    assert "files without an identity" in found.found
    mark.with_name(f"identity-{'0' * 32}").touch()
    (found,) = findings(lab)
    assert "those of another bucket" in found.found
    for parent in (folder, lab / "tablet" / "data" / "t3", lab / "tablet"):
        shutil.rmtree(parent)
        found = [each.found for each in findings(lab)]
        assert any("there is no folder of db.log bucket 0 [t1/b0]" in each for each in found)
        assert any("db.log bucket 0 [t1/b0]: offsets [0, 800) cannot be read" in each for each in found)
        assert any("there is no folder of db.parted(monday) bucket 0" in each for each in found) == (parent != folder)
    assert any("there is no folder of db.rows bucket 0 [t2/b0]" in each for each in found)


def test_a_snapshot_and_a_remote_log_that_are_gone_are_found(lab):
    shutil.rmtree(lab / "remote" / "kv" / "db")
    (found,) = findings(lab)
    assert "there is no key-value snapshot of db.rows bucket 0 [t2/b0]" in found.found
    DroppedMark(bucket(lab, "log")).raise_to(20)
    assert len(findings(lab)) == 1
    shutil.rmtree(lab / "remote" / "log" / "db")
    assert any("a remote log that reaches to offset 20" in each.found for each in findings(lab))


def test_damaged_metadata_is_found(lab):
    path = lab / "metadata.db"
    good = path.read_bytes()
    path.write_bytes(good[:100] + b"\xff" * 4000 + good[4100:])
    assert [found for found in findings(lab) if found.path == path]
    path.write_bytes(b"no database at all" * 100)
    assert [found for found in findings(lab) if found.path == path]
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE x (y)")
    other.close()
    assert any("application id" in found.found for found in findings(lab))


def test_a_lab_whose_server_runs_is_not_looked_at(tmp_path):
    folder = tmp_path / "lab"
    with (
        EmbeddedCluster(folder, lake=False),
        pytest.raises(LabLockedError, match="stop it with `fluss-lab down"),
        lock_out_servers(folder),
    ):
        pass
    # And none can start meanwhile: the look holds the server's own lock.
    with lock_out_servers(folder), pytest.raises(LabLockedError), lock_out_servers(folder):
        pass


def test_a_finding_says_what_where_and_what_to_do(lab):
    path = segments(bucket(lab, "log"))[0]
    flip(path, 100)
    text = str(findings(lab)[0])
    assert text.startswith(f"{path} at byte 0: ")
    assert "expected CRC" in text
    assert "Restore the file from a copy" in text


def test_a_log_without_its_first_segment_is_found(lab):
    first, second, *_ = segments(bucket(lab, "log"))
    first.unlink()
    found, lost = [each for each in findings(lab) if not each.is_harmless]
    assert f"offsets [0, {int(second.stem)}) cannot be read" in lost.found
    assert f"first segment is of offset {int(second.stem)}, expected one of 0" in found.found


def test_a_batch_of_a_newer_format_is_found_as_such(lab):
    path = segments(bucket(lab, "log"))[0]
    data = bytearray(path.read_bytes())
    data[12] = 1
    path.write_bytes(data)
    assert any("written by a newer version" in each.found for each in findings(lab) if each.path == path)
    assert not lost_offsets(lab)


def lost_offsets(lab):
    """What is said of offsets that cannot be read: (file, range, what follows)."""
    wanted = re.compile(r"db\.log bucket 0 \[t\d+/b0\]: offsets (\[\d+, \d+\)) cannot be read")
    said = [(found, wanted.fullmatch(found.found)) for found in findings(lab)]
    return [(found.path, match[1], found.meaning) for found, match in said if match is not None]


def test_damaged_offsets_are_reported_exactly_and_who_else_holds_them(lab):
    """Two damaged batches in one segment, a segment gone, and an end that only the coordinator knows of."""
    folder = bucket(lab, "log")
    paths = segments(folder)
    (remote,) = (lab / "remote" / "log" / "db").glob("log-*/0/manifest")
    starts = [int(path.stem) for path in paths]
    data = paths[1].read_bytes()
    places = [0]
    while places[-1] < len(data):
        places.append(places[-1] + int.from_bytes(data[places[-1] + 8 : places[-1] + 12], "little") + 12)
    assert len(places) > 5
    flip(paths[1], places[1] + 60)
    flip(paths[1], places[3] + 60)
    paths[3].unlink()
    (folder / "recovery-point").unlink()
    paths[-1].write_bytes(b"")
    first, gone, tail = starts[1], (starts[3], starts[4]), (starts[-1], 800)
    ranges = [(first + 20, first + 40), (first + 60, first + 80), gone, tail]
    with closing(sqlite3.connect(lab / "metadata.db")) as db, db:
        (table_id,) = db.execute("SELECT table_id FROM tables WHERE name = 'log'").fetchone()
        assert db.execute("SELECT durable_offset FROM bucket_offsets WHERE table_id = ?", (table_id,)).fetchone() == (
            800,
        )
        row_checksums.prepare(db)
        db.execute("INSERT INTO lake_offsets VALUES (?, -1, 0, 1, 0, ?, 1)", (table_id, first + 30))
        db.execute("INSERT INTO lake_offsets VALUES (?, -1, 0, 2, 0, ?, 1)", (table_id, first + 70))
    said = lost_offsets(lab)
    assert [each for _, each, _ in said] == [f"[{start}, {stop})" for start, stop in ranges]
    assert [path for path, _, _ in said] == [paths[1], paths[1], paths[2], paths[-1]]
    assert [f"he lake holds [{start}, {min(stop, first + 70)})" in said[at][2] for at, (start, stop) in enumerate(ranges)] == [
        True, True, False, False,
    ]  # fmt: skip
    # Remote storage has all but the newest segment.
    assert [f"emote storage holds [{start}, {stop})" in said[at][2] for at, (start, stop) in enumerate(ranges)] == [
        True, True, True, False,
    ]  # fmt: skip
    assert ["eld nowhere else" in meaning for _, _, meaning in said] == [False, False, False, True]
    kept = remote.read_bytes()
    flip(remote, 20)
    meanings = [meaning for _, _, meaning in lost_offsets(lab)]
    assert all("what remote storage holds is not known" in each and "nowhere else" not in each for each in meanings[1:])
    remote.write_bytes(kept)
    remote.unlink()
    meanings = [meaning for _, _, meaning in lost_offsets(lab)]
    assert f"held nowhere else: [{first + 70}, {first + 80})" in meanings[1]
    (lab / "metadata.db").unlink()
    assert all(
        "what the lake holds is not known" in found.meaning for found in findings(lab) if "offsets [" in found.found
    )


def test_no_room_for_a_copy_of_the_metadata_is_no_damage(whole, tmp_path, monkeypatch):
    """Seen: the look called metadata damaged, to be restored from a backup, because a folder of temporary files was full."""
    with small_disk(tmp_path / "tmp", 1) as disk:
        fill(disk)
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        found = [each for each in inspect_lab(whole) if isinstance(each, Finding)]
        assert list(disk.iterdir()) == [disk / "ballast"]
    (finding,) = [each for each in found if each.path.name == "metadata.db"]
    assert "make room, or let TMPDIR name another folder" in finding.found
    assert (finding.meaning, finding.error_class) == ("It was not checked", None)
