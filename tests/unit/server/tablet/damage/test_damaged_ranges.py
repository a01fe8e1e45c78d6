"""What of a log is damage: found whoever reads and writes meanwhile, and known where whole segments are gone."""

import threading
import tracemalloc

import pytest

from fluss_lab.errors import UnavailableError, UnsupportedError
from fluss_lab.server.tablet.damage.damaged_ranges import damaged_ranges
from tests.unit.server.tablet.damage.damage_kit import (
    RECORDS,
    STEP,
    again,
    batches,
    filled,
    give_up,
    ranges,
    read,
    segments,
)
from tests.unit.server.tablet.tablet_kit import SCHEMA, batch


def test_what_is_being_written_is_no_damage(tmp_path):
    """Half of a batch, then it and one behind it: as a look may find what an append puts there meanwhile."""
    tablet = filled(tmp_path)
    path = segments(tablet)[-1]
    sound = path.read_bytes()
    at, last = batches(path)[-1]
    later = bytearray(sound[at:])
    later[:8] = (last.next_offset + STEP).to_bytes(8, "little")
    path.write_bytes(sound + sound[at : at + last.size // 2] + bytes(later))
    assert ranges(tablet) == []
    path.write_bytes(sound)
    tablet.produce({0: batch(RECORDS, STEP, writer_id=7, sequence=RECORDS // STEP)})
    assert read(tablet, 0) == ([*range(RECORDS + STEP)], None)


def test_a_log_that_is_written_and_expires_while_it_is_looked_at_is_sound(tmp_path):
    tablet = filled(tmp_path, table__log__ttl="1s")
    done, looks = threading.Event(), []

    def use():
        number = RECORDS // STEP
        while not done.is_set():
            tablet.produce({0: batch(number * STEP, STEP, writer_id=7, sequence=number)})
            tablet.clock.advance(50)
            tablet.service.apply_retention()
            number += 1

    thread = threading.Thread(target=use)
    thread.start()
    try:
        while len(looks) < 100:
            try:
                looks.append(ranges(tablet))
            except UnavailableError:
                looks.append([])  # it went too fast, and nothing was said of it
    finally:
        done.set()
        thread.join()
    assert looks == [[]] * 100
    assert tablet.describe()[0].log_end_offset > RECORDS


def test_segments_that_are_gone_from_the_beginning(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    first, second = segments(tablet)[:2]
    first.unlink()
    tablet = again(tablet)
    assert ranges(tablet) == [(0, int(second.stem))]
    assert read(tablet, int(second.stem))[1] is None
    assert give_up(tablet, 0, int(second.stem)) == int(second.stem)
    assert not tablet.produce({0: batch(RECORDS, 1)})[0].HasField("error_code")


def test_a_newer_format_is_no_damage(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    path = segments(tablet)[-1]
    at, header = batches(path)[-1]
    data = bytearray(path.read_bytes())
    data[at + 12] = 9
    path.write_bytes(bytes(data))
    tablet = again(tablet)
    path.with_name("recovery-point").unlink()
    tablet = again(tablet)
    with pytest.raises(UnsupportedError):
        ranges(tablet)
    with pytest.raises(UnsupportedError):
        give_up(tablet, header.base_offset, header.next_offset, discard=True)


@pytest.mark.slow
def test_a_look_at_many_batches_keeps_none_of_them(tmp_path):
    """Two looks at logs of which one has ten times as many batches as the other need the same memory."""
    one = batch(0, 1)
    peaks = []
    for count in (6_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        damaged = bytearray(one)
        damaged[-1] ^= 1
        places = (count // 2, count - 100)
        data = [(damaged if at in places else one)[8:] for at in range(count)]
        (folder / f"{0:020d}.log").write_bytes(
            b"".join(at.to_bytes(8, "little") + rest for at, rest in enumerate(data))
        )
        del data
        tracemalloc.start()
        found = [(each.start, each.stop) for each in damaged_ranges(folder, {1: SCHEMA}, count)]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == [(at, at + 1) for at in places]
    # What is read at once is 4 MB; the search behind bad places has arrays of some more.
    assert peaks[1] < peaks[0] + (8 << 20), peaks
