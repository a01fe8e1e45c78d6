"""Files are swapped in whole, private, and never half-written."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab import files
from fluss_lab.errors import StorageError
from fluss_lab.files import (
    create_atomic,
    exchange,
    fsync_file,
    fsync_folder,
    fsync_path,
    process_folder,
    replace,
    write_atomic,
    write_json_atomic,
)


def test_content_is_replaced_and_private(tmp_path):
    path = tmp_path / "a file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a file"]


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "value.json"
    write_json_atomic(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json_atomic(path, {"a": object()})
    with pytest.raises(TypeError):
        write_atomic(path, "text")
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["value.json"]


def test_whoever_has_the_file_open_sees_the_old_content_whole(tmp_path):
    path = tmp_path / "value"
    write_atomic(path, b"the old content")
    with path.open("rb") as reader:
        write_atomic(path, b"new")
        assert reader.read() == b"the old content"


@pytest.fixture
def calls(monkeypatch):
    """What the kernel is asked to make durable or to swap in, in order: (call, kind of file, size when asked)."""
    seen = []

    def synced(name):
        real = getattr(os, name)

        def call(fd):
            status = os.fstat(fd)
            seen.append((name, "folder") if stat.S_ISDIR(status.st_mode) else (name, "file", status.st_size))
            real(fd)

        return call

    def replaced(source, target, real=os.replace):
        seen.append(("replace",))
        real(source, target)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced(name))
    monkeypatch.setattr(os, "replace", replaced)
    return seen


def test_content_is_on_the_device_before_its_name_and_the_name_before_the_return(tmp_path, calls):
    write_atomic(tmp_path / "a", b"seven..")
    assert calls == [("fsync", "file", 7), ("replace",), ("fsync", "folder")]
    calls.clear()
    write_atomic(tmp_path / "a", b"seven..", durable=False)
    assert calls == [("replace",)]
    calls.clear()
    replace(tmp_path / "a", tmp_path / "b")
    assert calls == [("replace",), ("fsync", "folder")]


def test_the_device_is_asked_for_what_is_to_be_durable(tmp_path, calls):
    path = tmp_path / "a"
    with path.open("wb", buffering=0) as file:
        file.write(b"abc")
        fsync_file(file.fileno())
    fsync_path(path)
    fsync_folder(tmp_path)
    assert calls == [("fdatasync", "file", 3), ("fsync", "file", 3), ("fsync", "folder")]


def test_of_many_that_make_one_file_one_succeeds_and_nobody_sees_half_of_it(tmp_path):
    path = tmp_path / "made"
    barrier = threading.Barrier(4)

    def make(number: int) -> bool:
        barrier.wait()
        try:
            create_atomic(path, bytes([number]) * 100_000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, range(4)))
    assert made.count(True) == 1
    assert path.read_bytes() == bytes([made.index(True)]) * 100_000
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("can_at_once", [True, False])
def test_two_folders_get_each_others_name(tmp_path, monkeypatch, can_at_once):
    if not can_at_once:
        monkeypatch.setattr(files, "_RENAME_EXCHANGE", 1 << 20)  # a flag that no kernel knows
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    exchange(tmp_path / "new", tmp_path / "old")
    assert {name: (tmp_path / name / "file").read_text() for name in os.listdir(tmp_path)} == {
        "new": "old",
        "old": "new",
    }


@pytest.mark.parametrize("can_at_once", [True, False])
def test_names_that_cannot_be_exchanged_stay(tmp_path, monkeypatch, can_at_once):
    if not can_at_once:
        monkeypatch.setattr(files, "_RENAME_EXCHANGE", 1 << 20)
    (tmp_path / "old").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "new", tmp_path / "old")
    assert os.listdir(tmp_path) == ["old"]


def test_a_temporary_folder_goes_with_its_block_and_one_that_cannot_be_made_says_what_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with files.temporary_folder("mine-") as folder:
        (folder / "file").write_bytes(b"x")
        assert folder.parent == files.temporary_root() == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match=r"gone: no temporary files .* No such file .*let TMPDIR name another"):
        files.temporary_folder("mine-").__enter__()


def test_where_no_temporary_files_can_be_written_the_error_says_what_helps(monkeypatch):
    """Seen: labs, rounds and queries ended in Python's FileNotFoundError."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere", "/dev/null/x"])
    for call in (files.temporary_root, files.temporary_folder("mine-").__enter__):
        with pytest.raises(StorageError, match=r"\['/nowhere', '/dev/null/x'\].*let TMPDIR name one"):
            call()


_KEEPER = """
import sys
from fluss_lab.files import process_folder

folder = process_folder("kept-")
(folder / "rows").mkdir()
print(folder.name, flush=True)
sys.stdin.read()
"""


def test_what_killed_processes_left_goes_with_the_next_one_that_makes_such_a_folder(tmp_path, monkeypatch):
    """Seen: each driver of Spark's that was killed left its folder in TMPDIR, for ever."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    keepers, names = [], []
    for _ in range(3):
        keeper = subprocess.Popen(
            [sys.executable, "-c", _KEEPER], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert keeper.stdout is not None
        names.append(keeper.stdout.readline().strip())
        keepers.append(keeper)
    keepers[0].kill()
    keepers[0].communicate()
    keepers[2].communicate()
    others = {"kept-of-nobody", "kept-link", "kept-file", "other-"}
    for name in ("kept-of-nobody", "other-"):
        (tmp_path / name).mkdir()
    (tmp_path / "other-" / ".owner").touch()
    (tmp_path / "kept-link").symlink_to(tmp_path / "other-")
    (tmp_path / "kept-file").touch()
    assert {path.name for path in tmp_path.iterdir()} == {*names[:2], *others}
    mine = process_folder("kept-")
    assert {path.name for path in tmp_path.iterdir()} == {names[1], mine.name, *others}
    again = process_folder("kept-")
    assert {path.name for path in tmp_path.iterdir()} == {names[1], mine.name, again.name, *others}
    keepers[1].communicate()
    assert not (tmp_path / names[1]).exists()
