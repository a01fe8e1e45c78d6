"""Giving up what cannot be read of a log: what must be held elsewhere before, and how the bucket is served."""

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    UnsupportedError,
    UntieredRecordsError,
    error_from_code,
)
from tests.unit.server.tablet.damage.damage_kit import (
    LAKE,
    RECORDS,
    STEP,
    again,
    filled,
    flip,
    give_up,
    keyed,
    look,
    ranges,
    read,
    segments,
)
from tests.unit.server.tablet.tablet_kit import batch


def test_a_bucket_that_is_found_damaged_is_served_up_to_there(tmp_path):
    tablet = filled(tmp_path)
    start, stop = flip(segments(tablet)[2], 1)
    assert tablet.describe()[0].log_end_offset == RECORDS  # nobody has looked
    assert ranges(tablet) == [(start, stop)]
    assert "--skip-corrupt" in tablet.describe()[0].error_message
    assert str(segments(tablet)[2]) in tablet.describe()[0].error_message
    ids, error = read(tablet, 0)
    assert ids == list(range(start))
    assert isinstance(error, CorruptDataError)
    for offset in (start, stop, RECORDS):
        assert isinstance(read(tablet, offset)[1], CorruptDataError)
    refused = tablet.produce({0: batch(RECORDS, 1)})[0]
    assert isinstance(error_from_code(refused.error_code, refused.error_message), CorruptDataError)


def test_a_sound_bucket_is_left_as_it_is(tmp_path):
    tablet = filled(tmp_path)
    assert ranges(tablet) == []
    with pytest.raises(ConflictError, match="found none"):
        give_up(tablet, 2, 4, discard=True)
    assert not tablet.produce({0: batch(RECORDS, 1)})[0].HasField("error_code")
    assert tablet.describe()[0].log_start_offset == 0


def test_sound_records_before_the_damage_are_given_up_only_by_a_word(tmp_path):
    tablet = filled(tmp_path)
    start, stop = flip(segments(tablet)[2], 1)
    before = {path: path.read_bytes() for path in segments(tablet)}
    with pytest.raises(UntieredRecordsError, match=rf"\[0, {start}\).*Nothing was changed"):
        give_up(tablet, start, stop)
    with pytest.raises(ConflictError):
        give_up(tablet, start, stop + STEP, discard=True)
    assert {path: path.read_bytes() for path in segments(tablet)} == before
    assert give_up(tablet, start, stop, discard=True) == stop
    assert read(tablet, stop) == (list(range(stop, RECORDS)), None)
    (noted,) = tablet.describe()[0].given_up
    assert (noted.start_offset, noted.stop_offset, noted.lost_start_offset) == (start, stop, 0)
    assert noted.time == tablet.clock.now_ms()
    assert give_up(tablet, start, stop) == stop  # asked again
    reopened = again(tablet)
    assert read(reopened, stop) == (list(range(stop, RECORDS)), None)
    assert list(reopened.describe()[0].given_up) == [noted]


@pytest.mark.parametrize("end", ["before", "start", "inside", "stop", "behind"])
def test_what_the_lake_holds_is_not_lost(tmp_path, end):
    tablet = filled(tmp_path, **LAKE)
    start, stop = flip(segments(tablet)[2], 1)
    lake = {"before": start - 1, "start": start, "inside": start + 1, "stop": stop, "behind": RECORDS}[end]
    tablet.tell_lake(0, lake)
    if end == "before":
        with pytest.raises(UntieredRecordsError, match=rf"\[{lake}, {start}\)"):
            give_up(tablet, start, stop)
        return
    assert look(tablet).lake_log_end_offset == lake
    assert give_up(tablet, start, stop) == stop
    assert tablet.describe()[0].given_up[0].lost_start_offset == min(lake, stop)


def test_a_lake_that_begins_later_or_is_switched_off_holds_nothing(tmp_path):
    for name, properties, begin in (("later", LAKE, STEP), ("off", {}, 0)):
        tablet = filled(tmp_path / name, **properties)
        start, stop = flip(segments(tablet)[2], 1)
        tablet.tell_lake(0, RECORDS, start=begin)
        with pytest.raises(UntieredRecordsError):
            give_up(tablet, start, stop)


def test_what_remote_storage_holds_is_not_lost(tmp_path):
    many = {"table__log__tiered__local_segments": "20"}
    tablet = filled(tmp_path, **many)
    tablet.service.copy_to_remote()
    start, stop = flip(segments(tablet)[1], 1)
    assert give_up(tablet, start, stop) == stop
    known = tablet.describe()[0]
    assert known.start_offset == 0
    assert known.log_start_offset == stop
    assert known.given_up[0].lost_start_offset == stop
    tablet.produce({0: batch(RECORDS, 20)})
    tablet.produce({0: batch(RECORDS + 20, 1)})
    tablet.service.copy_to_remote()
    assert tablet.describe()[0].start_offset == 0  # what was there before is still led on
    reopened = again(tablet, **many)
    assert reopened.describe()[0].start_offset == 0
    # Without its manifest the records before are missing, and that is an error.
    tablet.service._store.get(tablet.service._store.all()[0].id).remote.folder.joinpath("manifest").unlink()
    lost = again(tablet, **many)
    assert lost.describe()[0].HasField("start_error")


def test_what_remote_storage_holds_is_missed_after_a_cut_that_was_cut_off(tmp_path):
    many = {"table__log__tiered__local_segments": "20"}
    tablet = filled(tmp_path, **many)
    tablet.service.copy_to_remote()
    manifest = tablet.service._store.all()[0].remote.folder / "manifest"
    start, stop = flip(segments(tablet)[1], 1)
    failpoints.arm("tablet.cut.deleted", "error")
    try:
        with pytest.raises(FlussError):
            give_up(tablet, start, stop)
    finally:
        failpoints.disarm()
    manifest.rename(manifest.with_name("away"))
    reopened = again(tablet, **many)
    assert reopened.describe()[0].HasField("start_error")
    manifest.with_name("away").rename(manifest)
    assert again(tablet, **many).describe()[0].start_offset == 0


def test_a_part_that_remote_storage_holds_goes_first(tmp_path):
    tablet = filled(tmp_path, table__log__tiered__local_segments="20", **LAKE)
    names = [int(path.stem) for path in segments(tablet)]
    bucket = tablet.service._store.all()[0]
    for _ in range(3):
        bucket.remote.copy_next(bucket.log.segments.rolled, bucket.table.schemas, RECORDS, 0)
    for path in segments(tablet)[2:4]:
        path.unlink()
    tablet = again(tablet, table__log__tiered__local_segments="20", **LAKE)
    assert ranges(tablet) == [(names[2], names[4])]
    assert look(tablet).remote_log_end_offset == names[3]
    assert give_up(tablet, names[2], names[4]) == names[3]
    assert tablet.describe()[0].error_message
    assert ranges(tablet) == [(names[3], names[4])]
    with pytest.raises(UntieredRecordsError, match=rf"\[0, {names[3]}\)"):
        give_up(tablet, names[3], names[4])
    tablet.tell_lake(0, names[3])
    assert give_up(tablet, names[3], names[4]) == names[4]
    assert [each.lost_start_offset for each in tablet.describe()[0].given_up] == [names[3], names[3]]
    assert read(tablet, names[4]) == (list(range(names[4], RECORDS)), None)


@pytest.mark.parametrize("knower", ["checkpoint", "coordinator", "lake"])
def test_offsets_at_the_end_that_somebody_knows_are_not_given_again(tmp_path, knower):
    tablet = filled(tmp_path, **LAKE)
    if knower == "checkpoint":
        tablet.service.close()
    last = int(segments(tablet)[-1].stem)
    segments(tablet)[-1].unlink()
    (segments(tablet)[0].parent / "recovery-point").unlink() if knower != "checkpoint" else None
    tablet = tablet.reopen(clean=False)
    durable = {"checkpoint": last, "coordinator": RECORDS, "lake": last + 1}[knower]
    tablet.open(0, durable_offset=durable, **LAKE)
    tablet.tell_lake(0, RECORDS if knower == "lake" else last)
    (found,) = ranges(tablet)
    assert found == (last, RECORDS)
    assert give_up(tablet, *found) == RECORDS
    answer = tablet.produce({0: batch(RECORDS, 1)})[0]
    assert answer.base_offset == RECORDS
    assert read(tablet, RECORDS) == ([RECORDS], None)


def test_rows_that_need_what_is_damaged_are_not_given_up(tmp_path):
    tablet = keyed(tmp_path)
    start, stop = flip(segments(tablet)[2], 1)
    (segments(tablet)[0].parent / "recovery-point").unlink(missing_ok=True)
    tablet = tablet.reopen(clean=False)
    before = {path: path.read_bytes() for path in segments(tablet)}
    assert look(tablet).rows_offset == 0
    with pytest.raises(UnsupportedError, match="the rows are made from the changes since offset 0"):
        give_up(tablet, start, stop, discard=True)
    assert {path: path.read_bytes() for path in segments(tablet)} == before
