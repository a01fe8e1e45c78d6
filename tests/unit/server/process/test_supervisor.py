"""Tablet servers in processes of their own: watched, started again, and gone with the coordinator's process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.errors import ConflictError, FlussError
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import Discovery
from fluss_lab.server.process.server_process import server_command, wait_until_gone
from fluss_lab.testing import ServerProcess, wait_until

_NUMBERS = count()
CLIENT = {"client.request-timeout": "120s", "client.scanner.log.fetch.wait-max-time": "100ms"}
PATIENCE_S = 60.0


def found(server: ServerProcess) -> Discovery:
    read = cluster.read_discovery(server.folder)
    assert read is not None
    return read


def make(connection: Connection, buckets: int = 2, bucket_key: tuple[str, ...] = ()) -> TableInfo:
    connection.admin().create_database("d", if_not_exists=True)
    path = TablePath("d", f"t{next(_NUMBERS)}")
    return connection.admin().create_table(
        path, make_descriptor({"id": "bigint"}, buckets=buckets, bucket_key=bucket_key)
    )


def statuses(connection: Connection) -> dict[int, pb.PbTabletServerStatus]:
    described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    return {each.server_id: each for each in described.tablet_server_status}


def read(connection: Connection, info: TableInfo) -> list[list[int]]:
    """Return the ids in each bucket, in their order."""
    ends = connection.admin().list_offsets(info, OffsetSpec.latest())
    return [
        [
            value
            for run in read_range(connection, info, TableBucket(info.table_id, None, bucket), 0, end.offset)
            for value in run.rows.column("id").to_pylist()
        ]
        for bucket, end in sorted(ends.items())
    ]


class Writing:
    """Appends numbers until it is left; then each is where the acknowledgements said, once, and nothing else is there."""

    def __init__(self, connection: Connection, info: TableInfo) -> None:
        self.connection, self.info = connection, info
        self.acknowledged = 0
        self.places: dict[tuple[int, int], range] = {}
        self.error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with self.connection.append_writer(self.info.path) as writer:
                at = 0
                while not self._done.is_set():
                    futures = [(range(at + 10 * k, at + 10 * k + 10), None) for k in range(4)]
                    sent = [(rows, writer.append({"id": np.arange(rows.start, rows.stop)})) for rows, _ in futures]
                    at += 40
                    for rows, future in sent:
                        ((_, bucket), ((base, end),)) = next(iter(future.result(PATIENCE_S).offsets.items()))
                        assert end - base == len(rows)
                        self.places[bucket, base] = rows
                        self.acknowledged += len(rows)
        except BaseException as error:
            self.error = error

    def progress(self) -> None:
        """Wait until more is acknowledged than now."""
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + 100 or self.error is not None, PATIENCE_S)
        assert self.error is None, self.error

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._done.set()
        if kind is None:
            self._thread.join(PATIENCE_S)

    def check(self, connection: Connection) -> None:
        assert self.error is None, self.error
        for bucket, values in enumerate(read(connection, self.info)):
            ours = sorted((base, rows) for (of, base), rows in self.places.items() if of == bucket)
            assert values == [value for _, rows in ours for value in rows]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A cluster of two for tests whose harm to tablet servers heals by itself."""
    # One that hangs is left so: a test continues it.
    options = {"server.session-timeout": "10min"}
    made = ServerProcess(tmp_path_factory.mktemp("shared") / "my lab", options, tablet_servers=2, client=CLIENT)
    made.start()
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path / "my lab", tablet_servers=2, client=CLIENT)
    made.start()
    yield made
    made.close()


# -- who is there ------------------------------------------------------------------------------------------------------


def test_each_tablet_server_is_a_process_of_its_own_that_can_be_found(shared):
    processes = found(shared).servers
    assert [(each.roles, each.server_id) for each in processes] == [
        (("coordinator",), -1), (("tablet",), 0), (("tablet",), 1),
    ]  # fmt: skip
    assert len({each.pid for each in processes}) == len({each.port for each in processes}) == 3
    assert all(cluster.is_alive(each) for each in processes)
    # Detached from whatever terminal there is: nobody's signals but ours reach them.
    assert [os.getsid(each.pid) for each in processes] == [each.pid for each in processes]
    assert {each.process_id for each in statuses(shared.connection).values()} == {each.pid for each in processes[1:]}
    make(shared.connection)
    for server_id, folder in enumerate(("tablet", "tablet-1")):
        assert (shared.folder / folder / "server.lock").read_text() == str(processes[1 + server_id].pid)
        assert "event=tablet_started" in (shared.folder / f"tablet-{server_id}.log").read_text()
    for name in ("server.json", "token", "tablet-1.log", "tablet-1.out", "tablet-1"):
        assert (shared.folder / name).stat().st_mode & 0o077 == 0, name


def test_another_process_is_not_let_in_as_a_tablet_server(shared):
    pids = {each.process_id for each in statuses(shared.connection).values()}
    for process_id in (None, os.getpid(), shared.pid):
        request = pb.RegisterTabletServerRequest(server_id=1, host="127.0.0.1", port=1, opening=True)
        if process_id is not None:
            request.process_id = process_id
        with pytest.raises(ConflictError, match="started another one"):
            shared.connection.coordinator().register_tablet_server(request)
    assert {each.process_id for each in statuses(shared.connection).values()} == pids
    assert len(shared.connection.servers()) == 2


# -- death -------------------------------------------------------------------------------------------------------------


def test_a_tablet_server_that_is_killed_comes_back_and_nothing_is_lost_or_doubled(shared):
    info = make(shared.connection)
    ports = {each.server_id: each.port for each in found(shared).servers}
    before = [statuses(shared.connection)[number].restarts for number in (0, 1)]
    with Writing(shared.connection, info) as writing:
        for server_id in (0, 1, 1):
            writing.progress()
            killed = shared.kill_tablet(server_id)
            assert shared.tablet_pid(server_id) != killed
        writing.progress()
    writing.check(shared.connection)
    reported = statuses(shared.connection)
    assert [reported[number].restarts - before[number] for number in (0, 1)] == [1, 2]
    assert f"process {killed} was ended by signal 9" in reported[1].last_error
    # On the old ports, and in the file for whoever looks.
    assert {each.server_id: each.port for each in found(shared).servers} == ports
    assert {each.pid for each in found(shared).servers[1:]} == {each.process_id for each in reported.values()}


def test_tablet_servers_end_with_the_coordinator_and_the_next_one_goes_on_where_they_were(server):
    info = make(server.connection)
    ports = [each.port for each in found(server).servers]
    with Writing(server.connection, info) as writing:
        for _ in range(2):
            writing.progress()
            before = found(server)
            os.kill(server.pid, signal.SIGKILL)
            try:
                # Nobody ends them; they see that they are alone.
                wait_until_gone(before, PATIENCE_S)
            finally:
                for each in before.servers:
                    if cluster.is_alive(each):
                        os.kill(each.pid, signal.SIGKILL)
            server.start()
            assert [each.port for each in found(server).servers] == ports
            assert {each.pid for each in before.servers}.isdisjoint(each.pid for each in found(server).servers)
        writing.progress()
    writing.check(server.connection)


def test_a_new_coordinator_copes_with_a_tablet_server_that_does_not_end(server):
    """It holds its lock on: the new one of its id waits for it, and the others serve meanwhile."""
    info = make(server.connection, bucket_key=("id",))
    with server.connection.append_writer(info.path) as writer:
        bucket_of = {key: next(iter(writer.append([{"id": key}]).result(PATIENCE_S).offsets))[1] for key in range(12)}
    here = [key for key, bucket in bucket_of.items() if bucket == 0]
    stuck = server.tablet_pid(1)
    os.kill(stuck, signal.SIGSTOP)
    starting = threading.Thread(target=server.start)
    try:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: cluster.running_server(server.folder) is None, PATIENCE_S)
        starting.start()
        # The connection of the last run finds the new one, which has the same port.
        wait_until(lambda: _state(server.connection, 1) == "starting", PATIENCE_S)
        with server.connection.append_writer(info.path) as writer:
            assert writer.append([{"id": here[0]}]).result(PATIENCE_S).rows == 1
        text = server.folder / "tablet-1.log"
        wait_until(lambda: f"event=lock_awaited folder={server.folder / 'tablet-1'}" in text.read_text(), PATIENCE_S)
        assert _state(server.connection, 1) == "starting"
    finally:
        os.kill(stuck, signal.SIGCONT)
        starting.join(PATIENCE_S)
    assert server.tablet_pid(1) != stuck
    assert sorted(chain(*read(server.connection, info))) == sorted([*bucket_of, here[0]])


def _state(connection: Connection, server_id: int) -> str | None:
    try:
        return statuses(connection)[server_id].state
    except FlussError:
        return None


def test_a_tablet_server_that_hangs_stalls_neither_writers_nor_readers_of_the_others(shared):
    path = make(shared.connection, bucket_key=("id",)).path
    with shared.connection.append_writer(path) as writer, shared.connection.log_scanner(path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        bucket_of = {key: next(iter(writer.append([{"id": key}]).result(PATIENCE_S).offsets))[1] for key in range(12)}
        here = [key for key, bucket in bucket_of.items() if bucket == 0]
        there = [key for key, bucket in bucket_of.items() if bucket == 1]
        seen = 0
        while seen < 12:
            seen += scanner.poll(1.0).count
        hanging = shared.tablet_pid(1)
        os.kill(hanging, signal.SIGSTOP)
        try:
            waiting = [writer.append([{"id": key}]) for key in there for _ in range(3)]
            for _ in range(10):
                writer.append([{"id": here[0]}]).result(PATIENCE_S)
            while seen < 22:
                seen += scanner.poll(1.0).count
            assert not [future.exception() or future.result() for future in waiting if future.done()]
        finally:
            os.kill(hanging, signal.SIGCONT)
        for future in waiting:
            future.result(PATIENCE_S)
        while seen < 22 + len(waiting):
            seen += scanner.poll(1.0).count


def test_a_tablet_server_that_hangs_is_noticed_and_started_again(tmp_path):
    """Calls that wait for it go on when its process has been killed, and definitions of tables wait no longer for it."""
    options = {"server.session-timeout": "2s"}
    client = {**CLIENT, "client.request-timeout": "20s"}
    with ServerProcess(tmp_path / "lab", options, tablet_servers=2, client=client) as server:
        info = make(server.connection)
        hanging = server.tablet_pid(1)
        os.kill(hanging, signal.SIGSTOP)
        with server.connection.append_writer(info.path) as writer:
            waiting = [writer.append([{"id": key}]) for key in range(8)]
            make(server.connection)
            assert sum(future.result(PATIENCE_S).rows for future in waiting) == 8
        assert server.tablet_pid(1) != hanging
        reported = statuses(server.connection)
        assert [reported[number].restarts for number in (0, 1)] == [0, 1]
        expected = f"process {hanging} was killed: it hung, without a heartbeat for 2000 ms (server.session-timeout)"
        assert reported[1].last_error == expected
        assert sorted(chain(*read(server.connection, info))) == list(range(8))


# -- what cannot be started --------------------------------------------------------------------------------------------


def test_one_that_cannot_start_is_reported_and_comes_back_when_that_is_mended(server):
    info = make(server.connection, 4)
    with server.connection.append_writer(info.path) as writer:
        for key in range(8):
            writer.append([{"id": key}])
    server.stop()
    data = server.folder / "tablet-1" / "data"
    aside = data.with_name("aside")
    data.rename(aside)
    data.write_text("not a folder")
    server.start()
    connection = server.connection
    wait_until(lambda: statuses(connection)[1].restarts >= 1, PATIENCE_S)
    reported = statuses(connection)
    assert (reported[0].state, reported[0].last_error) == ("running", "")
    assert reported[1].state in {"away", "starting"}
    assert "tablet server 1" in reported[1].last_error
    assert str(data) in reported[1].last_error
    buckets = connection.admin().buckets(info, patient=False)
    assert [status.leader for status in buckets] == [0, -1, 0, -1]
    data.unlink()
    aside.rename(data)
    assert sorted(chain(*read(connection, info))) == list(range(8))
    assert statuses(connection)[1].state == "running"


def test_a_start_at_which_no_tablet_server_comes_up_fails_and_leaves_nobody(server):
    server.stop()
    for folder in ("tablet", "tablet-1"):
        lock = server.folder / folder / "server.lock"
        lock.unlink()
        lock.mkdir()
    with pytest.raises(FlussError, match="tablet server 0"):
        server.start()
    assert cluster.read_discovery(server.folder) is None
    for folder in ("tablet", "tablet-1"):
        (server.folder / folder / "server.lock").rmdir()
    server.start()
    assert len(server.connection.servers()) == 2


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["call", "terminal"])
def test_a_graceful_stop_under_load_loses_nothing_and_ends_tablet_servers_first(server, how):
    info = make(server.connection)
    with Writing(server.connection, info) as writing:
        writing.progress()
        before = found(server)
        if how == "call":
            server.stop()
        else:
            os.kill(server.pid, signal.SIGINT)
            wait_until_gone(before, PATIENCE_S)
        assert not any(cluster.is_alive(each) for each in before.servers)
        server.start()
        writing.progress()
    writing.check(server.connection)
    text = (server.folder / "server.log").read_text()
    stopped = text.index("event=stopped")
    for server_id in (0, 1):
        ended = text.index(f"event=tablet_ended server={server_id}")
        assert "code=0" in text[ended : text.index("\n", ended)]
        assert ended < stopped
        assert "event=stopped" in (server.folder / f"tablet-{server_id}.log").read_text()
    # They ended before anybody was told to start them again.
    assert text[:stopped].count("event=tablet_spawned") == 2


def test_a_signal_ends_one_tablet_server_gracefully_and_it_is_started_again(shared):
    make(shared.connection)
    pid = shared.tablet_pid(0)
    started = discovery.process_start_ticks(pid)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: discovery.process_start_ticks(pid) != started, PATIENCE_S)
    assert shared.tablet_pid(0) != pid
    assert statuses(shared.connection)[0].last_error == f"process {pid} ended with code 0"
    assert "event=stopped" in (shared.folder / "tablet-0.log").read_text()


def test_an_ephemeral_cluster_of_several_ends_with_the_last_who_is_attached(tmp_path):
    options = {"server.grace": "200ms", "server.tablet-servers": "2"}
    attachment = cluster.ensure_server(tmp_path / "lab", server_command(), options)
    before = cluster.read_discovery(tmp_path / "lab")
    assert before is not None
    assert len(before.servers) == 3
    # Killed, it is started again as it was.
    os.kill(before.servers[0].pid, signal.SIGKILL)
    wait_until(lambda: _is_new(tmp_path / "lab", before) and attachment.session_id is not None, PATIENCE_S)
    after = cluster.read_discovery(tmp_path / "lab")
    assert after is not None
    assert len(after.servers) == 3
    attachment.close()
    wait_until_gone(after, PATIENCE_S)
    wait_until_gone(before, PATIENCE_S)
    assert cluster.read_discovery(tmp_path / "lab") is None


def _is_new(folder: Path, before: Discovery) -> bool:
    now = cluster.running_server(folder)
    return now is not None and now.servers[0].pid != before.servers[0].pid
