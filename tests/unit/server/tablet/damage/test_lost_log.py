"""A bucket of which no segment is left: looked at without a change, begun anew only by a word, and no offset given twice."""

import shutil

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    StorageError,
    UnsupportedError,
    UntieredRecordsError,
    error_from_code,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.server.tablet.buckets import bucket_store
from fluss_lab.server.tablet.damage import log_cut
from tests.unit.server.tablet.damage.damage_kit import (
    LAKE,
    RECORDS,
    STEP,
    filled,
    flip,
    give_up,
    look,
    newer,
    ranges,
    read,
    segments,
)
from tests.unit.server.tablet.tablet_kit import batch

MANY = {"table__log__tiered__local_segments": "20"}


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "remote" not in path.parts}


def gone(tablet, *, durable_offset=0, folder=True, **properties):
    """The same again, without the bucket's segments, or its folder."""
    tablet.service.close()
    paths = segments(tablet)
    if folder:
        shutil.rmtree(paths[0].parent)
    else:
        for path in paths:
            path.unlink()
    again = tablet.reopen(clean=False)
    (answer,) = again.open(0, durable_offset=durable_offset, **properties)
    assert isinstance(error_from_code(answer.error_code, answer.error_message), CorruptDataError)
    return again


@pytest.mark.parametrize("knower", ["coordinator", "lake", "remote", "expired", "checkpoint"])
def test_offsets_that_somebody_knows_are_not_given_again(tmp_path, knower):
    tablet = filled(tmp_path, **MANY, **LAKE)
    start = last = 0
    if knower in {"remote", "expired"}:
        tablet.service.copy_to_remote()
        if knower == "expired":
            tablet.service._store.all()[0].remote.expire(tablet.clock.now_ms() + 1, None)
        last = int(segments(tablet)[-1].stem)
    end = last or RECORDS
    tablet = gone(
        tablet, durable_offset=end if knower == "coordinator" else 0, folder=knower != "checkpoint", **MANY, **LAKE
    )
    tablet.tell_lake(0, end if knower == "lake" else STEP, max_timestamp_ms=tablet.clock.now_ms() + 5_000)
    assert ranges(tablet) == [(start, end)]
    assert look(tablet).is_gone
    before = files(tmp_path)
    assert ranges(tablet) == [(start, end)]
    assert files(tmp_path) == before
    if knower in {"lake", "remote"}:
        assert give_up(tablet, start, end) == end
    else:
        with pytest.raises(UntieredRecordsError, match=rf"offsets \[{STEP}, {end}\) are held nowhere else"):
            give_up(tablet, start, end)
        with pytest.raises(ConflictError):
            give_up(tablet, start, end - 1, discard=True)
        assert files(tmp_path) == before
        assert give_up(tablet, start, end, discard=True) == end
    lost_from = {"lake": end, "remote": end}.get(knower, STEP)
    (noted,) = tablet.describe()[0].given_up
    assert (noted.start_offset, noted.stop_offset, noted.lost_start_offset) == (start, end, lost_from)
    assert give_up(tablet, start, end) == end  # asked again
    appended = tablet.produce({0: batch(end, STEP)})[0]
    assert (appended.base_offset, appended.HasField("error_code")) == (end, False)
    answer, _ = tablet.fetch({0: end})[0]
    assert not answer.HasField("error_code")
    again = tablet.reopen()
    again.open(0, durable_offset=end, **MANY, **LAKE)
    assert read(again, end) == ([end, end + 1], None)
    assert list(again.describe()[0].given_up) == [noted]
    if knower == "remote":
        assert again.describe()[0].start_offset == 0
        again.service.copy_to_remote()
        assert again.describe()[0].start_offset == 0


def test_no_record_is_older_than_what_the_lake_holds(tmp_path):
    tablet = filled(tmp_path, **LAKE)
    late = tablet.clock.now_ms() + 60_000
    tablet = gone(tablet, **LAKE)
    tablet.tell_lake(0, RECORDS, max_timestamp_ms=late)
    give_up(tablet, 0, RECORDS)
    tablet.produce({0: batch(RECORDS, 1)})
    assert tablet.describe()[0].max_timestamp >= late


def test_what_was_given_up_before_stays_noted(tmp_path):
    tablet = filled(tmp_path)
    first = flip(segments(tablet)[2], 1)
    give_up(tablet, *first, discard=True)
    tablet = gone(tablet, folder=False)
    assert ranges(tablet) == [(first[1], RECORDS)]
    assert give_up(tablet, first[1], RECORDS, discard=True) == RECORDS
    noted = [(each.start_offset, each.stop_offset) for each in tablet.describe()[0].given_up]
    assert noted == [first, (first[1], RECORDS)]


def test_a_bucket_that_is_closed_for_another_reason_is_not_begun_anew(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    tablet = tablet.reopen(clean=False)
    failpoints.arm("tablet.recover.before", "eio@1")
    tablet.open(0, durable_offset=RECORDS)
    before = files(tmp_path)
    try:
        for call in (ranges, lambda each: give_up(each, 0, RECORDS, discard=True)):
            failpoints.arm("tablet.recover.before", "eio@1")  # it is tried once more
            with pytest.raises(StorageError, match="could not be opened"):
                call(tablet)
    finally:
        failpoints.disarm()
    assert files(tmp_path) == before
    assert ranges(tablet) == []
    assert read(tablet, 0) == ([*range(RECORDS)], None)


def test_a_note_of_a_newer_version_is_not_left_behind(tmp_path):
    tablet = filled(tmp_path)
    give_up(tablet, *flip(segments(tablet)[2], 1), discard=True)
    newer(segments(tablet)[0].with_name(log_cut.GIVEN_UP_FILE))
    for path in segments(tablet):
        path.unlink()
    tablet = tablet.reopen(clean=False)
    tablet.open(0, durable_offset=RECORDS)
    before = files(tmp_path)
    for call in (ranges, lambda each: give_up(each, 0, RECORDS, discard=True)):
        with pytest.raises(UnsupportedError):
            call(tablet)
    assert files(tmp_path) == before


def test_remote_storage_that_is_damaged_is_an_error(tmp_path):
    tablet = filled(tmp_path, **MANY)
    tablet.service.copy_to_remote()
    manifest = tablet.service._store.all()[0].remote.folder / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    tablet = gone(tablet, durable_offset=RECORDS, **MANY)
    with pytest.raises(CorruptDataError, match="checksum"):
        ranges(tablet)
    with pytest.raises(CorruptDataError, match="checksum"):
        give_up(tablet, 0, RECORDS, discard=True)
    assert not segments(tablet)


@pytest.mark.parametrize("point", bucket_store.FAILPOINTS)
@pytest.mark.parametrize("kind", ["error", "enospc"])
def test_laying_an_empty_log_may_end_anywhere(tmp_path, point, kind):
    tablet = gone(filled(tmp_path), durable_offset=RECORDS)
    failpoints.arm(point, kind)
    try:
        with pytest.raises((FlussError, FailpointError, OSError)):
            give_up(tablet, 0, RECORDS, discard=True)
    finally:
        failpoints.disarm()
    assert ranges(tablet) == [(0, RECORDS)]
    assert give_up(tablet, 0, RECORDS, discard=True) == RECORDS
    assert not list((tmp_path / "data" / "looks").iterdir())
