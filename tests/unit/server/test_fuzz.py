"""No request ends the server, or is answered by a shrug: thousands here, a hundred thousand in the campaign."""

import random

import pytest

from fluss_lab.rpc.malloc_settings import resident_bytes
from fluss_lab.testing import ServerProcess
from tests.campaigns.fuzz import Fuzzer
from tests.campaigns.fuzz_world import World

REQUESTS = 4_000
#: Twice what such a run grew by where it was measured; what leaks with each request leaks more.
GROWTH_BYTES_MAX = 100 << 20


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path / "lab") as running:
        yield running


def test_spoiled_requests_are_refused_and_change_nothing(server, seed):
    world = World(lambda: server.address)
    fuzzer = Fuzzer(world, server.address, random.Random(seed))
    pid = server.pid
    fuzzer.run(REQUESTS // 4)
    before = resident_bytes(pid)
    fuzzer.run(REQUESTS)
    grown = resident_bytes(pid) - before
    print(
        f"{sum(fuzzer.methods.values())} requests, {fuzzer.bodies} bodies, {dict(fuzzer.counts)}; {grown >> 20} MB more"
    )
    assert not fuzzer.complaints, "\n".join(fuzzer.complaints[:20])
    assert server.pid == pid
    world.check()
    assert "traceback=" not in (server.folder / "server.log").read_text()
    assert grown < GROWTH_BYTES_MAX
    fuzzer.close()
    world.close()


def test_a_request_larger_than_the_server_takes_is_refused_unread(server):
    world = World(lambda: server.address)
    fuzzer = Fuzzer(world, server.address, random.Random(1))
    before = resident_bytes(server.pid)
    fuzzer.oversize()
    assert not fuzzer.complaints, "\n".join(fuzzer.complaints[:20])
    assert set(fuzzer.counts) == {"RESOURCE_EXHAUSTED"}
    assert resident_bytes(server.pid) - before < GROWTH_BYTES_MAX
    world.check()
    fuzzer.close()
    world.close()
