"""The changelog of a primary-key table in remote storage: change types and previous offsets go with it."""

import pyarrow as pa
import pytest

from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.client.log.remote_reader import remote_records
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.server.tablet.remote import segment_copy
from tests.unit.server.tablet.kv_kit import KEY, TABLE_ID, TYPES, Event, KvTablet, upserts

INFO = TableInfo(TablePath("db", "people"), TABLE_ID, 1, make_descriptor(TYPES, primary_key=KEY), 0, 0)
BUCKET = TableBucket(TABLE_ID, None, 0)


@pytest.fixture
def tablet(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_copy, "BLOCK_BYTES", 1500)
    made = KvTablet(tmp_path, log__segment__file_size="4kb")
    made.open(0, table__log__tiered__local_segments="1")
    return made


def _work(tablet):
    """Upserts that insert, replace and change nothing, and deletes; return the changelog as read locally."""
    for turn in range(12):
        tablet.put(upserts(turn * 10, 30, f"turn-{turn}"))
        tablet.put(upserts(turn * 10, 3, f"turn-{turn}"))  # nothing changes: a batch without records
        tablet.delete(turn * 10, turn * 10 + 1)
        tablet.clock.advance(1000)
    return tablet.changelog()


def _remote(tablet, start: int, stop: int, columns=None) -> list[Event]:
    answer, _ = tablet.fetch(start)
    assert answer.HasField("remote_log_fetch_info"), answer
    runs = remote_records(
        answer.remote_log_fetch_info, "test", start, stop, Projection(INFO, columns), previous_offsets=True
    )
    found: list[Event] = []
    for run in runs:
        assert run.change_types is not None
        assert run.previous_offsets is not None
        rows = [tuple(row.values()) for row in run.rows.to_pylist()]
        columns_of = (run.offsets, run.change_types, run.previous_offsets)
        for (offset, change, previous), row in zip(
            zip(*map(pa.Array.to_pylist, columns_of), strict=True), rows, strict=True
        ):
            found.append(Event(offset, change, row, previous))
    return found


def test_events_and_previous_offsets_are_the_same_from_remote_storage(tablet):
    written = _work(tablet)
    assert {event.change for event in written} == {1, 2, 3, 4}
    tablet.service.snapshot_now(BUCKET)
    assert tablet.service.copy_to_remote() > 3
    local = tablet.describe()[0].log_start_offset
    assert local > 100
    assert _remote(tablet, 0, local) == written[:local]
    for start in range(0, local, 37):
        assert _remote(tablet, start, local) == written[start:local]
    names = [event._replace(row=event.row[1:2]) for event in written[:local]]
    assert _remote(tablet, 0, local, ["name"]) == names
    assert tablet.changelog(local) == written[local:]


def test_no_segment_leaves_the_disk_that_a_snapshot_needs(tablet):
    written = _work(tablet)
    tablet.service.copy_to_remote()
    described = tablet.describe()[0]
    assert (described.log_start_offset, described.segments > 3) == (0, True)  # no snapshot yet
    tablet.service.snapshot_now(BUCKET)
    floor = tablet.bucket().kv.snapshots.retained_floor()
    assert floor == len(written)
    _work(tablet)
    tablet.service.copy_to_remote()
    start = tablet.describe()[0].log_start_offset
    assert 0 < start <= floor
    assert tablet.describe()[0].segments > 3  # all copied, but above the floor
    before = tablet.changelog(start)
    tablet = tablet.reopen(clean=False)
    assert tablet.changelog(start) == before


def test_ttl_spares_what_a_snapshot_needs_here_and_ends_the_rest_there(tablet):
    tablet.open(0, table__log__ttl="1min")
    _work(tablet)
    tablet.service.snapshot_now(BUCKET)
    floor = tablet.bucket().kv.snapshots.retained_floor()
    _work(tablet)
    tablet.service.copy_to_remote()
    tablet.clock.advance(3_600_000)
    tablet.service.apply_retention()
    described = tablet.describe()[0]
    assert 0 < described.log_start_offset <= floor
    assert not described.HasField("remote_log_start_offset")


def test_flipped_and_cut_previous_offsets_are_refused_and_records_without_them_are_read(tablet):
    written = _work(tablet)
    tablet.service.snapshot_now(BUCKET)
    tablet.service.copy_to_remote()
    answer, _ = tablet.fetch(0)
    place = answer.remote_log_fetch_info
    first = place.remote_log_segments[0]
    (path,) = (tablet.folder / "remote/log").glob(f"*/*/0/{first.remote_log_segment_id}/*.prev")
    data = path.read_bytes()
    assert len(data) == 8 * first.remote_log_end_offset
    for damaged in (data[:-1], b"", data[:40] + bytes([data[40] ^ 4]) + data[41:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=path.name):
            _remote(tablet, 0, first.remote_log_end_offset)
        runs = remote_records(place, "test", 0, first.remote_log_end_offset, Projection(INFO, None))
        assert sum(len(run) for run in runs) == first.remote_log_end_offset
    path.write_bytes(data)
    assert _remote(tablet, 0, first.remote_log_end_offset) == written[: first.remote_log_end_offset]
