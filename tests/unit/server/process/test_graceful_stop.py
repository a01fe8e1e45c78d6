"""``fluss-lab down`` under load: it ends in its time, and nothing is lost, doubled or out of order."""

import threading
import time

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.server.process.server_node import STOP_GRACE_S
from fluss_lab.testing import ServerProcess
from tests.unit.cli.test_commands import run

PATIENCE_S = 120.0
WRITERS = 4
TYPES = {"writer": "int not null", "number": "bigint not null"}
EVENTS = TablePath("db", "events")
#: What a stop may take beyond the calls under way: a process of the command line, a flush, a slow machine.
MARGIN_S = 25.0


class Load:
    """Four writers that never pause, and a scanner that follows them."""

    def __init__(self, server):
        self.connection = server.connection
        self.written = [0] * WRITERS
        self.seen = []
        self.failures = []
        self._stopping = threading.Event()
        self._done = threading.Event()
        self.progress = threading.Semaphore(0)
        self._writers = [threading.Thread(target=self._guarded, args=(self._write, n)) for n in range(WRITERS)]
        self._reader = threading.Thread(target=self._guarded, args=(self._read,))
        for thread in (*self._writers, self._reader):
            thread.start()

    def _guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:
            self.failures.append(error)
            raise

    def _write(self, number):
        with self.connection.append_writer(EVENTS) as writer:
            while not self._stopping.is_set():
                first = self.written[number]
                rows = [{"writer": number, "number": first + n} for n in range(20)]
                writer.append(rows).result()
                self.written[number] = first + 20
                self.progress.release()

    def _read(self):
        with self.connection.log_scanner(EVENTS) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            while not (self._done.is_set() and len(self.seen) >= sum(self.written)):
                for batch in scanner.poll(0.5):
                    columns = batch.records.rows.to_pydict()
                    self.seen += zip(columns["writer"], columns["number"], strict=True)

    def wait_for_progress(self, times):
        for _ in range(times):
            assert self.progress.acquire(timeout=PATIENCE_S)
            assert not self.failures

    def finish(self):
        self._stopping.set()
        for thread in self._writers:
            thread.join(PATIENCE_S)
        self._done.set()
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive()
        assert not self.failures


def test_down_under_load_ends_in_time_and_loses_nothing(tmp_path):
    patient = {"client.request-timeout": f"{PATIENCE_S:.0f}s"}
    with ServerProcess(tmp_path / "lab", client=patient) as server:
        admin = server.connection.admin()
        admin.create_database("db")
        admin.create_table(EVENTS, make_descriptor(TYPES))
        load = Load(server)
        for _ in range(2):
            load.wait_for_progress(40)
            started = time.monotonic()
            down = run("down", server.folder)
            took = time.monotonic() - started
            assert (down.returncode, down.stdout) == (0, f"{server.folder}: stopped\n"), down.stderr
            assert took < STOP_GRACE_S + MARGIN_S
            assert "not closed cleanly" not in (server.folder / "server.log").read_text()
            while load.progress.acquire(blocking=False):
                pass
            server.start()
        load.wait_for_progress(40)
        load.finish()
        expected = [(writer, number) for writer in range(WRITERS) for number in range(load.written[writer])]
        assert sorted(load.seen) == expected
        for writer in range(WRITERS):
            numbers = [number for found, number in load.seen if found == writer]
            assert numbers == sorted(numbers)
