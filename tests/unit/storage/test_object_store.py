"""The object store alone: conditional puts, lost answers, how many requests, and what is said of failures."""

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from fluss_lab.errors import (
    AuthenticationError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
)
from fluss_lab.storage import object_store
from fluss_lab.storage.file_store import ABSENT
from fluss_lab.storage.store_errors import store_failure
from fluss_lab.storage.store_location import store_of
from tests.unit.storage.store_kit import answers_lost, before_each, keys_below, memory_place


@pytest.fixture
def place():
    return memory_place() / "manifest"


def test_a_version_that_is_not_there_is_not_replaced(place):
    store = place.store
    first = store.put(place, b"one", ABSENT)
    with pytest.raises(FileExistsError):
        store.put(place, b"other", ABSENT)
    second = store.put(place, b"two", first)
    with pytest.raises(FileExistsError):
        store.put(place, b"late", first)
    assert store.read(place) == b"two"
    store.put(place, b"three", second)
    assert store.read(place) == b"three"


@pytest.mark.parametrize("expects", [False, True])
def test_a_lost_answer_is_settled_by_what_is_there(place, monkeypatch, expects):
    store = place.store
    version = store.put(place, b"one", ABSENT) if expects else ABSENT
    with answers_lost(monkeypatch):
        version = store.put(place, b"two", version)
    store.put(place, b"three", version)
    assert store.read(place) == b"three"


def test_a_put_of_which_nothing_is_there_has_failed(place, monkeypatch):
    def refuse(*_, **__):
        raise GenericError("Generic S3 error: HTTP error: error sending request\n kind: Connect,")

    with before_each(monkeypatch, "put", refuse), pytest.raises(ConnectionError, match=r"does not answer \(connect\)"):
        place.store.put(place, b"one", ABSENT)
    assert place.store.size(place) is None


def test_many_blocks_cost_few_requests_and_one_block_one(monkeypatch):
    place, size, block = memory_place() / "segment", 40 << 20, 64 << 10
    with place.store.create(place, is_unique=True) as file:
        file.write(bytes(size))
    asked = []
    with before_each(monkeypatch, "get_range", lambda _path, *, start, end: asked.append((start, end))):
        reader = place.store.open(place, size)
        for start in range(0, size, block):
            assert len(reader.read(start, start + block, size)) == block
        # 1 + 2 + 4 MB, then 8 at once.
        assert len(asked) == 8
        assert sum(end - start for start, end in asked) == size
        asked.clear()
        reader = place.store.open(place, size)
        reader.read(20 << 20, (20 << 20) + block, (20 << 20) + block)
        assert asked == [(20 << 20, (20 << 20) + block)]


def test_large_files_of_unique_names_go_in_parts_and_others_whole(monkeypatch):
    folder, calls = memory_place(), []
    with before_each(monkeypatch, "put", lambda path, _data, **named: calls.append((path, named))):
        for name, is_unique in (("parts", True), ("whole", False)):
            with folder.store.create(folder / name, is_unique=is_unique) as file:
                for _ in range(3):
                    file.write(bytes(8 << 20))
    assert [named["use_multipart"] for _, named in calls] == [True, False]
    assert "mode" not in calls[0][1]
    assert calls[1][1]["mode"] == "create"
    assert [folder.store.size(folder / name) for name in ("parts", "whole")] == [24 << 20] * 2


def test_what_is_too_large_for_one_put_is_still_not_written_over(monkeypatch):
    monkeypatch.setattr(object_store, "_SINGLE_BYTES_MAX", 10)
    folder = memory_place()
    with folder.store.create(folder / "chunks") as file:
        file.write(b"first" * 10)
    with pytest.raises(FileExistsError), folder.store.create(folder / "chunks") as file:
        file.write(b"second" * 10)
    assert folder.store.read(folder / "chunks") == b"first" * 10


_STATUS = (
    "Error performing GET http://u in 2ms - Server returned non-2xx status code: {}: <Error><Code>{}</Code></Error>"
)


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (PermissionDeniedError(_STATUS.format(403, "SignatureDoesNotMatch")), AuthenticationError, "SignatureDoesNotMatch"),
        (GenericError(_STATUS.format(503, "SlowDown")), ResourceExhaustedError, "too busy"),
        (GenericError(_STATUS.format(507, "XMinioStorageFull")), ResourceExhaustedError, "is full"),
        (GenericError(_STATUS.format(500, "InternalError")), ServerUnavailableError, "does not answer"),
        (GenericError(_STATUS.format(400, "BadRequest")), StorageError, "refused the request"),
        (FileNotFoundError(_STATUS.format(404, "NoSuchBucket")), StorageError, "the bucket is not there"),
        (GenericError("HTTP error\n  kind: Timeout,"), ServerUnavailableError, "timeout"),
    ],
)  # fmt: skip
def test_failures_are_the_houses_with_endpoint_and_key_and_no_secret(place, monkeypatch, failure, kind, words):
    failure.args = (f"{failure.args[0]} Credential=AKIASECRET",)

    def refuse(*_, **__):
        raise failure

    with before_each(monkeypatch, "get", refuse), pytest.raises(OSError, match=words) as caught:
        place.store.read(place)
    found = store_failure("the remote log cannot be read", caught.value)
    assert type(found) is kind
    assert all(each in str(found) for each in ("memory", "s3://memory/labs/one/manifest", words))
    assert "AKIASECRET" not in f"{found} {caught.value!r}"
    assert caught.value.__cause__ is None
    assert not isinstance(caught.value, FileNotFoundError)


def test_places_are_shown_and_compared_without_their_store(place):
    assert str(place) == "s3://memory/labs/one/manifest"
    assert (place.name, str(place.parent)) == ("manifest", "s3://memory/labs/one")
    assert place.with_name("other") == place.parent / "other"
    assert place != memory_place() / "manifest"
    assert store_of(place) is place.store
    assert keys_below(place.parent) == []
