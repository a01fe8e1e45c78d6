"""Values of the metadata are read beside a server and without one, damage is an error, and no file changes."""

from contextlib import closing

import pytest

from fluss_lab.errors import CorruptDataError, StorageError
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.folder.metadata_values import metadata_values


def state(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_values_are_those_of_the_last_commit_and_no_file_changes(tmp_path):
    folder = tmp_path / "a lab? 100%"
    folder.mkdir()
    assert metadata_values(folder, is_served=False) == {}
    with closing(MetadataStore(folder / DATABASE_FILE)) as store:
        store.set_meta("a", "1")
        assert metadata_values(folder, is_served=True)["a"] == "1"
        store.merge()
        store.set_meta("a", "2")
        before = state(folder)
        assert f"{DATABASE_FILE}-wal" in before
        # As of a killed server: what was committed is in the write-ahead log.
        assert metadata_values(folder, is_served=False)["a"] == "2"
        assert metadata_values(folder, is_served=True)["a"] == "2"
        assert state(folder).keys() == before.keys()
    before = state(folder)
    assert set(before) == {DATABASE_FILE}
    assert metadata_values(folder, is_served=False)["a"] == "2"
    assert state(folder) == before


@pytest.mark.parametrize("content", [b"x" * 9_000, b""])
def test_what_is_no_metadata_is_an_error(tmp_path, content):
    (tmp_path / DATABASE_FILE).write_bytes(content)
    with pytest.raises(CorruptDataError, match=DATABASE_FILE):
        metadata_values(tmp_path, is_served=False)


def test_what_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / DATABASE_FILE).mkdir()
    with pytest.raises(StorageError, match=DATABASE_FILE):
        metadata_values(tmp_path, is_served=False)
