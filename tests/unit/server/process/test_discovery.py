"""What a discovery file's process is said to be."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import NO_TABLET, ServerEntry


def _entry(pid):
    return ServerEntry(pid, "", 0, "", (), NO_TABLET, discovery.process_start_ticks(pid))


def test_a_process_that_is_there_is_alive_and_one_that_ended_is_not():
    assert discovery.is_alive(_entry(os.getpid()))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    entry = _entry(child.pid)
    assert discovery.is_alive(entry)
    child.communicate(b"\n")
    assert not discovery.is_alive(entry)


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_dead(monkeypatch):
    entry = _entry(os.getpid())

    def too_many_files(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(Path, "read_text", too_many_files)
    with pytest.raises(OSError, match="Too many open files"):
        discovery.is_alive(entry)


def test_a_newer_discovery_file_of_a_read_only_lab_is_refused(tmp_path, monkeypatch):
    """Its server may write the lab: a shadow server that reads it meanwhile would see half of what that writes."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(discovery, "home_of", lambda folder: home)
    (tmp_path / "server.json").write_text('{"version": 2, "ephemeral": true, "servers": []}')
    with pytest.raises(UnsupportedError, match="newer version"):
        discovery.read(tmp_path)
