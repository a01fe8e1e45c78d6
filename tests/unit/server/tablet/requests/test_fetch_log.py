"""Fetches of a changelog's previous offsets without its records."""

import struct

import pytest

from fluss_lab.errors import InvalidRequestError, OffsetOutOfRangeError, UnsupportedError, error_from_code
from tests.unit.server.tablet.kv_kit import KvTablet, upserts
from tests.unit.server.tablet.tablet_kit import Tablet, batch

#: Records of the changelog that `filled` has: batches of 20, 40, 40, 2 and 1.
BASES = [0, 20, 60, 100, 102, 103]


@pytest.fixture
def filled(tmp_path):
    made = KvTablet(tmp_path, log__segment__file_size="2kb").open(0)
    for tag in ("first", "second", "third"):
        made.put(upserts(0, 20, tag))
    made.put(upserts(3, 1, "fourth"))
    made.put(upserts(3, 1, "fourth"))  # changes nothing: a batch without records
    made.delete(4)
    assert len(made.bucket().log.reader.view.segments) > 1
    yield made
    made.service.close()


def fetch(tablet, offset, **asked):
    """Return where the previous offsets begin, and them."""
    answer, data = tablet.fetch(offset, previous_offsets_only=True, **asked)
    if answer.HasField("error_code"):
        raise error_from_code(answer.error_code, answer.error_message)
    assert data == b""
    assert answer.high_watermark == tablet.bucket().log.high_watermark
    if not answer.HasField("previous_offsets_start"):
        return None
    return answer.previous_offsets_start, [each[0] for each in struct.iter_unpack("<q", answer.previous_offsets)]


@pytest.mark.parametrize("stop", [None, 1, 20, 21, 61, 103, 200])
def test_they_are_those_of_the_whole_batches_up_to_a_stop(filled, stop):
    expected = [event.previous for event in filled.changelog()]
    assert len(expected) == BASES[-1]
    for offset in range(BASES[-1]):
        if stop is not None and stop <= offset:
            with pytest.raises(InvalidRequestError, match="stop_offset"):
                fetch(filled, offset, stop_offset=stop)
            continue
        begin = max(base for base in BASES if base <= offset)
        end = BASES[-1] if stop is None else min((base for base in BASES if base >= stop), default=BASES[-1])
        assert fetch(filled, offset, stop_offset=stop) == (begin, expected[begin:end])


@pytest.mark.parametrize("records", [1, 19, 20, 25, 59, 60, 61, 102])
def test_an_answer_has_the_batches_that_fit_and_at_least_one(filled, records):
    expected = [event.previous for event in filled.changelog()]
    end = max((base for base in BASES if base <= records), default=0) or BASES[1]
    for asked in ({"max_bytes": 8 * records}, {"max_fetch_bytes": 8 * records}):
        assert fetch(filled, 5, **asked) == (0, expected[:end])
    found, offset = [], 0
    while offset < BASES[-1]:
        begin, some = fetch(filled, offset, max_bytes=8 * records)
        assert begin == offset
        found += some
        offset += len(some)
    assert found == expected


def test_they_count_as_bytes_that_went_out(filled):
    before = filled.bucket().counters.bytes_out
    _, found = fetch(filled, 0)
    assert filled.bucket().counters.bytes_out - before == 8 * len(found)


def test_at_the_end_of_the_log_there_are_none(filled):
    assert fetch(filled, BASES[-1]) is None
    with pytest.raises(OffsetOutOfRangeError):
        fetch(filled, BASES[-1] + 1)


def test_a_table_without_a_primary_key_has_none(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(0)
    tablet.produce({0: batch(0, 5)})
    answer, _ = tablet.fetch({0: 0}, previous_offsets_only=True)[0]
    with pytest.raises(UnsupportedError, match="no primary key"):
        raise error_from_code(answer.error_code, answer.error_message)
    tablet.service.close()
