"""Where one record lies: every offset is found in the batch that has it, on the disk and in remote storage."""

from pathlib import Path

import pytest

from fluss_lab.errors import CorruptDataError, NotLeaderError, OffsetOutOfRangeError
from fluss_lab.records.batch import read_header
from fluss_lab.rpc import fluss_api_pb2 as pb
from tests.unit.server.tablet.remote.remote_kit import fill, local_bases, make_tablet, segment_folders
from tests.unit.server.tablet.tablet_kit import TABLE_ID


@pytest.fixture
def tablet(tmp_path):
    """Small segments, of which all but one were copied, and those but one dropped here."""
    service = make_tablet(tmp_path, table__log__tiered__local_segments="2")
    yield service
    service.service.close()


def ask(tablet, offset, bucket=0):
    return tablet.service.locate_record(pb.LocateRecordRequest(table_id=TABLE_ID, bucket_id=bucket, log_offset=offset))


def header_at(place):
    """Return the header that lies in the file at the position that was answered."""
    with Path(place.file).open("rb") as file:
        file.seek(place.position)
        return read_header(file.read(128))


def check(place, offset):
    header = header_at(place)
    assert (header.base_offset, header.next_offset) == (place.batch_base_offset, place.batch_end_offset)
    assert (header.size, header.timestamp_ms) == (place.batch_size_in_bytes, place.timestamp)
    assert place.batch_base_offset <= offset < place.batch_end_offset
    assert place.segment_base_offset <= place.batch_base_offset
    assert place.batch_end_offset <= place.segment_end_offset


def test_every_record_is_where_it_is_said_to_be(tablet):
    end = fill(tablet, 30)
    tablet.service.copy_to_remote()
    local_start = local_bases(tablet)[0]
    assert 0 < local_start < end
    held = set()
    for offset in range(end):
        answer = ask(tablet, offset)
        places = {kind: getattr(answer, kind) for kind in ("local", "remote") if answer.HasField(kind)}
        for kind, place in places.items():
            check(place, offset)
            assert place.HasField("remote_log_segment_id") is (kind == "remote")
        assert ("local" in places) is (offset >= local_start)
        held.add(tuple(sorted(places)))
    assert held == {("remote",), ("local", "remote"), ("local",)}


@pytest.mark.parametrize("offset", [-1, 40, 41])
def test_a_record_that_there_is_not_is_refused(tablet, offset):
    assert fill(tablet, 1) == 40
    with pytest.raises(OffsetOutOfRangeError, match=r"expected the offset of a record, in \[0, 40\), found"):
        ask(tablet, offset)


def test_a_bucket_that_is_not_here_is_to_be_looked_up_again(tablet):
    with pytest.raises(NotLeaderError):
        ask(tablet, 0, bucket=1)


def test_a_damaged_block_of_remote_storage_is_said_where_only_that_has_the_record(tablet):
    end = fill(tablet, 30)
    tablet.service.copy_to_remote()
    local_start = local_bases(tablet)[0]
    for folder in segment_folders(tablet):
        (path,) = folder.glob("*.log")
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="the CRC does not agree"):
        ask(tablet, 0)
    for offset in range(local_start, end):
        answer = ask(tablet, offset)
        assert answer.HasField("local")
        assert not answer.HasField("remote")
        assert not answer.remote_error or "the CRC does not agree" in answer.remote_error
    assert ask(tablet, local_start).remote_error
    assert not ask(tablet, end - 1).remote_error  # it was not copied yet
