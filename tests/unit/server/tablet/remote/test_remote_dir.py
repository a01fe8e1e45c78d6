"""``remote.data.dir``: where it is, and whose."""

from pathlib import Path

import pytest

from fluss_lab.errors import InvalidPropertyError, LabError, StorageError
from fluss_lab.server.folder.remote_storage import OWNER_FILE
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.server.process.server_process import read_options
from fluss_lab.server.server_options import with_remote_dir

KEY = "remote.data.dir"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "/labs/one/remote"),
        ("/data/remote", "/data/remote"),
        ("/data/../other/", "/other"),
        ("file:///data/with%20space", "/data/with space"),
        ("file://localhost/data", "/data"),
        ("file:/data", "/data"),
        ("elsewhere", "/labs/one/elsewhere"),
        ("a:b", "/labs/one/a:b"),
    ],
)
def test_it_is_an_absolute_path(given, expected):
    assert with_remote_dir({KEY: given, "x": "y"}, Path("/labs/one")) == {KEY: expected, "x": "y"}


def test_an_object_stores_is_the_same_for_every_folder():
    assert with_remote_dir({KEY: " s3://bucket/labs/one/ "}, Path("/labs/one"))[KEY] == "s3://bucket/labs/one"


@pytest.mark.parametrize("given", ["s3://bucket", "gs://b", "hdfs://h:1/p", "file://host/p", "file://"])
def test_what_is_no_location_is_refused(given):
    with pytest.raises(InvalidPropertyError, match="expected a path, file:///path"):
        with_remote_dir({KEY: given}, Path("/labs/one"))


def test_the_default_moves_with_the_lab(tmp_path):
    with ServerNode(tmp_path / "old") as node:
        assert node.options[KEY] == str(tmp_path / "old" / "remote")
        assert KEY not in _kept(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    with ServerNode(tmp_path / "new") as node:
        assert node.options[KEY] == str(tmp_path / "new" / "remote")


def test_one_that_was_given_is_kept(tmp_path):
    with ServerNode(tmp_path / "lab", options={KEY: str(tmp_path / "shared")}):
        assert _kept(tmp_path / "lab")[KEY] == str(tmp_path / "shared")


def _kept(folder):
    return read_options(folder) or {}


def test_two_labs_cannot_have_one(tmp_path):
    options = {KEY: str(tmp_path / "shared")}
    with ServerNode(tmp_path / "one", options=options):
        pass
    with pytest.raises(LabError, match="another lab's"):
        ServerNode(tmp_path / "two", options=options).start()
    with ServerNode(tmp_path / "one", options=options):
        pass  # and the first is not hurt
    with ServerNode(tmp_path / "two", options={KEY: str(tmp_path / "own")}):
        pass


def test_an_owner_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / OWNER_FILE).write_text("{}")
    with pytest.raises(LabError, match="not the owner's file"):
        ServerNode(tmp_path / "lab", options={KEY: str(tmp_path / "shared")}).start()


def test_one_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"remote.data.dir .* cannot be used"):
        ServerNode(tmp_path / "lab", options={KEY: str(tmp_path / "file" / "below")}).start()
