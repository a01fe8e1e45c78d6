"""The folders of buckets: durable when they are made and when they are gone, with few writes; or not there at all."""

import shutil

import pytest

from fluss_lab import files
from fluss_lab.server.tablet.buckets.bucket_folders import Trash, make_folders


@pytest.fixture
def written(monkeypatch):
    """The folders that were made durable, in order; each with what was in it then."""
    found, fsync = [], files.fsync_folder

    def watched(folder):
        fsync(folder)
        found.append((folder, {path.name for path in folder.iterdir()}))

    monkeypatch.setattr(files, "fsync_folder", watched)
    return found


@pytest.fixture
def refused(monkeypatch):
    """Names of folders that the device does not take."""
    names, fsync = set(), files.fsync_folder

    def refusing(folder):
        if folder.name in names:
            raise OSError(5, "Input/output error", str(folder))
        fsync(folder)

    monkeypatch.setattr(files, "fsync_folder", refusing)
    return names


def folders_of(data, table, partitions, buckets):
    return [data / table / f"p{partition}" / f"b{bucket}" for partition in partitions for bucket in range(buckets)]


def test_every_folder_is_durable_with_one_write_of_what_it_lies_in(tmp_path, written):
    for table in ("t1", "t2"):
        (tmp_path / table).mkdir()
    (tmp_path / "t1" / "p0" / "b0").mkdir(parents=True)  # a process was killed here
    parted, plain = folders_of(tmp_path, "t1", range(20), 2), [tmp_path / "t2" / f"b{bucket}" for bucket in range(30)]
    make_folders([*parted, *plain], tmp_path)
    assert all(folder.is_dir() for folder in (*parted, *plain))
    for folder in (*parted, *plain):
        assert any(place == folder.parent and folder.name in names for place, names in written), folder
    for partition in range(20):
        assert any(place == tmp_path / "t1" and f"p{partition}" in names for place, names in written)
    assert sorted(place for place, _ in written) == sorted(
        {folder.parent for folder in (*parted, *plain)} | {tmp_path / "t1"}
    )


@pytest.mark.parametrize("name", ["t1", "p3"])
def test_what_is_not_durable_is_not_there(tmp_path, refused, name):
    (tmp_path / "t1" / "p0" / "b0").mkdir(parents=True)
    (tmp_path / "t1" / "p0" / "b0" / "file").touch()
    refused.add(name)
    with pytest.raises(OSError, match="Input/output"):
        make_folders(folders_of(tmp_path, "t1", range(6), 2), tmp_path)
    assert [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*"))] == [
        (tmp_path / each).relative_to(tmp_path) for each in ("t1", "t1/p0", "t1/p0/b0", "t1/p0/b0/file")
    ]


def test_what_is_deleted_is_gone_with_one_write_of_what_is_left(tmp_path, written):
    folders = folders_of(tmp_path / "data", "t1", range(10), 1)
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").touch()
    trash = Trash(tmp_path / "data" / "trash")
    for folder in folders:
        trash.take(folder, "x")
        folder.parent.rmdir()
    assert len(list((tmp_path / "data" / "trash").rglob("file"))) == 10
    trash.empty()
    assert written == [(tmp_path / "data" / "t1", set())]
    assert not list((tmp_path / "data" / "trash").iterdir())
    trash.empty()
    assert len(written) == 1


def test_a_deletion_that_is_not_durable_is_tried_again(tmp_path, refused):
    folder = tmp_path / "t1" / "b0"
    folder.mkdir(parents=True)
    trash = Trash(tmp_path / "trash")
    trash.take(folder, "x")
    refused.add("t1")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            trash.empty()
    refused.clear()
    trash.empty()
    assert not list((tmp_path / "trash").iterdir())


def test_a_deletion_that_a_kill_cut_off_is_made_durable_when_it_is_repeated(tmp_path, written):
    (tmp_path / "t1" / "b0").mkdir(parents=True)
    Trash(tmp_path / "trash").take(tmp_path / "t1" / "b0", "x")  # and then the process was killed
    trash = Trash(tmp_path / "trash")
    trash.take(tmp_path / "t1" / "b0", "x")
    trash.empty()
    assert written == [(tmp_path / "t1", set())]


def test_files_that_cannot_be_removed_are_tried_again(tmp_path, monkeypatch):
    (tmp_path / "t1" / "b0").mkdir(parents=True)
    trash = Trash(tmp_path / "trash")
    trash.take(tmp_path / "t1" / "b0", "x")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_args, **_named: None)
        trash.empty()
    assert list((tmp_path / "trash").iterdir())
    trash.empty()
    assert not list((tmp_path / "trash").iterdir())
