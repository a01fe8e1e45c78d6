"""What leaves the server's disk and remote storage, and what must not."""

import random

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import OffsetOutOfRangeError
from tests.unit.server.tablet.remote.remote_kit import (
    at_time,
    earliest,
    fill,
    held_from,
    local_bases,
    make_tablet,
    remote_folder,
    segment_folders,
)
from tests.unit.server.tablet.tablet_kit import OPTIONS, append, open_log

TTL_MS = 60_000


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_as_many_segments_stay_here_as_the_table_says_the_active_one_counted(tmp_path, kept):
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments=str(kept))
    end = fill(tablet, 14)
    bases = local_bases(tablet)
    tablet.service.copy_to_remote()
    assert local_bases(tablet) == bases[-kept:]
    described = tablet.describe()[0]
    assert (described.log_start_offset, described.log_end_offset) == (bases[-kept], end)
    assert (described.remote_log_start_offset, described.remote_log_end_offset) == (0, bases[-1])
    assert described.remote_size_in_bytes == sum(path.stat().st_size for path in remote_folder(tablet).glob("*/*.log"))
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_a_property_that_changes_counts_from_then_on(tmp_path):
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="100")
    fill(tablet, 14)
    bases = local_bases(tablet)
    tablet.service.copy_to_remote()
    assert local_bases(tablet) == bases
    tablet.open(0, table__log__tiered__local_segments="1")
    tablet.service.copy_to_remote()
    assert local_bases(tablet) == bases[-1:]


def test_nothing_leaves_the_disk_before_the_manifest_that_names_it_is_durable(tmp_path):
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1")
    fill(tablet, 14)
    bases = local_bases(tablet)
    for point in ("remote.copy.after_data", "remote.manifest.before", "remote.manifest.after"):
        failpoints.arm(point, "eio")
        tablet.service.copy_to_remote()
        failpoints.disarm()
        assert local_bases(tablet) == bases
    path = remote_folder(tablet) / "manifest"
    path.unlink()
    path.mkdir()  # no manifest can be put over a folder
    for _ in range(len(bases) + 2):
        tablet.service.copy_to_remote()
        assert local_bases(tablet) == bases


def test_without_the_note_that_they_are_elsewhere_segments_stay(tmp_path):
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1")
    fill(tablet, 14)
    bases = local_bases(tablet)
    mark = tablet.folder / "data/t7/b0/remote-log"
    mark.mkdir()  # where the note would be
    tablet.service.copy_to_remote()
    assert local_bases(tablet) == bases
    mark.rmdir()
    tablet.service.copy_to_remote()
    assert local_bases(tablet) == bases[-1:]


def test_ttl_ends_both_here_and_there(tmp_path):
    tablet = make_tablet(tmp_path, table__log__ttl="1min", table__log__tiered__local_segments="3")
    end = fill(tablet, 30)
    tablet.service.copy_to_remote()
    written = held_from(tablet, 0)
    starts = []
    for _ in range(70):
        tablet.service.apply_retention()
        start = earliest(tablet)
        starts.append(start)
        held = held_from(tablet, start)
        assert held == written[start:]
        now = tablet.clock.now_ms()
        if held:
            if start:
                with pytest.raises(OffsetOutOfRangeError):
                    held_from(tablet, start - 1)
            # A segment goes as a whole, when its last record is past the ttl.
            assert any(record.timestamp_ms >= now - TTL_MS for record in held[: 2 * 40 + 40])
        tablet.clock.advance(1500)
    assert starts[0] == 0
    assert starts[-1] == end
    assert starts == sorted(starts)
    assert segment_folders(tablet) == []
    described = tablet.describe()[0]
    assert (described.log_start_offset, described.log_end_offset) == (end, end)
    assert not described.HasField("remote_log_start_offset")
    assert at_time(tablet, 0) == (end, None)
    # And it goes on.
    fill(tablet, 14)
    tablet.service.copy_to_remote()
    assert earliest(tablet) == end
    assert held_from(tablet, end)[0].id == end


def test_a_lake_enabled_table_loses_nothing_that_the_lake_does_not_hold(tmp_path):
    tablet = make_tablet(
        tmp_path, table__log__ttl="1min", table__datalake__enabled="true", table__log__tiered__local_segments="1"
    )
    end = fill(tablet, 20)
    tablet.service.copy_to_remote()
    written = held_from(tablet, 0)
    tablet.clock.advance(10 * TTL_MS)
    tablet.service.apply_retention()
    assert held_from(tablet, earliest(tablet)) == written  # the lake holds nothing
    last = 0
    for lake_end in range(0, end + 1, 25):
        tablet.tell_lake(0, lake_end)
        tablet.service.apply_retention()
        start = earliest(tablet)
        assert last <= start <= lake_end
        assert held_from(tablet, start) == written[start:]
        last = start
    assert last > end - 300


def test_a_lake_that_begins_behind_remote_storage_lets_nothing_go(tmp_path):
    tablet = make_tablet(tmp_path, table__log__ttl="1min", table__datalake__enabled="true")
    end = fill(tablet, 20)
    tablet.service.copy_to_remote()
    start_here = tablet.describe()[0].log_start_offset
    assert start_here
    tablet.clock.advance(10 * TTL_MS)
    tablet.tell_lake(0, end, start=start_here)  # the records in front of it would be nowhere
    tablet.service.apply_retention()
    assert earliest(tablet) == 0
    tablet.tell_lake(0, end, start=0)
    tablet.service.apply_retention()
    assert earliest(tablet) > 0


def test_local_segments_go_whether_or_not_the_lake_holds_them(tmp_path):
    tablet = make_tablet(tmp_path, table__datalake__enabled="true", table__log__tiered__local_segments="1")
    end = fill(tablet, 14)
    tablet.service.copy_to_remote()
    assert len(local_bases(tablet)) == 1
    assert len(held_from(tablet, 0)) == end


def test_retention_that_remote_storage_refuses_deletes_nothing_there(tmp_path):
    tablet = make_tablet(tmp_path, table__log__ttl="1min")
    fill(tablet, 14)
    tablet.service.copy_to_remote()
    folders = segment_folders(tablet)
    path = remote_folder(tablet) / "manifest"
    data = path.read_bytes()
    path.unlink()
    path.mkdir()  # a manifest cannot be put over a folder
    tablet.clock.advance(10 * TTL_MS)
    tablet.service.apply_retention()
    assert segment_folders(tablet) == folders
    path.rmdir()
    path.write_bytes(data)
    tablet.service.apply_retention()
    assert segment_folders(tablet) == []


def test_a_hole_between_remote_storage_and_the_log_is_no_beginning(tmp_path):
    tablet = make_tablet(tmp_path, table__log__ttl="1min")
    fill(tablet, 8)
    tablet.service.copy_to_remote()
    copied = tablet.describe()[0].remote_log_end_offset
    assert copied
    fill(tablet, 20)
    # Here everything expires; there it cannot be written down.
    path = remote_folder(tablet) / "manifest"
    data = path.read_bytes()
    path.unlink()
    path.mkdir()
    tablet.clock.advance(10 * TTL_MS)
    tablet.service.apply_retention()
    end = fill(tablet, 8)
    path.rmdir()
    path.write_bytes(data)
    start = tablet.describe()[0].log_start_offset
    assert start > copied
    assert earliest(tablet) == start
    tablet.service.copy_to_remote()  # begins anew behind the hole
    described = tablet.describe()[0]
    assert (described.remote_log_start_offset, earliest(tablet)) == (start, start)
    assert [record.id for record in held_from(tablet, start)] == list(range(start, end))
    assert len(segment_folders(tablet)) == len(set(segment_folders(tablet)))
    with pytest.raises(OffsetOutOfRangeError):
        held_from(tablet, 0)


def test_dropping_what_was_copied_keeps_the_newest_and_the_bound(tmp_path):
    log = open_log(tmp_path, options=OPTIONS.__class__(1024, 256, False, 10**9))
    while len(log.segments) < 6:
        append(log, log.end, 1)
    ends = [each.end_offset for each in log.segments.rolled]
    assert log.drop_copied(ends[0] - 1, 1) == 0
    assert log.drop_copied(ends[0], 1) == 1
    assert (log.drop_copied(ends[-1], 4), log.start) == (1, ends[1])
    assert (log.drop_copied(ends[-1], 1), log.start) == (3, ends[-1])
    assert log.drop_copied(log.end, 1) == 0


def test_writers_are_known_though_the_segments_that_named_them_are_only_remote(tmp_path):
    from tests.unit.server.tablet.tablet_kit import batch

    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1")
    for sequence in range(40):
        tablet.produce({0: batch(sequence * 20, 20, writer_id=9, sequence=sequence)})
    fill(tablet, 10)
    tablet.service.copy_to_remote()
    assert tablet.describe()[0].log_start_offset > 40 * 20
    tablet = tablet.reopen(clean=False)
    tablet.open(0)
    assert tablet.produce({0: batch(39 * 20, 20, writer_id=9, sequence=39)})[0].base_offset == 39 * 20
    assert (
        tablet.produce({0: batch(0, 20, writer_id=9, sequence=40)})[0].base_offset
        == tablet.describe()[0].log_end_offset - 20
    )


@pytest.mark.slow
def test_readers_beside_copies_and_retention_get_every_record_once(tmp_path, seed):
    import threading

    chance = random.Random(seed)
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1", table__log__ttl="1min")
    fill(tablet, 4)
    done, problems, read = threading.Event(), [], []

    def reader():
        try:
            while not done.is_set():
                start = earliest(tablet)
                try:
                    found = held_from(tablet, start)
                except OffsetOutOfRangeError:
                    continue  # what was there when asked has expired
                assert [record.id for record in found] == [record.offset for record in found]
                assert [record.offset for record in found] == list(range(start, start + len(found)))
                read.append(len(found))
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=reader) for _ in range(2)]
    for thread in readers:
        thread.start()
    for _ in range(120):
        fill(tablet, 1, rows=chance.randrange(10, 60), every_ms=chance.randrange(2000))
        if chance.random() < 0.4:
            tablet.service.copy_to_remote()
        if chance.random() < 0.3:
            tablet.service.apply_retention()
    done.set()
    for thread in readers:
        thread.join(60)
    assert not problems, problems
    assert read
