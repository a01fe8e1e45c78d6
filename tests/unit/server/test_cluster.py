"""Server processes: started once, attached to, started again after a kill, and gone when nobody is left."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from fluss_lab.errors import AuthenticationError, LabError, ServerUnavailableError, StorageError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.token import write_token
from fluss_lab.rpc.channel import Channel
from fluss_lab.server import cluster
from fluss_lab.server.folder.lab_folder import make_lab_folder
from fluss_lab.server.process.discovery import NO_TABLET, TOKEN_FILE, ServerEntry, process_start_ticks
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.server.process.server_process import (
    OUTPUT_FILE,
    START_LOCK_FILE,
    STOP_TIMEOUT_S,
    read_options,
    wait_until_gone,
)
from fluss_lab.testing import ServerProcess, wait_until

COMMAND = [sys.executable, "-m", "fluss_lab.cli", "server"]
#: Long enough for a second process to attach on a busy machine, short enough to wait for.
GRACE = {"server.grace": "300ms"}


def pid_of(folder: Path) -> int:
    found = cluster.read_discovery(folder)
    assert found is not None
    return found.servers[0].pid


def describe(folder: Path) -> pb.DescribeClusterResponse:
    place = cluster.locate(folder)
    channel = Channel(place.host, place.port, place.token)
    try:
        return channel.coordinator().describe_cluster(pb.DescribeClusterRequest())
    finally:
        channel.close()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "my lab"
    yield path
    found = cluster.read_discovery(path) if path.exists() else None
    if found is not None and cluster.is_alive(found.servers[0]) and found.servers[0].pid != os.getpid():
        os.kill(found.servers[0].pid, signal.SIGKILL)
        wait_until_gone(found)


def test_a_server_ends_after_the_last_attached_one_has_gone(folder):
    first = cluster.ensure_server(folder, COMMAND, GRACE)
    second = cluster.ensure_server(folder, COMMAND)
    found = cluster.read_discovery(folder)
    assert found is not None
    assert found.ephemeral
    assert describe(folder).attached == 2
    assert first.session_id != second.session_id
    first.close()
    wait_until(lambda: describe(folder).attached == 1)
    second.close()
    wait_until_gone(found)
    assert cluster.read_discovery(folder) is None


def test_a_process_that_is_killed_is_gone_too(folder):
    program = (
        "import sys; from pathlib import Path; from fluss_lab.server import cluster; "
        f"a = cluster.ensure_server(Path({str(folder)!r}), {COMMAND!r}, {GRACE!r}); print(a.session_id, flush=True); "
        "sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert int(child.stdout.readline()) > 0
    found = cluster.read_discovery(folder)
    assert found is not None
    assert os.getsid(found.servers[0].pid) == found.servers[0].pid
    child.kill()
    child.communicate()
    wait_until_gone(found)


@pytest.mark.parametrize("fork_support", ["", "0"])
def test_a_forked_child_does_not_keep_the_server_alive(folder, fork_support):
    """The attached process is killed; its child, which inherited every descriptor, lives on.

    gRPC's own handlers close what a child inherits, unless they are switched off, or a call is under way.
    """
    program = (
        "import os, sys; from pathlib import Path; from fluss_lab.server import cluster; "
        f"a = cluster.ensure_server(Path({str(folder)!r}), {COMMAND!r}, {GRACE!r}); "
        "child = os.fork(); "
        "print(child, flush=True) if child else None; "
        "sys.stdin.read()"
    )
    env = {**os.environ, **({"GRPC_ENABLE_FORK_SUPPORT": fork_support} if fork_support else {})}
    command = [sys.executable, "-c", program]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    found = cluster.read_discovery(folder)
    assert found is not None
    try:
        parent.kill()
        parent.wait()
        wait_until_gone(found, 20)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_a_fork_says_nothing_whatever_sockets_are_open(folder):
    """A notebook's kernel has Unix sockets, whose peers have no address; Spark's launcher forks it."""
    program = (
        "import os, socket; from pathlib import Path; from fluss_lab.server import cluster; "
        "pair = socket.socketpair(); "
        f"a = cluster.ensure_server(Path({str(folder)!r}), {COMMAND!r}, {GRACE!r}); "
        "child = os.fork(); "
        "os.waitpid(child, 0) if child else os._exit(0); "
        "a.close()"
    )
    # From Python 3.12 on a fork beside threads is warned of, whatever they do.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_an_attached_process_starts_a_killed_server_again_in_the_same_mode(folder):
    attachment = cluster.ensure_server(folder, COMMAND, {**GRACE, "log.segment.file-size": "1mb"})
    place, pid, session = attachment.address(), pid_of(folder), attachment.session_id
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid_of(folder) != pid and attachment.session_id not in {None, session})
    found = cluster.read_discovery(folder)
    assert found is not None
    assert found.ephemeral
    assert attachment.address() == place
    assert read_options(folder)["log.segment.file-size"] == "1mb"
    reported = {entry.key: entry.value for entry in describe(folder).options}
    assert reported["log.segment.file-size"] == "1mb"
    attachment.close()
    wait_until_gone(found)


def test_several_attached_processes_start_one_server(folder):
    attachments = [cluster.ensure_server(folder, COMMAND, GRACE) for _ in range(4)]
    pid = pid_of(folder)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(each.session_id is not None for each in attachments) and pid_of(folder) != pid)
    assert describe(folder).attached == 4
    assert describe(folder).coordinator_epoch == 2
    for attachment in attachments:
        attachment.close()


def test_several_openers_at_once_start_one_server(folder):
    attachments: list[cluster.Attachment] = []
    threads = [
        threading.Thread(target=lambda: attachments.append(cluster.ensure_server(folder, COMMAND, GRACE)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(attachments) == 4
    assert describe(folder).coordinator_epoch == 1
    for attachment in attachments:
        attachment.close()


def test_a_server_that_was_stopped_on_purpose_stays_stopped(folder):
    lost = threading.Event()
    attachment = cluster.ensure_server(folder, COMMAND, GRACE, on_lost=lost.set)
    assert cluster.stop_server(folder)
    assert lost.wait(60)
    assert cluster.read_discovery(folder) is None
    with pytest.raises(ServerUnavailableError, match="fluss-lab up"):
        attachment.address()
    # Somebody starts another: the attachment finds it.
    cluster.start_server(folder, COMMAND, {}, ephemeral=False)
    wait_until(lambda: attachment.session_id is not None)
    assert describe(folder).attached == 1
    attachment.close()
    assert cluster.stop_server(folder)
    assert not cluster.stop_server(folder)


def test_a_server_that_stood_still_when_it_was_asked_to_stop_is_asked_again(folder, caplog):
    caplog.set_level("INFO", logger="fluss_lab.server.cluster")
    cluster.start_server(folder, COMMAND, GRACE, ephemeral=False)
    pid = pid_of(folder)
    os.kill(pid, signal.SIGSTOP)
    stopped: list[bool] = []
    thread = threading.Thread(target=lambda: stopped.append(cluster.stop_server(folder)))
    thread.start()
    try:
        wait_until(lambda: "event=stop_unanswered" in caplog.text)
    finally:
        os.kill(pid, signal.SIGCONT)
    thread.join(STOP_TIMEOUT_S)
    assert stopped == [True]
    assert cluster.read_discovery(folder) is None


@pytest.mark.parametrize("token", ["another", "", None])
def test_a_server_that_takes_no_calls_any_more_is_stopped_all_the_same(folder, token):
    """As one whose certificate is out of date, or whose token's file was replaced: nobody could start one with a new one."""
    cluster.start_server(folder, COMMAND, GRACE, ephemeral=False)
    (folder / TOKEN_FILE).unlink()
    if token is not None:
        write_token(folder / TOKEN_FILE, token)
    with pytest.raises(AuthenticationError, match="token"):
        describe(folder)
    assert cluster.stop_server(folder)
    assert cluster.read_discovery(folder) is None
    assert "event=stopped" in (folder / "server.log").read_text()


def test_a_server_that_stays_outlives_those_attached(folder):
    cluster.start_server(folder, COMMAND, GRACE, ephemeral=False)
    pid = pid_of(folder)
    cluster.ensure_server(folder, COMMAND).close()
    wait_until(lambda: describe(folder).attached == 0)
    assert pid_of(folder) == pid
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(cluster.read_discovery(folder))
    # Whoever opens it next starts one that stays, as before.
    attachment = cluster.ensure_server(folder, COMMAND)
    found = cluster.read_discovery(folder)
    assert found is not None
    assert not found.ephemeral
    attachment.close()
    cluster.stop_server(folder)


def test_why_a_server_does_not_start_is_reported(folder):
    with ServerNode(folder):
        pass
    with sqlite3.connect(folder / "metadata.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LabError, match="newer version of fluss_lab") as caught:
        cluster.ensure_server(folder, COMMAND)
    assert type(caught.value) is LabError


@pytest.mark.parametrize("name", [START_LOCK_FILE, OUTPUT_FILE])
def test_a_file_of_the_start_that_cannot_be_opened_is_named(folder, name):
    make_lab_folder(folder)
    (folder / name).mkdir()  # what nobody can open for writing, root neither
    with pytest.raises(StorageError, match=f"{name}: no server can be started: Is a directory"):
        cluster.ensure_server(folder, COMMAND)
    (folder / name).rmdir()
    cluster.ensure_server(folder, COMMAND, GRACE).close()


def test_a_token_that_others_may_read_is_reported_at_once_where_a_server_runs(folder):
    with ServerNode(folder):
        (folder / TOKEN_FILE).chmod(0o644)
        with pytest.raises(AuthenticationError, match="others may read it"):
            cluster.ensure_server(folder, COMMAND)
        (folder / TOKEN_FILE).chmod(0o600)
        cluster.ensure_server(folder, COMMAND).close()


def test_a_token_that_is_not_there_is_waited_for(folder):
    # As of a server that is about to end, because its folder was moved.
    with ServerNode(folder):
        token, other = folder / TOKEN_FILE, folder.parent / "token"
        token.rename(other)
        back = threading.Timer(0.3, other.rename, (token,))
        back.start()
        cluster.ensure_server(folder, COMMAND).close()
        back.join()


def test_a_token_that_does_not_come_back_is_reported(folder, monkeypatch):
    """It was waited for two minutes, and the error did not name it."""
    monkeypatch.setattr(cluster, "TOKEN_WAIT_S", 0.1)
    with ServerNode(folder):
        (folder / TOKEN_FILE).unlink()
        with pytest.raises(AuthenticationError, match=r"token: No such file.*put it back, or stop the server"):
            cluster.ensure_server(folder, COMMAND)


def test_opening_while_the_last_server_is_stopping_waits_for_it(folder):
    epochs = []
    for _ in range(6):
        with cluster.ensure_server(folder, COMMAND, {"server.grace": "1ms"}):
            epochs.append(describe(folder).coordinator_epoch)
    assert epochs == sorted(epochs)


def test_a_server_that_dies_without_a_word_shows_the_end_of_its_log(folder):
    with pytest.raises(ServerUnavailableError, match=r"(?s)died while it started.*No module named"):
        cluster.start_server(folder, [sys.executable, "-m", "no_such_module"], {}, ephemeral=True)


def test_a_server_killed_while_it_starts_is_seen_and_the_next_start_works(folder):
    env = {**os.environ, "FLUSS_LAB_FAILPOINTS": "node.start.before_discovery=kill"}
    with pytest.raises(ServerUnavailableError, match="died while it started"):
        cluster.start_server(folder, COMMAND, {}, ephemeral=True, env=env)
    attachment = cluster.ensure_server(folder, COMMAND, GRACE)
    assert describe(folder).coordinator_epoch == 2
    attachment.close()


def test_a_server_whose_starter_was_killed_is_attached_to_when_it_is_ready(folder):
    """A kernel that is killed while it opens a lab, and started again: the next one opens the lab at once."""
    code = f"from fluss_lab.server import cluster; cluster.ensure_server(__import__('pathlib').Path({str(folder)!r}), {COMMAND!r})"
    env = {**os.environ, "FLUSS_LAB_FAILPOINTS": "node.start.before_discovery=stop"}
    starter = subprocess.Popen([sys.executable, "-c", code], env=env)
    lock, opened = folder / "server.lock", []
    wait_until(lambda: lock.exists() and lock.read_text().isdecimal())
    begun = psutil.Process(int(lock.read_text()))
    wait_until(lambda: begun.status() == psutil.STATUS_STOPPED)
    starter.kill()
    starter.wait()
    opening = threading.Thread(target=lambda: opened.append(cluster.ensure_server(folder, COMMAND, GRACE)))
    opening.start()
    # It begins a server of its own, which finds the folder in use.
    wait_until(lambda: "event=lock_awaited" in (folder / "server.log").read_text())
    begun.resume()
    opening.join()
    (attachment,) = opened
    assert pid_of(folder) == begun.pid
    attachment.close()


def test_a_process_with_the_same_id_that_started_later_is_not_the_server(folder):
    cluster.start_server(folder, COMMAND, {}, ephemeral=False)
    found = cluster.read_discovery(folder)
    assert found is not None
    assert cluster.is_alive(found.servers[0])
    value = json.loads((folder / "server.json").read_text())
    value["servers"][0] |= {"pid": os.getpid()}
    (folder / "server.json").write_text(json.dumps(value))
    forged = cluster.read_discovery(folder)
    os.kill(found.servers[0].pid, signal.SIGKILL)
    wait_until_gone(found)
    assert forged is not None
    assert not cluster.is_alive(forged.servers[0])


def test_a_process_that_is_reaped_between_two_looks_at_it_is_gone(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""])
    entry = ServerEntry(child.pid, "", 0, "", (), NO_TABLET, process_start_ticks(child.pid))
    child.wait()
    monkeypatch.setattr(os, "kill", lambda _pid, _number: None)  # as it answers while a process waits to be reaped
    assert not cluster.is_alive(entry)


def test_a_signal_stops_a_server_gracefully(folder):
    for number in (signal.SIGTERM, signal.SIGINT):
        cluster.start_server(folder, COMMAND, {}, ephemeral=False)
        found = cluster.read_discovery(folder)
        assert found is not None
        os.kill(found.servers[0].pid, number)
        wait_until_gone(found)
        assert cluster.read_discovery(folder) is None


def test_what_the_process_leaves_is_the_owners_alone(folder):
    with ServerProcess(folder):
        open_to_others = [path for path in folder.rglob("*") if path.stat().st_mode & 0o077]
        assert open_to_others == []
    assert "event=started" in (folder / "server.log").read_text()


def test_a_killed_server_process_keeps_what_it_acknowledged(folder):
    with ServerProcess(folder) as server:
        server.connection.admin().create_database("kept")
        server.kill()
        server.start()
        assert server.connection.admin().databases() == ["kept"]
