"""What is promised of files of remote storage, by both stores: one suite."""

import pytest

from fluss_lab.storage.file_store import ABSENT
from fluss_lab.storage.store_location import store_of
from tests.unit.storage.store_kit import memory_place


@pytest.fixture(params=["local", "object"])
def folder(request, tmp_path):
    place = tmp_path / "files" if request.param == "local" else memory_place()
    store_of(place).make_folder(place)
    return place


def test_a_file_that_is_put_is_read_and_replaced_at_once(folder):
    store = store_of(folder)
    first = store.put(folder / "manifest", b"one", ABSENT)
    data, version = store.load(folder / "manifest")
    assert (data, version) == (b"one", first)
    store.put(folder / "manifest", b"two", version)
    assert store.read(folder / "manifest") == b"two"
    assert store.size(folder / "manifest") == 3
    assert store.names(folder) == ["manifest"]


def test_what_is_not_there_is_said(folder):
    store = store_of(folder)
    for ask in (store.read, store.load):
        with pytest.raises(FileNotFoundError) as caught:
            ask(folder / "none")
        assert str(folder / "none") in str(caught.value.filename)
    assert store.size(folder / "none") is None
    assert store.names(folder / "none") == []
    store.remove(folder / "none")


@pytest.mark.parametrize("is_unique", [True, False])
def test_a_new_file_is_whole_or_not_there(folder, is_unique):
    store = store_of(folder)
    with store.create(folder / "new", is_unique=is_unique) as file:
        for piece in (b"ab", memoryview(b"cd"), b""):
            file.write(piece)
    assert store.read(folder / "new") == b"abcd"
    with pytest.raises(ZeroDivisionError), store.create(folder / "cut", is_unique=is_unique) as file:
        file.write(bytes(1 // len(store.names(folder / "none"))))
    assert store.names(folder) == ["new"]


def test_a_new_file_replaces_none(folder):
    store = store_of(folder)
    with store.create(folder / "new") as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), store.create(folder / "new") as file:
        file.write(b"second")
    assert store.read(folder / "new") == b"first"


def test_ranges_are_read_and_end_with_the_file(folder):
    store, content = store_of(folder), bytes(range(256)) * 20_000
    with store.create(folder / "new", is_unique=True) as file:
        file.write(content)
    reader = store.open(folder / "new", len(content))
    step = 65_536
    for start in range(0, len(content), step):
        assert reader.read(start, min(start + step, len(content)), len(content)) == content[start : start + step]
    for start, stop in ((5, 9), (1_000_000, 1_000_001), (100, 3_000_000), (7, 7)):
        assert reader.read(start, stop, stop) == content[start:stop]
    assert reader.read(len(content) - 3, len(content) + 5, len(content)) == content[-3:]
    assert reader.read(len(content) + 5, len(content) + 9, len(content) + 9) == b""
    reader.close()
    reader.close()


def test_folders_are_listed_by_level_and_removed_whole(folder):
    store = store_of(folder)
    for name in ("a", "ab"):
        store.make_folder(folder / name)
        store.put(folder / name / "x", b"1")
    store.put(folder / "c", b"1")
    assert store.names(folder) == ["a", "ab", "c"]
    store.remove_folder(folder / "a")
    assert store.names(folder) == ["ab", "c"]
    assert store.is_folder(folder)
    store.rename(folder / "c", "d")
    assert store.names(folder) == ["ab", "d"]
    assert store.read(folder / "d") == b"1"
