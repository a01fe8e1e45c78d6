"""A hundred thousand spoiled requests to one server process: it lives, says what is wrong, and does not grow."""

import random
import threading

import pytest

from fluss_lab.rpc.malloc_settings import resident_bytes
from fluss_lab.testing import ServerProcess
from tests.campaigns.fuzz import Fuzzer
from tests.campaigns.fuzz_world import World

pytestmark = pytest.mark.campaign

REQUESTS = 120_000
ROUND = 2_000
THREADS = 3
#: After the first tenth, whatever follows.
GROWTH_BYTES_MAX = 100 << 20


def test_a_hundred_thousand_spoiled_requests(tmp_path, seed):
    with ServerProcess(tmp_path / "lab") as server:
        world = World(lambda: server.address)
        pid = server.pid
        fuzzers = [Fuzzer(world, server.address, random.Random(seed + number)) for number in range(THREADS)]
        sizes = []
        for number in range(REQUESTS // ROUND):
            threads = [threading.Thread(target=fuzzer.run, args=(ROUND // THREADS + 1,)) for fuzzer in fuzzers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            complaints = [each for fuzzer in fuzzers for each in fuzzer.complaints]
            assert not complaints, "\n".join(complaints[:20])
            world.tidy()
            sizes.append(resident_bytes(pid))
            if number % 10 == 0:
                world.check()
                print(f"{(number + 1) * ROUND} requests, {sizes[-1] >> 20} MB", flush=True)
        sent = sum(sum(fuzzer.methods.values()) for fuzzer in fuzzers)
        bodies = sum(fuzzer.bodies for fuzzer in fuzzers)
        counts = sum((fuzzer.counts for fuzzer in fuzzers[1:]), fuzzers[0].counts)
        print(f"{sent} requests, {bodies} Arrow bodies, {dict(counts)}")
        assert sent >= 100_000
        assert server.pid == pid
        world.check()
        assert "traceback=" not in (server.folder / "server.log").read_text()
        grown = sizes[-1] - sizes[len(sizes) // 10]
        print(f"memory: {[size >> 20 for size in sizes]} MB, {grown >> 20} MB more since the first tenth")
        assert grown < GROWTH_BYTES_MAX
        for fuzzer in fuzzers:
            fuzzer.close()
        world.close()
