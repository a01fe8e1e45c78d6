"""A client with the token that takes nothing of its answers costs a server no more memory than it may; then that is given back."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.rpc_methods import TABLET_SERVER, methods_of
from fluss_lab.testing import ServerProcess, wait_until
from tests.unit.rpc.raw_peers import RawPeer

MB = 1 << 20
PATH = TablePath("db", "log")
CALLS = 60
#: Of unread answers; beside it up to four answers of 31 MB are read from the log at the same moment.
UNREAD_MB = 128
MADE_MB = 4 * 32 * 2
PATIENCE_S = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is told by /proc")


def resident_mb(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MB


def test_unread_answers_do_not_fill_the_memory_and_others_go_on(tmp_path):
    with ServerProcess(tmp_path / "lab", {"server.unread-size-max": f"{UNREAD_MB}mb"}) as server:
        admin = server.connection.admin()
        admin.create_database("db")
        table = admin.create_table(PATH, make_descriptor({"text": "string"}, buckets=1))
        rows = pa.table({"text": ["x" * 4000] * 1500}, schema=table.descriptor.schema.arrow_schema)
        with server.connection.append_writer(PATH) as writer:
            for _ in range(6):
                writer.append(rows)
        asked = pb.FetchLogRequest(follower_server_id=-1, max_bytes=2**31 - 1, min_bytes=1, max_wait_ms=0)
        bucket = asked.tables_req.add(table_id=table.table_id, projection_pushdown_enabled=False).buckets_req.add()
        bucket.bucket_id, bucket.fetch_offset, bucket.max_fetch_bytes = 0, 0, 2**31 - 1
        before_mb, peak_mb, slowest_s = resident_mb(server.pid), 0, 0.0
        with RawPeer(*str(server.address).rsplit(":", 1)).greet() as silent:
            for number in range(CALLS):
                silent.call(
                    methods_of(TABLET_SERVER)["fetch_log"].path, server.address.token, asked.SerializeToString()
                )
                if number % 20 == 0:
                    began = time.monotonic()
                    assert admin.databases() == ["db"]
                    slowest_s = max(slowest_s, time.monotonic() - began)
                peak_mb = max(peak_mb, resident_mb(server.pid))
            end = time.monotonic() + 1.0
            wait_until(lambda: time.monotonic() > end or resident_mb(server.pid) > 10_000, PATIENCE_S)
            peak_mb = max(peak_mb, resident_mb(server.pid))
            assert peak_mb - before_mb < UNREAD_MB + MADE_MB + 64, (before_mb, peak_mb)
            assert slowest_s < 5.0
        wait_until(lambda: resident_mb(server.pid) < before_mb + 96, PATIENCE_S)
