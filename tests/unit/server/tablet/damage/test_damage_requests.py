"""Rows that are sent to a damaged primary-key bucket: only those from which its log goes on are taken, and what is there follows."""

import pyarrow as pa
import pytest

from fluss_lab.errors import ConflictError, CorruptDataError, InvalidRecordError, UnsupportedError
from fluss_lab.records.batch import encode
from fluss_lab.records.kv_files import stored_schema
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from tests.unit.server.tablet.damage.damage_kit import batches, flip, look, segments
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, joined, upserts

pytestmark = pytest.mark.slow

LAKE = {"table__datalake__enabled": "true"}
TURNS = 24


class Damaged:
    """A bucket without key-value snapshots, damaged in its third segment, and its rows at the end of each batch."""

    def __init__(self, folder):
        tablet = KvTablet(folder, log__segment__file_size="1kb", log__index__interval_size="64b").open(0, **LAKE)
        self.states = {}
        for turn in range(TURNS):
            tablet.put(upserts(turn % 5, 4, f"t{turn}"), writer_id=7, sequence=2 * turn)
            tablet.delete(turn % 7, writer_id=7, sequence=2 * turn + 1)
            rows, end = tablet.scan()
            self.states[end] = rows
            tablet.clock.advance(10)
        tablet.service.flush()
        self.events = tablet.changelog()
        self.rows, self.end = tablet.scan()
        self.damage = flip(segments(tablet)[2], 1)
        self.ends = [header.next_offset for path in segments(tablet) for _, header in batches(path)]
        (segments(tablet)[0].parent / "recovery-point").unlink(missing_ok=True)
        self.tablet = tablet.reopen(clean=False)

    def tell_lake(self, end):
        reported = pb.PbNotifyLakeTableOffsetReqForBucket(
            table_id=TABLE_ID, bucket_id=0, snapshot_id=11, log_start_offset=0, log_end_offset=end
        )
        self.tablet.service.set_lake_offsets([reported])

    def send(self, log_offset, rows, *, part=0):
        request = pb.SendRowsRequest(table_id=TABLE_ID, bucket_id=0, log_offset=log_offset, part=part)
        if not rows:
            return self.tablet.service.send_rows(Frame(request)).row_count
        request.records = b""
        data = encode(pa.RecordBatch.from_pylist(rows, stored_schema(self.tablet.schema)), schema_id=1)
        return self.tablet.service.send_rows(Frame(request, [[joined(data)]])).row_count

    def give_up(self, log_offset=None, count=None, *, discard=False):
        start, stop = self.damage
        request = pb.GiveUpRangeRequest(
            table_id=TABLE_ID, bucket_id=0, start_offset=start, stop_offset=stop, discard_before=discard,
            rows_offset=log_offset, row_count=count,
        )  # fmt: skip
        return self.tablet.service.give_up_range(request).log_start_offset

    def check(self):
        """All is as if nothing had been damaged, but for where the log begins."""
        for each in (self.tablet, self.tablet.reopen(clean=False), self.tablet.reopen(clean=False)):
            assert each.scan() == (self.rows, self.end)
            events = [event for event in self.events if event.offset >= self.damage[1]]
            assert each.changelog(self.damage[1]) == events
        again = self.tablet.reopen(clean=False)
        assert again.delete((TURNS - 1) % 7, writer_id=7, sequence=2 * TURNS - 1)[1] == self.end  # known
        again.put(upserts(0, 9, "new"), writer_id=7, sequence=2 * TURNS)
        assert again.lookup(0)[0]["name"] == "new-0"
        again.service.close()
        assert again.reopen().lookup(8)[0]["name"] == "new-8"


@pytest.fixture
def damaged(tmp_path):
    return Damaged(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("lake", ["stop", "inside", "end"])
def test_rows_are_those_sent_and_what_the_log_made_of_them(damaged, lake, parts):
    later = [end for end in damaged.states if end > damaged.damage[1]]
    end = {"stop": damaged.damage[1], "inside": later[3] + 1, "end": damaged.end}[lake]
    damaged.tell_lake(end)
    offset = look(damaged.tablet).lake_rows_offset
    # No batch is done in part.
    assert offset == max(each for each in damaged.ends if each <= end)
    rows = _rows_at(damaged, offset)
    size = -(-len(rows) // parts)
    assert damaged.send(offset, []) == 0
    for part in range(parts):
        assert damaged.send(offset, rows[: size * (part + 1)][size * part :], part=part + 1) == min(
            len(rows), size * (part + 1)
        )
    assert damaged.give_up(offset, len(rows)) == damaged.damage[1]
    assert damaged.give_up(offset, len(rows)) == damaged.damage[1]  # asked again
    damaged.check()


def _rows_at(damaged, offset):
    """The rows at any offset between two batches, from the changelog."""
    found = {}
    for event in damaged.events:
        if event.offset >= offset:
            break
        if event.change in {1, 3}:
            found[event.row[0]] = event
        elif event.change == 4:
            del found[event.row[0]]
    times = {row["__offset"]: row["__timestamp"] for rows in damaged.states.values() for row in rows}
    rows = [dict(zip(("id", "name", "score"), each.row, strict=True)) | {"__offset": each.offset, "__timestamp": times.get(each.offset, 0)}
            for each in found.values()]  # fmt: skip
    return sorted(rows, key=lambda row: row["__offset"])


@pytest.mark.parametrize("end", [0, "start", "before"])
def test_a_lake_that_ends_before_the_damage_does_gives_no_rows(damaged, end):
    start, stop = damaged.damage
    damaged.tell_lake({0: 0, "start": start, "before": stop - 1}[end])
    assert not look(damaged.tablet).HasField("lake_rows_offset")
    with pytest.raises(UnsupportedError, match="restore"):
        damaged.give_up(discard=True)


def _missing(rows):
    return rows[:-1]


def _another(rows):
    return [*rows[:-1], rows[-1] | {"id": 77}]


@pytest.mark.parametrize("change", [_missing, _another])
def test_rows_that_the_log_does_not_go_on_from_change_nothing(damaged, change):
    offset = damaged.damage[1]
    damaged.tell_lake(offset)
    rows = change(_rows_at(damaged, offset))
    before = {path: path.read_bytes() for path in segments(damaged.tablet)}
    damaged.send(offset, rows)
    with pytest.raises(CorruptDataError, match=r"not those that its log goes on from.*Nothing was changed"):
        damaged.give_up(offset, len(rows))
    assert {path: path.read_bytes() for path in segments(damaged.tablet)} == before
    assert not list(damaged.tablet.folder.glob("remote/kv/**/*.manifest"))
    rows = _rows_at(damaged, offset)
    damaged.send(offset, rows)
    damaged.give_up(offset, len(rows))
    damaged.check()


def test_a_key_is_not_taken_twice(damaged):
    """Also where the log does not go on: no change tells."""
    damaged.tell_lake(damaged.end)
    free = max(set(range(damaged.end)) - {row["__offset"] for row in damaged.rows})
    rows = sorted([*damaged.rows, damaged.rows[0] | {"__offset": free}], key=lambda row: row["__offset"])
    damaged.send(damaged.end, rows)
    with pytest.raises(CorruptDataError, match=rf"expected {len(rows)} keys, found {len(rows) - 1}"):
        damaged.give_up(damaged.end, len(rows))
    damaged.send(damaged.end, damaged.rows)
    damaged.give_up(damaged.end, len(damaged.rows))
    damaged.check()


def test_rows_that_did_not_all_come_are_not_used(damaged):
    offset = damaged.damage[1]
    damaged.tell_lake(offset)
    rows = _rows_at(damaged, offset)
    with pytest.raises(ConflictError, match="not sent"):
        damaged.give_up(offset, len(rows))
    damaged.send(offset, rows[:2])
    with pytest.raises(ConflictError, match=rf"expected {len(rows)}, found 2"):
        damaged.give_up(offset, len(rows))
    with pytest.raises(ConflictError, match="expected part 1, found 2"):
        damaged.send(offset, rows[2:], part=2)
    with pytest.raises(InvalidRecordError, match="ascend"):
        damaged.send(offset, rows[1:], part=1)
    with pytest.raises(ConflictError, match="not sent"):
        damaged.send(offset + 1, rows[2:], part=1)
    with pytest.raises(InvalidRecordError, match="ascend"):
        damaged.send(rows[-1]["__offset"], rows)
    damaged.send(offset, rows)
    damaged.tablet.clock.advance(3_600_000)
    damaged.tablet.service._expire()
    with pytest.raises(ConflictError, match="not sent"):
        damaged.give_up(offset, len(rows))
    assert look(damaged.tablet).ranges[0].start_offset == damaged.damage[0]
