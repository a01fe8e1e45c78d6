"""The end of a server process."""

import os
import shutil
from contextlib import contextmanager, suppress

import psutil
import pytest

from fluss_lab import Lab
from fluss_lab.errors import StorageError
from fluss_lab.testing import wait_until
from fluss_lab.testing.clusters import ServerProcess

pytestmark = pytest.mark.slow


def _remove(folder):
    shutil.rmtree(folder)


def _move(folder):
    folder.rename(folder.with_name("elsewhere"))


def _replace(folder):
    _move(folder)
    folder.mkdir()
    (folder / "theirs").touch()


@contextmanager
def _family(server):
    """The processes of a server that was started, which end with the block."""
    process = psutil.Process(server.pid)
    family = [process, *process.children(recursive=True)]
    try:
        yield family
    finally:
        for each in family:
            with suppress(psutil.Error):
                each.kill()


def _have_ended(family):
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)


@pytest.mark.parametrize(("change", "tablet_servers"), [(_remove, 2), (_move, 1), (_replace, 1)])
def test_a_server_whose_folder_is_gone_ends_with_all_its_processes(tmp_path, change, tablet_servers):
    """Seen: it stayed for ever, and `fluss-lab down` did not find it."""
    folder = tmp_path / "lab"
    server = ServerProcess(folder, {"server.folder-gone-timeout": "200ms"}, tablet_servers=tablet_servers)
    server.start()
    with _family(server) as family:
        assert len(family) >= tablet_servers
        change(folder)
        wait_until(lambda: _have_ended(family))
    assert sorted(os.listdir(tmp_path)) == {_remove: [], _move: ["elsewhere"], _replace: ["elsewhere", "lab"]}[change]
    assert change is not _replace or os.listdir(folder) == ["theirs"]
    if change is not _remove:
        with ServerProcess(tmp_path / "elsewhere") as again:  # nobody else holds it
            assert again.pid != family[0].pid


def test_a_server_with_an_attached_lab_stays_until_its_folder_is_back(tmp_path):
    """What it says, that the folder is to be put back, holds for as long as somebody can do so."""
    folder = tmp_path / "lab"
    server = ServerProcess(folder, {"server.folder-gone-timeout": "100ms"})
    server.start()
    with _family(server) as family:
        with Lab.open(folder) as lab:
            lab.create_database("db")
            table = lab.create_table("db.t", {"a": "bigint"})
            table.append([{"a": 0}])
            _move(folder)
            with pytest.raises(StorageError, match="no longer at"):
                table.append([{"a": 1}])
            with pytest.raises(psutil.TimeoutExpired):
                family[0].wait(1)
            (tmp_path / "elsewhere").rename(folder)
            table.append([{"a": 1}])
            assert table.to_pandas().a.tolist() == [0, 1]
        _move(folder)
        wait_until(lambda: _have_ended(family))
