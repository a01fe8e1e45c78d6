"""The fsyncs of a log: one at a time, and none after one that failed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab.errors import StorageError
from fluss_lab.server.tablet.log.fsync_guard import SUSPECT_FILE, FsyncGuard


def refuse() -> None:
    raise OSError(5, "Input/output error")


def test_after_one_that_failed_none_is_run_and_each_fails(tmp_path):
    guard, ran = FsyncGuard(tmp_path), []
    guard.run(lambda: ran.append(1), 0)
    assert guard.failure is None
    for sync in (refuse, lambda: ran.append(2)):
        with pytest.raises(StorageError, match=r"fsync failed \(Input/output error\): .* from offset 7 on"):
            guard.run(sync, 7)
    assert ran == [1]
    assert "Input/output error" in (tmp_path / SUSPECT_FILE).read_text()


def test_one_that_waited_for_another_which_failed_fails_too(tmp_path):
    """The kernel tells the error to one of them only."""
    guard, begun, goes_on = FsyncGuard(tmp_path), threading.Event(), threading.Event()

    def refused_late() -> None:
        begun.set()
        goes_on.wait(60)
        refuse()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(guard.run, refused_late, 0)
        assert begun.wait(60)
        second = pool.submit(guard.run, lambda: None, 0)
        goes_on.set()
        for each in (first, second):
            with pytest.raises(StorageError, match="fsync failed"):
                each.result(60)


def test_a_folder_that_takes_no_note_hides_no_failure(tmp_path):
    guard = FsyncGuard(tmp_path / "gone")
    with pytest.raises(StorageError, match="fsync failed"):
        guard.run(refuse, 0)
