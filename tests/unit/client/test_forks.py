"""A process that was forked off while a connection is open: what has threads is refused there, and what has none works."""

import subprocess
import sys

import pytest

from fluss_lab.model import TablePath
from fluss_lab.testing.mock_clock import wait_until

#: A child in which something waits for threads that are not there.
HUNG_S = 20
#: gRPC's own handlers end a few forked children by SIGABRT, before they do anything: then another one is forked.
SCRIPT = """
import os, signal, sys, time
from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import InvalidRequestError
from fluss_lab.model import OffsetSpec, TablePath
address = ServerAddress.from_json(sys.stdin.readline())
log, keyed = TablePath({0!r}, "log"), TablePath({0!r}, "keyed")
connection = Connection(lambda: address)
writer = connection.append_writer(log)
first = writer.append([{{"id": 1}}])
first.result()
scanner = connection.log_scanner(log)
scanner.subscribe_all(OffsetSpec.earliest())
while not scanner.poll(1.0):
    pass
lookuper = connection.lookuper(keyed)
keys = [{{"id": number}} for number in range(8)]
assert lookuper.lookup(keys).column("name").to_pylist() == ["x"] * 8  # of several buckets, by threads
gathered = writer.append({{"id": 2}})

def refused(call, text):
    try:
        print(f"not refused: {{call()!r}}", flush=True)
    except InvalidRequestError as error:
        assert text in str(error), error
        return
    os._exit(3)

def child():
    {1}

for _ in range(20):
    pid = os.fork()
    if not pid:
        try:
            child()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(4)
        os._exit(0)
    deadline_s = time.monotonic() + {2}
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(ended[1])
    if code != -signal.SIGABRT:
        break
writer.append([{{"id": 3}}]).result()
gathered.result()
writer.close()
scanner.close()
connection.close()
os._exit(code & 0xFF)
"""


@pytest.mark.parametrize(
    "body",
    [
        'refused(lambda: writer.append([{"id": 9}]), "forked off")',
        'refused(lambda: writer.append({"id": 9}), "forked off")',
        "writer.flush(); writer.close(); assert not writer.progress().rows",
        'refused(writer.settle, "forked off")',
        'refused(gathered.result, "forked off")',
        "assert first.result().rows == 1",
        'refused(lambda: scanner.poll(0.1), "forked off")',
        "scanner.close(); connection.close()",
        'assert lookuper.lookup(keys).column("name").to_pylist() == ["x"] * 8',
    ],
)
def test_a_forked_child_does_not_wait_for_threads_of_its_parent_nor_lose_rows(shared_cluster, make_table, body):
    """Rows that it appended were lost without a word, its polls were empty, and its waits endless."""
    info = make_table({"id": "bigint"}, "log")
    keyed = make_table({"id": "bigint not null", "name": "string"}, "keyed", primary_key=["id"], buckets=4)
    with shared_cluster.connection.upsert_writer(keyed.path) as writer:
        writer.upsert([{"id": number, "name": "x"} for number in range(8)])
    script = SCRIPT.format(info.path.database, body, HUNG_S)
    # From Python 3.12 on a fork beside threads is warned of, whatever they do.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", script]
    done = subprocess.run(
        command, input=shared_cluster.address.to_json(), text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with shared_cluster.connection.log_scanner(TablePath(info.path.database, "log")) as scanner:
        scanner.subscribe_from_beginning(0)
        found = []
        wait_until(
            lambda: (
                found.extend(i for batch in scanner.poll(0.1) for i in batch.rows.column("id").to_pylist())
                or len(found) >= 3
            )
        )
        assert found == [1, 2, 3]
