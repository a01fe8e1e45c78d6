"""Damage of every kind, everywhere in a small remote segment: what is read is a prefix of what was written, or nothing."""

from pathlib import Path

import pytest

from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.client.log.remote_reader import GoneSegments, SegmentGoneError, remote_records
from fluss_lab.errors import CorruptDataError, StorageError
from fluss_lab.server.tablet.remote import segment_copy
from tests.unit.server.tablet.remote.remote_kit import (
    INFO,
    at_time,
    fill,
    held_from,
    make_tablet,
    place_of,
    remote_folder,
    remote_part,
)
from tests.unit.server.tablet.tablet_kit import Record


class Damaged:
    """One remote segment of a few blocks, and its files by kind."""

    def __init__(self, folder: Path) -> None:
        self.tablet = make_tablet(folder, segment_bytes=1900, table__log__tiered__local_segments="1")
        for _ in range(3):
            # One that is packed, and one that is not.
            fill(self.tablet, 1, rows=40)
            fill(self.tablet, 1, rows=5)
        self.tablet.service.copy_to_remote()
        self.place = place_of(self.tablet, 0)
        first = self.place.remote_log_segments[0]
        self.stop = first.remote_log_end_offset
        self.folder = remote_folder(self.tablet) / first.remote_log_segment_id
        self.refusal = ""
        self.written = self.read()
        assert len(self.written) == self.stop

    def file(self, suffix: str) -> Path:
        (path,) = self.folder.glob(f"*{suffix}")
        return path

    def read(self) -> list[Record]:
        """What a client reads before it is refused, if it is."""
        found: list[Record] = []
        reading = remote_part(self.place, 0, self.stop)
        try:
            for record in reading:
                found.append(record)  # noqa: PERF402 - what came before the error counts
        except (CorruptDataError, StorageError) as error:
            self.refusal = str(error)
        return found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_copy, "BLOCK_BYTES", 1)
        return Damaged(tmp_path_factory.mktemp("torn"))


@pytest.mark.parametrize("suffix", [".log", ".blocks"])
def test_a_file_cut_anywhere_gives_a_prefix(damaged, suffix):
    path = damaged.file(suffix)
    data = path.read_bytes()
    lengths = set()
    try:
        for size in range(len(data)):
            path.write_bytes(data[:size])
            found = damaged.read()
            assert found == damaged.written[: len(found)]
            assert len(found) < len(damaged.written)
            assert str(path) in damaged.refusal
            lengths.add(len(found))
    finally:
        path.write_bytes(data)
    if suffix == ".log":
        assert len(lengths) > 1  # whole blocks before the damage are given
    assert damaged.read() == damaged.written


@pytest.mark.parametrize("suffix", [".log", ".blocks"])
def test_a_file_with_any_byte_flipped_gives_a_prefix(damaged, suffix):
    path = damaged.file(suffix)
    data = path.read_bytes()
    try:
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            found = damaged.read()
            assert found == damaged.written[: len(found)]
            assert len(found) < len(damaged.written)
            assert str(path) in damaged.refusal
    finally:
        path.write_bytes(data)


def test_the_server_answers_times_rightly_or_not_at_all(damaged):
    times = {record.timestamp_ms: record.offset for record in reversed(damaged.written)}
    for suffix in (".log", ".blocks"):
        path = damaged.file(suffix)
        data = path.read_bytes()
        refused = 0
        try:
            for at in range(0, len(data), 7):
                path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
                for moment, offset in times.items():
                    try:
                        found = at_time(damaged.tablet, moment)
                    except CorruptDataError:
                        refused += 1
                        continue
                    assert found == (offset, moment)
        finally:
            path.write_bytes(data)
        assert refused


def test_a_file_of_another_segment_is_not_taken_for_it(damaged):
    others = [each.remote_log_segment_id for each in damaged.place.remote_log_segments[1:]]
    assert others
    base = damaged.file(".log")
    other = next((remote_folder(damaged.tablet) / others[0]).glob("*.log"))
    before = {suffix: damaged.file(suffix).read_bytes() for suffix in (".log", ".blocks")}
    try:
        for suffix in before:
            damaged.file(suffix).write_bytes(other.with_suffix(suffix).read_bytes())
        assert damaged.read() == []
    finally:
        for suffix, data in before.items():
            base.with_suffix(suffix).write_bytes(data)


def test_a_segment_that_is_lost_is_reported_by_name_at_the_second_try(damaged):
    path = damaged.file(".log")
    aside = path.with_name("aside")
    path.rename(aside)
    try:
        with pytest.raises(SegmentGoneError) as caught:
            list(remote_part(damaged.place, 0))
        gone = GoneSegments()
        gone.note(caught.value, "here")  # it may have expired: ask again
        with pytest.raises(CorruptDataError, match=f"{path.name} of the remote log is missing"):
            gone.note(caught.value, "here")
        with pytest.raises(CorruptDataError, match=f"a file of the remote log is missing: {path}"):
            held_from(damaged.tablet, 0)
    finally:
        aside.rename(path)
    assert held_from(damaged.tablet, 0, damaged.stop) == damaged.written


def test_a_folder_that_cannot_be_seen_from_here_is_reported_as_such(damaged):
    place = type(damaged.place)()
    place.CopyFrom(damaged.place)
    place.remote_log_tablet_dir = "/nowhere/at/all"
    gone = GoneSegments()
    for attempt in range(2):
        with pytest.raises(SegmentGoneError) as caught:
            list(remote_part(place, 0))
        if attempt:
            with pytest.raises(StorageError, match="cannot be seen from this process"):
                gone.note(caught.value, "here")
        else:
            gone.note(caught.value, "here")


def test_a_file_that_cannot_be_read_is_a_storage_error(damaged):
    path = damaged.file(".log")
    aside = path.with_name("aside")
    path.rename(aside)
    path.mkdir()
    try:
        with pytest.raises(StorageError, match="the remote log cannot be read"):
            list(remote_part(damaged.place, 0))
    finally:
        path.rmdir()
        aside.rename(path)


def test_what_a_server_may_not_answer_is_refused(damaged):
    place = type(damaged.place)()
    place.CopyFrom(damaged.place)
    place.remote_log_segments[0].remote_log_segment_id = "../../../etc"
    with pytest.raises(CorruptDataError, match="expected the id of a remote segment"):
        list(remote_part(place, 0))
    place.CopyFrom(damaged.place)
    del place.remote_log_segments[0]
    with pytest.raises(CorruptDataError, match="expected a remote segment that holds offset 0"):
        list(remote_part(place, 0))
    place.CopyFrom(damaged.place)
    place.remote_log_segments[0].segment_size_in_bytes += 1
    with pytest.raises(CorruptDataError, match="expected the index of"):
        list(remote_part(place, 0))


def test_every_range_is_clipped_at_both_ends(damaged):
    for start in range(0, damaged.stop, 5):
        for stop in (start + 1, min(start + 24, damaged.stop), damaged.stop):
            runs = list(remote_records(damaged.place, "test", start, stop, Projection(INFO, None)))
            found = [offset for run in runs for offset in run.offsets.to_pylist()]
            assert found == list(range(start, stop))
