"""The log of a run on a disk that is full for a while."""

import pytest

from fluss_lab.jobs.run_log import RunLog
from tests.unit.server.disks import fill, small_disk


def test_lines_that_a_full_disk_did_not_take_are_named(tmp_path):
    """Seen: the log went on behind them without a word."""
    with small_disk(tmp_path / "disk", 1) as disk:
        log = RunLog(disk / "r1.log")
        log.write("before")
        ballast = fill(disk)
        for _ in range(3):
            log.write("x" * 5_000)
        assert log.lack == "its log lacks the last 3 lines: No space left on device"
        ballast.unlink()
        log.write("behind")
        assert log.lack is None
        log.close()
        lines = (disk / "r1.log").read_text().splitlines()
    assert lines[0] == "before"
    assert set(lines[1]) <= {"x"}  # as much of the first as there was room for
    assert lines[2:] == ["... 3 lines not written here, or in part: No space left on device", "behind"]


def test_a_log_that_is_closed_takes_nothing_and_lacks_nothing(tmp_path):
    log = RunLog(tmp_path / "r1.log")
    log.write("one")
    log.close()
    log.close()
    log.write("two")
    assert ((tmp_path / "r1.log").read_text(), log.lack) == ("one\n", None)
    with pytest.raises(FileExistsError):
        RunLog(tmp_path / "r1.log")
