"""The folder of a task between micro-batches: its own, one task at a time."""

import os
import stat
from contextlib import suppress

import pytest

from fluss_lab.spark.lookup.task_folder import task_folder


@pytest.fixture(autouse=True)
def local(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    return tmp_path


def test_the_next_task_finds_what_the_last_one_left():
    with task_folder("run", "join", 3) as folder:
        (folder / "left").write_text("x")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with task_folder("run", "join", 3) as again:
        assert again == folder
        assert (again / "left").exists()


def test_no_two_tasks_share_one():
    with (
        task_folder("run", "join", 3) as one,
        task_folder("run", "join", 3) as same,
        task_folder("run", "join", 4) as number,
        task_folder("run", "other", 3) as join,
        task_folder("again", "join", 3) as run,
    ):
        assert len({one, same, number, join, run}) == 5


def test_without_a_place_there_is_none(monkeypatch, local):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/proc/nowhere")
    with task_folder("run", "join", 0) as folder:
        assert folder is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with task_folder("run", "join", 0) as folder:
        assert folder is None
    assert os.listdir(local) == []


def test_locks_go_with_the_block(local):
    with task_folder("run", "join", 0):
        assert len(open_below(local)) == 1
    with pytest.raises(ValueError, match="x"), task_folder("run", "join", 0):
        raise ValueError("x")
    assert not open_below(local)


def open_below(folder):
    """Return the files in a folder that this process has open; others may come and go meanwhile."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [each for each in found if each.startswith(f"{folder}/")]
