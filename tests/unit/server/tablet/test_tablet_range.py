"""What a damaged log says of its range: the offsets that are known, or an error; never those that are left."""

import shutil

import pytest

from fluss_lab.errors import CorruptDataError, UnsupportedError, error_from_code
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.tablet.tablet_kit import Tablet, batch, records_in

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2
RECORDS = 40
FAR = START_MS + 10**6


@pytest.fixture
def tablet(tmp_path):
    """Two buckets of some segments, closed cleanly: all is below the recovery point."""
    made = Tablet(tmp_path, log__segment__file_size="1kb")
    made.open(0, 1)
    for first in range(0, RECORDS, 2):
        made.produce({0: batch(first, 2), 1: batch(first, 2)})
        made.clock.advance(10)
    made.service.close()
    return made


def _folder(tablet):
    return tablet.folder / "data" / "t7" / "b0"


def _segments(tablet):
    return sorted(_folder(tablet).glob("*.log"))


def _again(tablet):
    again = tablet.reopen(clean=False)
    again.open(0, 1)
    return again


def _asked(tablet, kind, **asked):
    """The offset that is answered, or the error."""
    answer = tablet.offsets(kind, **asked)[0]
    return error_from_code(answer.error_code, answer.error_message) if answer.HasField("error_code") else answer.offset


def _fetched(tablet, offset):
    answer, data = tablet.fetch({0: offset})[0]
    if answer.HasField("error_code"):
        return error_from_code(answer.error_code, answer.error_message)
    return [record.id for record in records_in(data)]


def _last_rows(tablet, limit=1):
    request = pb.LimitScanRequest(table_id=7, bucket_id=0, limit=limit)
    return tablet.service.limit_scan(request).payloads[0]


def _shown_ends(tablet):
    """The ends of logs that the metrics show."""
    (family,) = [family for family in tablet.service.metrics() if family.name.endswith("log_endOffset")]
    return [sample.value for sample in family.samples]


def _is_well(tablet, bucket=1):
    assert tablet.offsets(LATEST, bucket)[bucket].offset == RECORDS
    assert not tablet.produce({bucket: batch(RECORDS, 1)})[bucket].HasField("error_code")


def _cut_last(segments):
    segments[-1].write_bytes(segments[-1].read_bytes()[:-1])


def _no_last(segments):
    segments[-1].unlink()


def _no_middle(segments):
    segments[len(segments) // 2].unlink()


def _empty_middle(segments):
    segments[len(segments) // 2].write_bytes(b"")


@pytest.mark.parametrize("damage", [_cut_last, _no_last, _no_middle, _empty_middle])
def test_the_end_of_a_log_that_lost_durable_records_is_an_error(tablet, damage):
    damage(_segments(tablet))
    again = _again(tablet)
    left = again.service._store.get(again.service._store.all()[0].id).log.high_watermark
    assert 0 < left < RECORDS
    for asked in ({}, {"durable": True}):
        assert isinstance(_asked(again, LATEST, **asked), CorruptDataError)
    assert isinstance(_asked(again, TIMESTAMP, startTimestamp=FAR), CorruptDataError)
    # What names offsets below the damage is served, and so is what is found there.
    assert _asked(again, EARLIEST) == 0
    assert _asked(again, TIMESTAMP, startTimestamp=START_MS + 5) == 2
    assert _fetched(again, 0) == list(range(left))
    for offset in (left, left + 1, RECORDS):
        assert isinstance(_fetched(again, offset), CorruptDataError)
    with pytest.raises(CorruptDataError):
        _last_rows(again)
    assert _shown_ends(again) == [RECORDS]  # the other bucket's
    refused = again.produce({0: batch(RECORDS, 1)})[0]
    assert isinstance(error_from_code(refused.error_code, refused.error_message), CorruptDataError)
    assert again.describe()[0].error_message
    _is_well(again)


def _bad_length(segments):
    """The header of a middle segment's second batch: the log is as long as it was, so only a reader finds it."""
    path = segments[len(segments) // 2]
    data = bytearray(path.read_bytes())
    at = int.from_bytes(data[8:12], "little") + 12
    data[at : at + 12] = b"\xff" * 12
    path.write_bytes(bytes(data))


def _short_middle(segments):
    """A middle segment's first batch is gone, and the rest is where it was: good batches lie behind."""
    path = segments[len(segments) // 2]
    data = path.read_bytes()
    path.write_bytes(data[:8] + b"\0" + data[9:-1])


@pytest.mark.parametrize("damage", [_cut_last, _no_last, _no_middle, _empty_middle, _bad_length, _short_middle])
def test_damage_is_reported_with_table_bucket_file_and_offsets(tablet, damage):
    segments = _segments(tablet)
    middle, last = segments[len(segments) // 2], segments[-1]
    starts = [int(path.stem) for path in segments]
    begin, after = starts[len(segments) // 2], starts[len(segments) // 2 + 1]
    before = segments[len(segments) // 2 - 1]
    path, lost = {
        _cut_last: (last, (RECORDS - 2, RECORDS)),
        _no_last: (segments[-2], (starts[-1], RECORDS)),
        _no_middle: (before, (begin, after)),
        _empty_middle: (middle, (begin, after)),
        _bad_length: (middle, (begin, after)),
        _short_middle: (middle, (begin, begin + 2)),
    }[damage]
    damage(segments)
    again = _again(tablet)
    found = str(_fetched(again, RECORDS - 1 if damage in {_cut_last, _no_last} else begin + 2))
    assert found.count("db.events bucket 0 [t7/b0]") == 1
    for text in (found, again.describe()[0].error_message):  # the client says of which bucket that is
        assert str(path) in text
        assert f"offsets [{lost[0]}, {lost[1]})" in text
    refused = again.produce({0: batch(RECORDS, 1)})[0].error_message
    assert str(path) in refused
    _is_well(again)


def test_a_log_without_its_first_segments_does_not_begin_later(tablet):
    first, second, *_ = _segments(tablet)
    first.unlink()
    again, held = _again(tablet), int(second.stem)
    error = _asked(again, EARLIEST)
    assert isinstance(error, CorruptDataError)
    assert f"first segment is of offset {held}, expected one of 0" in str(error)
    assert isinstance(_asked(again, TIMESTAMP, startTimestamp=START_MS), CorruptDataError)
    assert isinstance(_asked(again, LATEST, durable=True), CorruptDataError)
    assert isinstance(_fetched(again, 0), CorruptDataError)
    with pytest.raises(CorruptDataError):
        _last_rows(again, RECORDS)
    assert _last_rows(again, 1)
    # Offsets that are held, and named, are served; so is the end, which is known.
    assert _asked(again, LATEST) == RECORDS
    assert _fetched(again, held) == list(range(held, RECORDS))
    assert _asked(again, TIMESTAMP, startTimestamp=START_MS + 10 * (RECORDS // 2 - 1)) == RECORDS - 2
    assert again.produce({0: batch(RECORDS, 1)})[0].HasField("error_code")
    assert again.describe()[0].error_message
    _is_well(again)


def test_a_log_that_dropped_its_first_segments_begins_later(tmp_path):
    """Whichever one of the files that know so is lost."""
    tablet = Tablet(tmp_path, log__segment__file_size="1kb")
    tablet.open(0, table__log__ttl="1min")
    for first in range(0, RECORDS, 2):
        tablet.produce({0: batch(first, 2)})
        tablet.clock.advance(10_000)
    assert tablet.service.apply_retention()
    start = _asked(tablet, EARLIEST)
    assert start
    tablet.service.close()
    kept = tmp_path / "kept"
    shutil.copytree(_folder(tablet), kept)
    for lost in ("recovery-point", "log-start"):
        for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"")):
            shutil.rmtree(_folder(tablet))
            shutil.copytree(kept, _folder(tablet))
            damage(_folder(tablet) / lost)
            again = _again(tablet)
            assert (_asked(again, EARLIEST), _asked(again, LATEST)) == (start, RECORDS)
            again.service.close()
    for lost in ("recovery-point", "log-start"):
        (_folder(tablet) / lost).unlink()
    assert isinstance(_asked(_again(tablet), EARLIEST), CorruptDataError)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_of_a_newer_format_is_neither_damage_nor_cut_off(tablet, is_known):
    (path,) = _segments(tablet)[-1:]
    data = bytearray(path.read_bytes())
    # The last batch: without a recovery point it would be a torn tail.
    at, step = 0, 0
    while at + step < len(data):
        at, step = at + step, int.from_bytes(data[at + step + 8 : at + step + 12], "little") + 12
    data[at + 12] = 1
    path.write_bytes(bytes(data))
    if not is_known:
        (_folder(tablet) / "recovery-point").unlink()
    for _ in range(2):
        again = _again(tablet)
        error = _fetched(again, RECORDS - 1)
        assert isinstance(error, UnsupportedError)
        assert "written by a newer version of fluss_lab" in str(error)
        if not is_known:
            assert isinstance(_asked(again, LATEST), UnsupportedError)
        assert again.produce({0: batch(RECORDS, 1)})[0].HasField("error_code")
        assert path.read_bytes() == bytes(data)
        again.service.close()


def test_nothing_is_dropped_of_a_bucket_whose_range_is_not_known(tmp_path):
    tablet = Tablet(tmp_path, log__segment__file_size="1kb")
    tablet.open(0, table__log__ttl="1min")
    for first in range(0, RECORDS, 2):
        tablet.produce({0: batch(first, 2)})
    tablet.service.close()
    _no_middle(_segments(tablet))
    again = tablet.reopen(clean=False)
    again.open(0, table__log__ttl="1min")
    again.clock.advance(10**7)
    before = _segments(again)
    assert again.service.apply_retention() == 0
    assert again.service.copy_to_remote() == 0
    assert not again.service._store.all()[0].remote.manifest.segments
    assert _segments(again) == before
