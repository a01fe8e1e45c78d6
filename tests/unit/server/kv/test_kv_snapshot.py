"""Key-value snapshots of one bucket: what is written is read, incrementally, with a fall-back, and nothing is left over."""

import json
import shutil
import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import InvalidRequestError, InvalidSchemaError, NotLeaderError, StorageError, UnsupportedError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import CompletedSnapshot, read_manifest
from fluss_lab.server.kv import kv_snapshot
from tests.unit.server.kv.snapshot_kit import BUCKET, SCHEMAS, Puts, names, restored, rows_of, store, write

STEPS = [
    "kv.snapshot.before_chunks",
    "kv.snapshot.before_live",
    "kv.snapshot.before_names",
    "kv.snapshot.before_manifest",
    "kv.snapshot.after_manifest",
]


@pytest.fixture
def puts():
    made = Puts()
    made.put(1, 2, 3)
    made.put(3, 4, schema_id=2)
    made.delete(1)
    return made


def test_what_is_written_is_read(tmp_path, puts):
    snapshots = store(tmp_path / "kv" / "b0")
    assert snapshots.load(SCHEMAS) is None
    assert snapshots.retained_floor() is None
    assert snapshots.latest is None
    done = write(snapshots, puts.image(), writers=[[3, 4, [[0, 0, 3]]]])
    assert (done.snapshot_id, done.log_offset, done.row_count, done.retained) == (0, 6, 3, (0,))
    assert done.new_bytes == done.size_bytes > 0
    again = store(tmp_path / "kv" / "b0")
    assert again.latest == snapshots.latest
    found, image = again.load(SCHEMAS)
    assert rows_of(image) == rows_of(puts.image())
    assert (image.log_offset, image.next_chunk_id) == (6, 2)
    assert found.writers == [[3, 4, [[0, 0, 3]]]]
    assert (found.snapshot_id, found.created_ms, found.location) == (0, 5, str(tmp_path / "kv" / "b0"))


def test_an_empty_state_has_a_snapshot_too(tmp_path):
    snapshots = store(tmp_path)
    puts = Puts()
    puts.put(1)
    puts.delete(1)
    write(snapshots, puts.image())
    _, image = store(tmp_path).load(SCHEMAS)
    assert (image.row_count, image.chunks, image.log_offset, image.next_chunk_id) == (0, (), 2, 1)


def test_only_new_chunks_are_written(tmp_path, puts):
    snapshots = store(tmp_path)
    first = write(snapshots, puts.image())
    puts.put(*range(100, 200))
    second = write(snapshots, puts.image())
    manifests = [read_manifest(tmp_path / f"{number:010d}.manifest") for number in (0, 1)]
    assert {each.file.name for each in manifests[0].files} < {each.file.name for each in manifests[1].files}
    assert second.new_bytes < second.size_bytes < first.size_bytes + second.new_bytes
    puts.delete(2)
    third = write(snapshots, puts.image())
    assert third.new_bytes == read_manifest(tmp_path / "0000000002.manifest").live.size_bytes
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


def test_the_retained_ones_stay_and_what_they_need(tmp_path, puts):
    snapshots = store(tmp_path, retained=2)
    offsets = []
    for turn in range(5):
        puts.put(10 + turn)
        offsets.append(puts.end)
        done = write(snapshots, puts.image())
        assert snapshots.retained_floor() == offsets[max(0, turn - 1)]
        assert done.retained == tuple(range(max(0, turn - 1), turn + 1))
    kept = [read_manifest(tmp_path / f"{number:010d}.manifest") for number in (3, 4)]
    assert names(tmp_path) == sorted(kept[0].file_names | kept[1].file_names)
    assert store(tmp_path).retained_floor() == offsets[3]


def test_files_go_when_nothing_in_them_is_needed(tmp_path):
    snapshots, puts = store(tmp_path, retained=1), Puts()
    for turn in range(4):
        puts.put(*range(turn * 10, turn * 10 + 10))
        write(snapshots, puts.image())
    assert len([name for name in names(tmp_path) if name.endswith(".chunks")]) == 4
    puts.merge()
    write(snapshots, puts.image())
    assert names(tmp_path) == ["0000000004-0.chunks", "0000000004.live", "0000000004.manifest"]
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


def test_a_file_of_which_little_is_needed_is_written_again(tmp_path):
    snapshots, puts = store(tmp_path, retained=1), Puts()
    puts.put(*range(100))
    puts.put(1000)
    write(snapshots, puts.image())
    puts.put(*range(100))  # the first chunk is dead; the second shares its file
    write(snapshots, puts.image())
    assert names(tmp_path) == ["0000000001-0.chunks", "0000000001.live", "0000000001.manifest"]
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


def test_many_small_files_become_one(tmp_path, monkeypatch):
    monkeypatch.setattr(kv_snapshot, "SMALL_FILES_MAX", 5)
    snapshots, puts = store(tmp_path, retained=1), Puts()
    most = 0
    for turn in range(20):
        puts.put(turn)
        write(snapshots, puts.image())
        most = max(most, len([name for name in names(tmp_path) if name.endswith(".chunks")]))
    assert most <= 7
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


def test_large_states_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr(kv_snapshot, "FILE_BYTES", 2000)
    puts = Puts()
    for turn in range(20):
        puts.put(*range(turn * 10, turn * 10 + 10))
    write(store(tmp_path), puts.image())
    assert 3 <= len([name for name in names(tmp_path) if name.endswith(".chunks")]) <= 10
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


# -- falling back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".manifest", ".live", "-0.chunks"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "empty"])
def test_a_broken_snapshot_is_set_aside_and_the_one_before_is_read(tmp_path, puts, suffix, damage):
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    before = rows_of(puts.image()), puts.end
    puts.put(*range(50, 60))
    write(snapshots, puts.image())
    break_file(tmp_path / f"0000000001{suffix}", damage)
    again = store(tmp_path)
    found, image = again.load(SCHEMAS)
    assert (rows_of(image), image.log_offset) == before
    assert (found.snapshot_id, found.retained) == (0, (0,))
    assert again.retained_floor() == before[1]
    assert found.broken == (() if (suffix, damage) == (".manifest", "missing") else (1,))
    # What goes on from there uses no id twice, and nothing of the broken one.
    shorter = restored(image)
    shorter.put(70)
    done = write(again, shorter.image())
    assert done.retained == (0, 2)
    assert again.retained_floor() == before[1]
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(shorter.image())


def test_when_all_are_broken_there_is_none(tmp_path, puts):
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    puts.put(9)
    write(snapshots, puts.image())
    for path in tmp_path.glob("*.live"):
        path.write_bytes(b"x" * path.stat().st_size)
    again = store(tmp_path)
    assert again.load(SCHEMAS) is None
    assert again.retained_floor() is None
    assert again.latest is None
    assert write(again, puts.image()).broken == (0, 1)
    assert write(again, puts.image()).snapshot_id == 3


def test_chunk_ids_used_again_after_a_fall_back_are_other_chunks(tmp_path, puts):
    """Otherwise rows of a history that never was would come back."""
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    lost, kept = restored(puts.image()), restored(puts.image())
    lost.put(50, note="lost")
    write(snapshots, lost.image())
    break_file(tmp_path / "0000000001.live", "flipped")
    again = store(tmp_path)
    assert again.load(SCHEMAS)[0].snapshot_id == 0
    kept.put(50, note="kept")
    assert kept.chunks[-1].chunk_id == lost.chunks[-1].chunk_id
    write(again, kept.image())
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(kept.image())


def test_a_state_that_was_not_loaded_shares_nothing(tmp_path, puts):
    write(store(tmp_path), puts.image())
    other = Puts()
    other.put(1, 2, 3, note="other")
    other.put(3, 4, schema_id=2, note="other")
    write(store(tmp_path), other.image())
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(other.image())


def test_a_shared_file_that_is_gone_is_written_again(tmp_path, puts):
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    (tmp_path / "0000000000-0.chunks").unlink()
    puts.put(8)
    write(snapshots, puts.image())
    found, image = store(tmp_path).load(SCHEMAS)
    assert found.snapshot_id == 1
    assert rows_of(image) == rows_of(puts.image())


def test_a_snapshot_of_another_bucket_is_refused(tmp_path, puts):
    write(store(tmp_path / "a"), puts.image())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert store(tmp_path / "b", bucket=TableBucket(8, None, 0)).load(SCHEMAS) is None
    assert store(tmp_path / "a").load(SCHEMAS) is not None


def test_a_schema_that_is_not_known_breaks_no_snapshot(tmp_path, puts):
    write(store(tmp_path), puts.image())
    with pytest.raises(InvalidSchemaError, match=r"schema 2; known are \[1\]"):
        store(tmp_path).load({1: SCHEMAS[1]})
    assert store(tmp_path).load(SCHEMAS) is not None


def test_a_snapshot_of_a_newer_version_is_refused_and_left_alone(tmp_path, puts):
    write(store(tmp_path), puts.image())
    path = tmp_path / "0000000000.manifest"
    value = json.loads(path.read_bytes().rpartition(b"\n")[0])
    path.write_bytes(sealed({**value, "version": 2}))
    before = names(tmp_path)
    with pytest.raises(UnsupportedError, match="newer version of fluss_lab"):
        store(tmp_path)
    assert names(tmp_path) == before


@pytest.mark.parametrize("field", ["table_id", "live", "files", "chunk_ids", "writers"])
def test_a_manifest_with_a_right_checksum_and_wrong_content_is_set_aside(tmp_path, puts, field):
    write(store(tmp_path), puts.image())
    path = tmp_path / "0000000000.manifest"
    value = json.loads(path.read_bytes().rpartition(b"\n")[0])
    del value[field]
    path.write_bytes(sealed(value))
    assert store(tmp_path).load(SCHEMAS) is None
    assert (tmp_path / "0000000000.manifest.broken").exists()


def test_a_manifest_names_no_file_elsewhere(tmp_path, puts):
    write(store(tmp_path), puts.image())
    path = tmp_path / "0000000000.manifest"
    value = json.loads(path.read_bytes().rpartition(b"\n")[0])
    value["live"]["name"] = "../" + value["live"]["name"]
    path.write_bytes(sealed(value))
    assert store(tmp_path).load(SCHEMAS) is None


def test_a_manifest_under_another_name_is_none(tmp_path, puts):
    write(store(tmp_path), puts.image())
    (tmp_path / "0000000000.manifest").rename(tmp_path / "0000000009.manifest")
    assert store(tmp_path).load(SCHEMAS) is None


def test_a_file_that_cannot_be_read_now_breaks_nothing(tmp_path, puts):
    write(store(tmp_path), puts.image())
    snapshots = store(tmp_path)
    path = tmp_path / "0000000000.live"
    data = path.read_bytes()
    path.unlink()
    path.mkdir()  # it is there, and reading it fails: no sign of damage
    with pytest.raises(StorageError, match="cannot be read"):
        snapshots.load(SCHEMAS)
    path.rmdir()
    path.write_bytes(data)
    assert snapshots.load(SCHEMAS) is not None


# -- attempts that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["enospc", "eio", "error"])
@pytest.mark.parametrize("step", STEPS)
def test_an_attempt_that_fails_leaves_nothing(tmp_path, puts, step, action):
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    before = names(tmp_path)
    rows = rows_of(puts.image())
    puts.put(9)
    failpoints.arm(step, action)
    with pytest.raises(failpoints.FailpointError if action == "error" else StorageError):
        write(snapshots, puts.image())
    failpoints.disarm()
    assert names(tmp_path) == before
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows
    assert write(snapshots, puts.image()).snapshot_id > 1, "the id of the attempt was used again"
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


@pytest.mark.parametrize("step", ["kv.snapshot.before_expire", "kv.snapshot.before_delete@2"])
def test_what_cannot_be_removed_is_removed_next_time(tmp_path, puts, step):
    snapshots = store(tmp_path, retained=1)
    write(snapshots, puts.image())
    puts.put(1, 2, 3, 4)
    name, _, turn = step.partition("@")
    failpoints.arm(name, f"enospc@{turn}" if turn else "enospc")
    assert write(snapshots, puts.image()).retained == (1,)
    failpoints.disarm()
    assert "0000000000-0.chunks" in names(tmp_path)
    assert snapshots.retained_floor() == puts.end
    puts.put(9)
    write(snapshots, puts.image())
    assert [name for name in names(tmp_path) if name.startswith("0000000000")] == []


def test_a_disk_that_is_full_in_the_middle_of_a_file_leaves_nothing(tmp_path, puts):
    """By the limit of file size: a short write, then an error, as a full disk answers."""
    import resource
    import signal

    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    before = names(tmp_path)
    puts.put(*range(1000, 3000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(StorageError, match="those before stay"):
            write(snapshots, puts.image())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert names(tmp_path) == before
    write(snapshots, puts.image())
    assert rows_of(store(tmp_path).load(SCHEMAS)[1]) == rows_of(puts.image())


def test_leftovers_of_others_attempts_go_and_foreign_files_stay(tmp_path, puts):
    write(store(tmp_path), puts.image())
    (tmp_path / "0000000007-0.chunks").write_bytes(b"torn")
    (tmp_path / ".0000000007.manifest.x1y2").write_bytes(b"torn")
    (tmp_path / "notes.txt").write_text("mine")
    again = store(tmp_path)
    assert again.load(SCHEMAS)[0].snapshot_id == 0
    assert write(again, puts.image()).snapshot_id == 8
    assert "notes.txt" in names(tmp_path)
    assert not [name for name in names(tmp_path) if "0000000007" in name]


def test_a_closed_store_ends_the_write_under_way(tmp_path, puts):
    snapshots = store(tmp_path)
    write(snapshots, puts.image())
    before = names(tmp_path)
    snapshots.close()
    with pytest.raises(NotLeaderError, match="closed"):
        write(snapshots, puts.image())
    snapshots.close()
    assert names(tmp_path) == before


def test_a_close_waits_for_the_write_under_way(tmp_path, monkeypatch):
    snapshots, puts = store(tmp_path), Puts()
    monkeypatch.setattr(kv_snapshot, "FILE_BYTES", 1)
    for turn in range(30):
        puts.put(turn)
    reached, go_on = threading.Event(), threading.Event()
    original = kv_snapshot.write_chunks

    def slow(path, chunks):
        reached.set()
        go_on.wait(60)
        return original(path, chunks)

    monkeypatch.setattr(kv_snapshot, "write_chunks", slow)
    results = []

    def run():
        try:
            results.append(write(snapshots, puts.image()))
        except NotLeaderError as error:
            results.append(error)

    writer = threading.Thread(target=run)
    writer.start()
    assert reached.wait(60)
    closer = threading.Thread(target=snapshots.close)
    closer.start()
    assert not results
    assert closer.is_alive()
    go_on.set()
    for thread in (closer, writer):
        thread.join(60)
    assert isinstance(results[0], NotLeaderError)
    assert names(tmp_path) == []


def test_ids_known_elsewhere_are_skipped(tmp_path, puts):
    snapshots = store(tmp_path)
    snapshots.skip_ids(41)
    assert write(snapshots, puts.image()).snapshot_id == 42


def test_what_is_reported_is_read(tmp_path, puts):
    done = write(store(tmp_path, bucket=TableBucket(7, 3, 1)), puts.image())
    assert CompletedSnapshot.from_json(done.to_json()) == done
    reported = json.loads(done.to_json())
    for key in reported:
        with pytest.raises(InvalidRequestError, match="completed snapshot"):
            CompletedSnapshot.from_json(json.dumps({name: value for name, value in reported.items() if name != key}))
        with pytest.raises(InvalidRequestError, match="completed snapshot"):
            CompletedSnapshot.from_json(json.dumps({**reported, key: -5}))
    assert done.bucket != BUCKET


# -- words -------------------------------------------------------------------------------------------------------------


def break_file(path, damage):
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def sealed(value):
    import google_crc32c

    body = json.dumps(value).encode()
    return b"%s\n%08x" % (body, google_crc32c.value(body))
