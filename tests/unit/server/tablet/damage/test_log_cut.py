"""The cut of a damaged log: finished whatever ended it, with what stays, and its note."""

import json

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    StorageError,
    UnsupportedError,
    error_from_code,
)
from fluss_lab.records.checksummed_json import seal_content, unseal_content
from fluss_lab.server.tablet.damage import log_cut
from tests.unit.server.tablet.damage.damage_kit import (
    RECORDS,
    STEP,
    again,
    batches,
    filled,
    flip,
    give_up,
    keyed,
    newer,
    ranges,
    read,
    segments,
)
from tests.unit.server.tablet.kv_kit import upserts
from tests.unit.server.tablet.tablet_kit import batch, records_in


@pytest.mark.parametrize("point", log_cut.FAILPOINTS)
@pytest.mark.parametrize("forget", [False, True])
def test_a_cut_that_ended_anywhere_is_finished_or_begun_again(tmp_path, point, forget):
    """Seen through: records, writers, times, and what was given up."""
    tablet = filled(tmp_path)
    start, stop = flip(segments(tablet)[2], 1)
    last_ms = tablet.clock.now_ms() - 10
    if forget:
        (segments(tablet)[0].parent / "recovery-point").unlink(missing_ok=True)
        tablet = again(tablet)
        assert isinstance(read(tablet, start)[1], CorruptDataError)
    failpoints.arm(point, "error")
    try:
        with pytest.raises(FlussError):
            give_up(tablet, start, stop, discard=True)
    finally:
        failpoints.disarm()
    tablet = again(tablet)  # as after a kill: nothing was closed
    is_decided = point not in {"tablet.cut.before", "tablet.cut.checkpoint"}
    assert ranges(tablet) == ([] if is_decided else [(start, stop)])
    assert give_up(tablet, start, stop, discard=True) == stop
    assert read(tablet, stop) == (list(range(stop, RECORDS)), None)
    assert next(path.stem for path in segments(tablet)) == f"{stop:020d}"
    assert not [
        path for path in segments(tablet)[0].parent.iterdir() if path.name[:20].isdigit() and int(path.stem) < stop
    ]
    (noted,) = tablet.describe()[0].given_up
    assert (noted.start_offset, noted.stop_offset) == (start, stop)
    # The last batches of the writer are known; after a time that was set back no record gets an earlier one.
    resent = tablet.produce({0: batch(RECORDS - STEP, STEP, writer_id=7, sequence=RECORDS // STEP - 1)})[0]
    assert (resent.base_offset, resent.HasField("error_code")) == (RECORDS - STEP, False)
    tablet.clock.set_wall(last_ms - 100_000)
    fresh = tablet.produce({0: batch(RECORDS, 1, writer_id=7, sequence=RECORDS // STEP)})[0]
    assert (fresh.base_offset, fresh.HasField("error_code")) == (RECORDS, False)
    _answer, data = tablet.fetch({0: RECORDS})[0]
    assert records_in(data)[-1].timestamp_ms >= last_ms


def test_writers_of_batches_that_went_are_known_behind_the_cut(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    last = segments(tablet)[-1]
    start, _stop = flip(last, 0)
    last.write_bytes(last.read_bytes()[: batches(last)[0][1].size])
    tablet = again(tablet)
    assert ranges(tablet) == [(start, RECORDS)]
    assert give_up(tablet, start, RECORDS, discard=True) == RECORDS
    resent = tablet.produce({0: batch(RECORDS - STEP, STEP, writer_id=7, sequence=RECORDS // STEP - 1)})[0]
    assert (resent.base_offset, resent.HasField("error_code")) == (RECORDS - STEP, False)


def test_a_disk_that_refuses_leaves_the_bucket_as_it_was(tmp_path):
    tablet = filled(tmp_path)
    start, stop = flip(segments(tablet)[2], 1)
    failpoints.arm("tablet.cut.checkpoint", "enospc")
    try:
        with pytest.raises(StorageError, match="could not be opened"):
            give_up(tablet, start, stop, discard=True)
        tablet.clock.advance(60_000)
        tablet.service.reopen()
    finally:
        failpoints.disarm()
    assert ranges(tablet) == [(start, stop)]
    assert give_up(tablet, start, stop, discard=True) == stop


def _cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def _of_another(path):
    value = json.loads(unseal_content(path.read_bytes()))
    path.write_bytes(seal_content(json.dumps(value | {"identity": "0" * 32}).encode()))


@pytest.mark.parametrize(
    ("damage", "kind", "text"),
    [
        (_cut_off, CorruptDataError, "checksum"),
        (_of_another, CorruptDataError, "expected what was given up of bucket"),
        (newer, UnsupportedError, "newer version"),
    ],
)
def test_what_was_given_up_is_reported_or_an_error(tmp_path, damage, kind, text):
    tablet = filled(tmp_path)
    give_up(tablet, *flip(segments(tablet)[2], 1), discard=True)
    path = segments(tablet)[0].with_name(log_cut.GIVEN_UP_FILE)
    damage(path)
    tablet = tablet.reopen(clean=False)
    (answer,) = tablet.open(0)
    error = error_from_code(answer.error_code, answer.error_message)
    assert isinstance(error, kind)
    assert text in str(error)
    assert str(path) in str(error)


def test_rows_in_memory_are_kept_when_the_log_cannot_give_them_any_more(tmp_path):
    tablet = keyed(tmp_path)
    rows, end = tablet.scan()[0], tablet.bucket().log.end
    events = tablet.changelog()
    start, stop = flip(segments(tablet)[2], 1)
    assert give_up(tablet, start, stop, discard=True) == stop
    for each in (tablet, tablet.reopen(clean=False)):
        assert each.scan() == (rows, end)
        assert each.changelog(stop) == [event for event in events if event.offset >= stop]
    again = tablet.reopen(clean=False)
    assert again.put(upserts(0, 4, "t15"), writer_id=7, sequence=15)[1] == end  # known
    again.put(upserts(0, 1, "new"), writer_id=7, sequence=16)


def test_previous_offsets_behind_the_damage_in_its_segment_are_kept(tmp_path):
    """No replay gives them again: the newest snapshot is behind them."""
    tablet = keyed(tmp_path)
    events = tablet.changelog()
    tablet.service.close()
    path = next(path for path in segments(tablet)[1:] if len(batches(path)) > 1)
    start, stop = flip(path, 0)
    tablet = tablet.reopen(clean=False)
    assert ranges(tablet) == [(start, stop)]
    assert give_up(tablet, start, stop, discard=True) == stop
    assert tablet.changelog(stop) == [event for event in events if event.offset >= stop]
