"""The remote log in an object store, over HTTP: copies, reads, retention, faults, two servers on one prefix."""

import shutil

import pytest

from fluss_lab.client.cluster.remote_files import RemoteFiles
from fluss_lab.errors import AuthenticationError, FlussError, LabError, StorageError
from fluss_lab.server.folder.remote_storage import CLAIM_KEY, META_KEY, RemoteDir, claim_remote
from fluss_lab.storage.store_location import place_of
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.tablet.remote.remote_kit import (
    INFO,
    Answers,
    earliest,
    fill,
    held_from,
    local_bases,
    make_tablet,
    remote_part,
)
from tests.unit.server.tablet.remote.remote_kit import (
    place_of as remote_place_of,
)
from tests.unit.server.tablet.remote.test_remote_absent import Meta
from tests.unit.server.tablet.tablet_kit import TABLE_ID
from tests.unit.storage.s3_server import RESET, s3_server

pytestmark = pytest.mark.slow

KEPT = {"table__log__tiered__local_segments": "1"}
BUCKET_KEYS = f"labs/one/log/db/events-{TABLE_ID}/0/"
MANIFEST = "0/manifest$"


@pytest.fixture
def store():
    with s3_server() as found:
        yield found


@pytest.fixture
def tablet(tmp_path, store):
    made = make_tablet(tmp_path / "one", options=store.options(), **KEPT)
    yield made
    made.service.close()


def _segments(store):
    keys = (key.removeprefix(BUCKET_KEYS) for key in store.objects if key.startswith(BUCKET_KEYS))
    return sorted({key.partition("/")[0] for key in keys if "/" in key})


def _problem(tablet):
    (bucket,) = tablet.service._store.all()
    return str(bucket.remote.problem or bucket.remote.copy_problem or "")


def _reopened(tablet):
    again = tablet.reopen(clean=False)
    again.open(0, **KEPT)
    return again


def test_what_is_rolled_goes_there_and_is_read_from_there(tablet, store):
    written = fill(tablet, 12)
    before = held_from(tablet, 0)
    assert tablet.service.copy_to_remote() >= 3
    assert len(local_bases(tablet)) == 1
    assert not (tablet.folder / "remote").exists()
    assert held_from(tablet, 0) == before
    assert [record.id for record in before] == list(range(written))
    assert store.uploads == {}
    tablet.service.close()
    again = _reopened(tablet)
    assert held_from(again, 0) == before
    again.service.close()


def test_a_copy_costs_few_requests_and_so_does_reading_it(tablet, store):
    fill(tablet, 12)
    store.requests.clear()
    copied = tablet.service.copy_to_remote()
    # Of each: the batches, their index, the manifest.
    assert store.count("PUT") == 3 * copied
    place = remote_place_of(tablet, 0)
    named = len(place.remote_log_segments)
    store.requests.clear()
    list(remote_part(place, 0, None, RemoteFiles(lambda: Answers(tablet.options))))
    assert store.count("GET") == len(store.requests) == 2 * named


def test_what_expires_is_removed_and_a_bucket_with_all_it_has(tmp_path, store):
    clock = MockClock()
    tablet = make_tablet(tmp_path / "one", clock, options=store.options(), table__log__ttl="1min", **KEPT)
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    held = len(_segments(store))
    clock.advance(3_600_000)
    tablet.service.apply_retention()
    assert len(_segments(store)) == 0 < held
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    assert _segments(store)
    tablet.stop(0, delete=True)
    assert [key for key in store.objects if key.startswith(BUCKET_KEYS)] == []
    tablet.service.close()


@pytest.mark.parametrize("fault", [503, 500, RESET, 403])
def test_while_the_store_fails_the_log_goes_on_and_then_all_is_there(tablet, store, fault):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    before = held_from(tablet, 0)
    place = remote_place_of(tablet, 0)
    with store.failing(fault):
        end = fill(tablet, 12)
        assert tablet.service.copy_to_remote() == 0
        assert store.endpoint in _problem(tablet)
        assert "hidden-secret" not in _problem(tablet)
        (bucket,) = tablet.service._store.all()
        assert held_from(tablet, bucket.log.start)[-1].offset == end - 1
        with pytest.raises(StorageError, match="the remote log cannot be read") as caught:
            held_from(tablet, 0)
        assert f"s3://lake/{BUCKET_KEYS}" in str(caught.value)
        kind = AuthenticationError if fault == 403 else FlussError
        with pytest.raises(kind, match="the remote log cannot be read"):
            list(remote_part(place, 0, None, RemoteFiles(lambda: Answers(tablet.options))))
    assert tablet.service.copy_to_remote() >= 3
    assert _problem(tablet) == ""
    assert held_from(tablet, 0)[: len(before)] == before
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


@pytest.mark.parametrize("unread", [False, True])
def test_a_manifest_whose_answer_is_lost_counts_once(tablet, store, unread):
    """Also where it could not be read back at once what was put."""
    end = fill(tablet, 12)
    with store.failing(1500, "PUT", MANIFEST, times=2):
        if unread:
            inner = store.fault
            store.fault = lambda method, key: 503 if (method, key[-8:]) == ("GET", "manifest") else inner(method, key)
        copied = tablet.service.copy_to_remote()
        store.fault = inner if unread else store.fault
    assert (copied == 0) == unread
    assert tablet.service.copy_to_remote() + copied >= 3
    (bucket,) = tablet.service._store.all()
    held = bucket.remote.manifest
    tablet.service.copy_to_remote()
    assert _segments(store) == sorted(each.segment_id for each in held.segments)
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_half_a_copy_is_never_named_and_is_removed(tablet, store):
    fill(tablet, 12)
    with store.failing(500, "PUT", r"\.blocks$"):
        assert tablet.service.copy_to_remote() == 0
    assert not any(key.endswith("manifest") for key in store.objects)
    orphan = f"{BUCKET_KEYS}00000000-0000-4000-8000-000000000000/x.log"
    store.objects |= {orphan: b"x", f"{BUCKET_KEYS}notes.txt": b"mine"}
    assert tablet.service.copy_to_remote() >= 3
    tablet.service.copy_to_remote()
    (bucket,) = tablet.service._store.all()
    assert _segments(store) == sorted(each.segment_id for each in bucket.remote.manifest.segments)
    assert store.objects[f"{BUCKET_KEYS}notes.txt"] == b"mine"


def test_what_another_server_copied_is_no_leftover(tablet, store, tmp_path):
    """Neither what it has named since, nor what it is about to name."""
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    shutil.copytree(tablet.folder, tmp_path / "two")
    first, second = _reopened(tablet), make_tablet(tmp_path / "two", options=store.options(), **KEPT)
    fill(first, 12)
    second_did = []

    def fault(method, key):
        if (method, key[-9:]) == ("PUT", "/manifest") and not second_did:
            second_did.append(True)
            second.service.copy_to_remote()

    store.fault = fault
    first.service.copy_to_remote()
    assert second_did
    (kept,) = [each for each in (first, second) if "another server" not in _problem(each)]
    (bucket,) = kept.service._store.all()
    assert {each.segment_id for each in bucket.remote.manifest.segments} <= set(_segments(store))
    assert [record.id for record in held_from(kept, 0)] == list(range(kept.describe()[0].log_end_offset))
    first.service.close()
    second.service.close()


def test_of_two_servers_on_copies_of_one_folder_the_second_replaces_nothing(tablet, store, tmp_path):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    shutil.copytree(tablet.folder, tmp_path / "two")
    first = _reopened(tablet)
    second = make_tablet(tmp_path / "two", options=store.options(), **KEPT)
    fill(first, 12)
    fill(second, 14)
    assert first.service.copy_to_remote() >= 3
    before = dict(store.objects)
    assert second.service.copy_to_remote() == 0
    assert "was replaced by another server" in _problem(second)
    second.service.apply_retention()
    second.service.copy_to_remote()
    with pytest.raises(StorageError, match="was replaced by another server"):
        earliest(second)
    assert dict(store.objects) == before
    assert [record.id for record in held_from(first, 0)] == list(range(24 * 40))
    first.service.close()
    second.service.close()


# -- whose it is ---------------------------------------------------------------------------------------------------------


def _root(store, **more):
    options = store.options(**more)
    return place_of(options["remote.data.dir"], options)


def test_two_labs_cannot_have_one_prefix(store):
    claim_remote(_root(store), meta := Meta())
    claim_remote(_root(store), meta)
    with pytest.raises(LabError, match="another lab's"):
        claim_remote(_root(store), Meta())
    claim_remote(_root(store, prefix="labs/two"), Meta())


def test_of_two_labs_that_claim_one_at_once_one_has_it(store):
    rival = b'{"version": 1, "lab": "rival"}'

    def fault(method, key):
        if method == "PUT" and key.endswith("owner.json"):
            store.objects.setdefault(key, rival)

    store.fault = fault
    with pytest.raises(LabError, match="another lab's"):
        claim_remote(_root(store), meta := Meta())
    assert (META_KEY in meta, store.objects["labs/one/owner.json"]) == (False, rival)


def test_a_claim_whose_answer_is_lost_is_the_labs(store):
    with store.failing(1500, "PUT", "owner", times=2):
        claim_remote(_root(store), meta := Meta())
    assert meta[META_KEY] == meta[CLAIM_KEY]
    RemoteDir(_root(store), meta[META_KEY]).check()


def test_a_bucket_that_is_not_there_is_not_an_empty_one(store, tmp_path):
    options = store.options() | {"remote.data.dir": "s3://gone/labs/one"}
    with pytest.raises(StorageError, match="the bucket is not there"):
        claim_remote(place_of(options["remote.data.dir"], options), meta := Meta())
    assert META_KEY not in meta
    tablet = make_tablet(tmp_path, options=options)
    assert "the bucket is not there" in _problem(tablet)
    tablet.service.close()


def test_wrong_keys_are_said_before_anything_is_claimed(store):
    store.key_id = "other"
    with pytest.raises(AuthenticationError, match=r"remote\.s3\.access-key-id") as caught:
        claim_remote(_root(store), meta := Meta())
    assert "hidden-secret" not in str(caught.value)
    assert META_KEY not in meta


def test_a_store_that_does_not_answer_is_not_asked_again_at_once(store):
    claim_remote(_root(store), meta := Meta())
    remote = RemoteDir(_root(store), meta[META_KEY])
    with store.failing(503):
        for _ in range(5):
            with pytest.raises(StorageError, match="too busy"):
                remote.check()
        assert store.count("GET", "owner") <= 2 + 2


# -- by which credentials ------------------------------------------------------------------------------------------------


def test_credentials_are_asked_for_once_and_again_when_they_are_refused(tablet, store):
    end = fill(tablet, 12)
    tablet.service.copy_to_remote()
    place = remote_place_of(tablet, 0)
    answers = Answers(tablet.options)
    files = RemoteFiles(lambda: answers)
    for _ in range(2):
        found = list(remote_part(place, 0, None, files))
    assert answers.asked == 1
    store.key_id = answers.options["remote.s3.access-key-id"] = "rotated"
    assert list(remote_part(place, 0, None, files)) == found
    assert answers.asked == 2
    store.key_id = "neither"
    with pytest.raises(AuthenticationError):
        list(remote_part(place, 0, None, files))
    assert answers.asked == 3
    assert len(found) < end
    assert "hidden-secret" not in f"{files!r} {vars(files)}"
    assert INFO.path


def test_an_environments_credentials_are_used_where_the_cluster_says_so(tablet, store, monkeypatch):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    place = remote_place_of(tablet, 0)
    answers = Answers(tablet.options | {"remote.s3.client-credentials": "environment"})
    assert answers.get_file_system_security_token(None).token == b""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine too")
    store.key_id = "mine"
    assert list(remote_part(place, 0, None, RemoteFiles(lambda: answers)))
