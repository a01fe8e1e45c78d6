"""What a client's process does with its memory: keeps it for the next call, and gives it back once it rests."""

import json
import subprocess
import sys

import pytest

from fluss_lab.rpc.malloc_settings import tune_allocator

pytestmark = pytest.mark.skipif(not tune_allocator(), reason="only glibc can be tuned")

#: Reads buffers as an answer's are, frees them, and prints what Arrow's pool is and what the process has at each step.
READER = """
import json, time
import pyarrow as pa
from fluss_lab.rpc.malloc_settings import keep_client_memory, own_bytes, watch_memory

keep_client_memory()
watch_memory(look_ms=50)
buffers = [pa.py_buffer(bytes(1 << 20)) for _ in range(10)] + [pa.allocate_buffer(4 << 20) for _ in range(50)]
for each in buffers[10:]:
    memoryview(each).cast("B")[:] = bytes(4 << 20)
full = own_bytes()
del buffers, each
deadline = time.monotonic() + 30
while own_bytes() > full - (150 << 20) and time.monotonic() < deadline:
    time.sleep(0.05)
print(json.dumps({"pool": pa.default_memory_pool().backend_name, "full": full, "left": own_bytes()}))
"""


def reader(monkeypatch, pool=None):
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if pool is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", pool)
    done = subprocess.run([sys.executable, "-c", READER], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_arrow_allocates_where_freed_memory_is_kept_and_it_is_returned_once_the_process_rests(monkeypatch):
    found = reader(monkeypatch)
    assert found["pool"] == "system"
    assert found["left"] < found["full"] - (150 << 20), found


def test_a_pool_that_the_user_chose_stays(monkeypatch):
    assert reader(monkeypatch, "jemalloc")["pool"] == "jemalloc"
