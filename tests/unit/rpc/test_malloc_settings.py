"""When memory is given back: soon after load, rarely within it, and not again and again."""

import mmap

import pytest

from fluss_lab.rpc.malloc_settings import MemoryRelease, own_bytes, resident_bytes

MB = 1 << 20


class Process:
    """What `MemoryRelease` sees of a process, to be set."""

    def __init__(self):
        self.resident, self.cpu_s, self.now_s, self.released = 100 * MB, 0.0, 0.0, 0
        self.looks = MemoryRelease(
            lambda: self.resident, lambda: self.cpu_s, lambda: self.now_s, lambda: setattr(self, "resident", self.used)
        )
        self.used = 100 * MB

    def look(self, *, after_s=2.0, busy=0.0, resident=None):
        self.now_s += after_s
        self.cpu_s += busy * after_s
        self.resident = self.resident if resident is None else resident
        return self.looks.look()


@pytest.fixture
def process():
    return Process()


def test_what_was_taken_under_load_is_given_back_when_it_is_over(process):
    assert not process.look(busy=0.9, resident=400 * MB)
    assert process.look()
    assert process.resident == 100 * MB
    process.used, process.resident = 80 * MB, 110 * MB
    assert process.look(), "more was freed meanwhile"
    process.used = 70 * MB
    assert process.look()
    assert not process.look()


def test_growth_that_stays_is_not_tried_again(process):
    process.used = 900 * MB
    assert process.look(resident=900 * MB)
    assert not process.look()
    assert not process.look(after_s=1000)


def test_what_was_freed_without_growth_goes_after_a_while(process):
    assert not process.look(busy=0.9)
    assert not process.look()
    assert process.look(after_s=40)


def test_under_lasting_load_only_much_is_given_back_and_rarely(process):
    assert not process.look(busy=0.9, after_s=40, resident=600 * MB)
    assert process.look(busy=0.9, resident=700 * MB)
    assert not process.look(busy=0.9, resident=1000 * MB)


def test_the_system_tells_how_much_memory_there_is():
    assert resident_bytes() > 10 * MB


def test_what_is_mapped_of_a_file_is_not_the_processs_own(tmp_path):
    path = tmp_path / "mapped"
    path.write_bytes(bytes(64 * MB))
    before, own = resident_bytes(), own_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert not any(mapped[at] for at in range(0, 64 * MB, 4096))
        assert resident_bytes() - before > 32 * MB
        assert own_bytes() - own < 16 * MB
