"""Remote storage that is not there, or whose account of itself is damaged: what needs it is an error, until it is back."""

import pytest

from fluss_lab.errors import CorruptDataError, FlussError, LabError, StorageError
from fluss_lab.model.names import TableBucket
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.server.folder.remote_storage import CLAIM_KEY, META_KEY, OWNER_FILE, claim_remote
from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.tablet.remote.remote_kit import (
    KEYED,
    LOG,
    ROWS,
    at_time,
    earliest,
    fill,
    held_from,
    keyed_bucket,
    make_tables,
    make_tablet,
    remote_folder,
    with_older_folder,
)
from tests.unit.server.tablet.tablet_kit import TABLE_ID, batch


class Meta(dict):
    """What the coordinator keeps."""

    def meta(self, key):
        return self.get(key)

    def set_meta(self, key, value):
        self[key] = value


# -- whose it is ---------------------------------------------------------------------------------------------------------


def test_a_lab_that_had_one_claims_no_other(tmp_path):
    meta, remote = Meta(), tmp_path / "remote"
    claim_remote(remote, meta)
    (remote / OWNER_FILE).rename(tmp_path / "kept")
    claim_remote(remote, meta)
    assert not (remote / OWNER_FILE).exists()
    remote.rmdir()
    claim_remote(remote, meta)
    assert not remote.exists()
    remote.mkdir()
    (tmp_path / "kept").rename(remote / OWNER_FILE)
    claim_remote(remote, meta)
    claim_remote(tmp_path / "other", other := Meta())
    with pytest.raises(LabError, match="another lab's"):
        claim_remote(remote, other)


def test_a_claim_that_was_cut_off_is_finished(tmp_path):
    """Between the id in the metadata, the file in the folder, and the word that it is there."""
    for written in (False, True):
        meta, remote = Meta(), tmp_path / f"remote-{written}"
        claim_remote(remote, meta)
        del meta[META_KEY]
        if not written:
            (remote / OWNER_FILE).unlink()
        claim_remote(remote, meta)
        assert meta[META_KEY] == meta[CLAIM_KEY]
        assert (remote / OWNER_FILE).exists()


# -- not mounted ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    """Stopped, with records and rows that are in remote storage only, and a log table that never was there."""
    options = {
        "remote.data.dir": str(tmp_path / "mount"), "log.segment.file-size": "4kb", "bucket.reopen.wait-max": "50ms",
        "remote.log.task-interval-duration": "0s",
    }  # fmt: skip
    found = EmbeddedCluster(tmp_path / "lab", options, lake=False)
    found.start()
    make_tables(found)
    tablet = found.tablet()
    tablet.snapshot_now(keyed_bucket(found))
    with found.connection.upsert_writer(KEYED) as writer:
        writer.upsert([{"id": i, "name": "new" * 9} for i in range(100)])
    tablet.snapshot_now(keyed_bucket(found))
    tablet.copy_to_remote()
    found.stop()
    yield found
    found.close()


def _asked(cluster, path, spec):
    admin = cluster.connection.admin()
    try:
        return admin.list_offsets(admin.table_info(path), spec)[0].offset
    except FlussError as error:
        return error


def _looked_up(cluster, key):
    try:
        with cluster.connection.lookuper(KEYED) as lookuper:
            return lookuper.lookup([{"id": key}]).to_pylist()
    except FlussError as error:
        return error


@pytest.mark.parametrize("is_empty", [True, False])
def test_what_is_not_mounted_is_an_error_until_it_is(cluster, tmp_path, is_empty):
    mount, away = tmp_path / "mount", tmp_path / "away"
    mount.rename(away)
    if is_empty:
        mount.mkdir()
    cluster.start()
    for spec in (OffsetSpec.earliest(), OffsetSpec.timestamp(1)):
        error = _asked(cluster, LOG, spec)
        assert isinstance(error, StorageError), error
        assert "is not there" in str(error)
        assert str(mount) in str(error)
    assert isinstance(_looked_up(cluster, 1), StorageError)
    assert isinstance(_asked(cluster, KEYED, OffsetSpec.latest()), StorageError)
    # What does not need it goes on, and nothing is made in its place.
    assert _asked(cluster, LOG, OffsetSpec.latest()) == ROWS
    with cluster.connection.append_writer(LOG) as writer:
        writer.append([{"id": ROWS, "name": "one more"}] * 200)
    cluster.tablet().copy_to_remote()
    cluster.tablet().apply_retention(START_MS + 10**15)
    assert not is_empty or list(mount.iterdir()) == []
    assert is_empty or not mount.exists()
    if is_empty:
        mount.rmdir()
    away.rename(mount)
    wait_until(lambda: _asked(cluster, KEYED, OffsetSpec.latest()) == ROWS + 200, timeout_s=30)
    assert _looked_up(cluster, 1)[0]["name"].startswith("new")
    assert _asked(cluster, LOG, OffsetSpec.earliest()) == 0
    assert _asked(cluster, LOG, OffsetSpec.latest()) == ROWS + 200


def test_what_goes_away_under_the_server_is_not_written_to(cluster, tmp_path):
    cluster.start()
    assert _asked(cluster, LOG, OffsetSpec.earliest()) == 0
    mount, away = tmp_path / "mount", tmp_path / "away"
    mount.rename(away)
    mount.mkdir()
    with cluster.connection.append_writer(LOG) as writer:
        for _ in range(3):
            writer.append([{"id": ROWS, "name": "one more"}] * 200)
            writer.flush()
    assert cluster.tablet().copy_to_remote() == 0
    with cluster.connection.upsert_writer(KEYED) as writer:
        writer.upsert([{"id": 5, "name": "newer"}])
    with pytest.raises(StorageError, match="is not there"):
        cluster.tablet().snapshot_now(keyed_bucket(cluster))
    assert list(mount.iterdir()) == []
    mount.rmdir()
    away.rename(mount)
    assert cluster.tablet().copy_to_remote() > 0
    assert cluster.tablet().snapshot_now(keyed_bucket(cluster)) is not None


def test_a_folder_restored_while_remote_storage_was_away_is_still_older_than_it(tmp_path):
    """It grew past the remote log's end before that was seen, and was taken for the log that was copied there."""
    older = with_older_folder(make_tablet(tmp_path / "lab"))
    older.service.close()
    remote = older.folder / "remote"
    away = remote.with_name("away")
    remote.rename(away)
    for _ in range(2):
        older = older.reopen()
        older.service.expect_remote("this lab")  # which is not there
        older.open(0)
        end = fill(older, 12)
        older.service.close()
    copied = remote_manifest.load(away / remote_folder(older).relative_to(remote), TableBucket(TABLE_ID, None, 0))
    assert copied is not None
    assert 240 < copied.copied_offset < end
    away.rename(remote)
    for _ in range(2):
        older = older.reopen()
        older.open(0)
        assert "older than remote.data.dir" in older.describe()[0].error_message
        refusal = older.produce({0: batch(end, 40)})[0].error_message
        assert "ended, when it was first opened without that, at 240" in refusal
        assert older.service.copy_to_remote() == 0
        older.service.close()


def test_a_log_that_grew_while_remote_storage_was_away_is_copied_when_it_is_back(tmp_path):
    tablet = make_tablet(tmp_path / "lab")
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    remote = tablet.folder / "remote"
    remote.rename(remote.with_name("away"))
    tablet = tablet.reopen()
    tablet.service.expect_remote("this lab")
    tablet.open(0)
    fill(tablet, 12)
    remote.with_name("away").rename(remote)
    tablet.service.expect_remote(None)
    assert tablet.service.copy_to_remote() > 0
    for _ in range(2):
        # What was copied since must not look like another log's.
        tablet.service.close()
        tablet = tablet.reopen()
        tablet.open(0)
        end = fill(tablet, 4)
        assert [each.id for each in held_from(tablet, 0)] == list(range(end))


# -- what it says of itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path):
    """A bucket whose first segments are in remote storage only; closed."""
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1")
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    written = held_from(tablet, 0)
    tablet.service.close()
    return tablet, written


def _opened(tablet):
    again = tablet.reopen(clean=False)
    again.open(0, table__log__tiered__local_segments="1")
    return again


@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut", "flipped"])
def test_without_its_manifest_the_start_is_an_error(copied, damage):
    tablet, written = copied
    manifest = remote_folder(tablet) / "manifest"
    data = manifest.read_bytes()
    damaged = {"emptied": b"", "cut": data[:-30], "flipped": data.replace(b"base_offset", b"base_offseT", 1)}
    if damage == "deleted":
        manifest.unlink()
    else:
        manifest.write_bytes(damaged[damage])
    again = _opened(tablet)
    for ask in (earliest, lambda each: at_time(each, START_MS)):
        with pytest.raises((CorruptDataError, StorageError), match="manifest"):
            ask(again)
    # Offsets that are here, and named, are served.
    start = again.service._store.all()[0].log.start
    assert held_from(again, start, len(written)) == written[start:]
    with pytest.raises((CorruptDataError, StorageError)):
        held_from(again, start - 1, len(written))
    # It is looked for again, without a restart.
    manifest.write_bytes(data)
    assert earliest(again) == 0
    assert held_from(again, 0) == written
    again.service.close()


@pytest.mark.parametrize("damage", [None, b"", b'{"dropped_off'])
def test_without_its_mark_the_manifest_is_enough_and_without_both_nothing_is(copied, damage):
    tablet, written = copied
    mark = tablet.folder / "data" / "t7" / "b0" / "remote-log"
    kept = mark.read_bytes()

    def spoil():
        if damage is None:
            mark.unlink()
        else:
            mark.write_bytes(damage)

    spoil()
    again = _opened(tablet)
    assert held_from(again, earliest(again)) == written
    again.service.close()
    # The mark is mended: now it tells that a manifest is missing.
    assert mark.read_bytes() == kept
    (remote_folder(tablet) / "manifest").unlink()
    again = _opened(tablet)
    with pytest.raises(StorageError, match="expected the manifest"):
        earliest(again)
    again.service.close()
    if damage is not None:
        spoil()
        again = _opened(tablet)
        with pytest.raises(CorruptDataError, match="not the mark of a remote log"):
            earliest(again)
        again.service.close()
