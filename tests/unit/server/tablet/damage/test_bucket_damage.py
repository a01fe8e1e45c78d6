"""Giving up what cannot be read of a log: what must be held elsewhere before, what stays, and a crash at any step."""

import json
import threading
import tracemalloc

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    StorageError,
    UnavailableError,
    UnsupportedError,
    UntieredRecordsError,
    error_from_code,
)
from fluss_lab.records.batch import read_header
from fluss_lab.records.sealed import seal_content, unseal_content
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.damage import log_cut
from fluss_lab.server.tablet.damage.damaged_ranges import damaged_ranges
from tests.unit.server.tablet.kv_kit import TABLE_ID as KEYED_ID
from tests.unit.server.tablet.kv_kit import KvTablet, upserts
from tests.unit.server.tablet.tablet_kit import SCHEMA, TABLE_ID, Tablet, batch, records_in

RECORDS = 48
STEP = 2
LAKE = {"table__datalake__enabled": "true"}


def batches(path):
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        found.append((at, read_header(data, at)))
        at += found[-1][1].size
    return found


def flip(path, which):
    """Turn a bit in a batch over; return the batch's offsets."""
    at, header = batches(path)[which]
    data = bytearray(path.read_bytes())
    data[at + header.size - 1] ^= 1
    path.write_bytes(bytes(data))
    return header.base_offset, header.next_offset


def segments(tablet):
    return sorted(tablet.folder.glob("**/data/*/b0/*.log"))


def look(tablet):
    return tablet.service.describe_damage(pb.DescribeDamageRequest(table_id=_table_id(tablet), bucket_id=0))


def _table_id(tablet):
    return TABLE_ID if isinstance(tablet, Tablet) else KEYED_ID


def ranges(tablet):
    return [(each.start_offset, each.stop_offset) for each in look(tablet).ranges]


def give_up(tablet, start, stop, *, discard=False):
    request = pb.GiveUpRangeRequest(
        table_id=_table_id(tablet), bucket_id=0, start_offset=start, stop_offset=stop, discard_before=discard
    )
    return tablet.service.give_up_range(request).log_start_offset


def read(tablet, offset):
    """Ids from an offset on, or the error."""
    found = []
    while True:
        answer, data = tablet.fetch({0: offset})[0]
        if answer.HasField("error_code"):
            return found, error_from_code(answer.error_code, answer.error_message)
        if not data:
            return found, None
        some = [record for record in records_in(data) if record.offset >= offset]
        found += [record.id for record in some]
        offset = some[-1].offset + 1


def filled(folder, **properties):
    """Some segments of a few batches, by one writer, all on the device."""
    made = Tablet(folder, log__segment__file_size="1kb", log__index__interval_size="64b")
    made.open(0, **properties)
    for number in range(RECORDS // STEP):
        made.produce({0: batch(number * STEP, STEP, writer_id=7, sequence=number)})
        made.clock.advance(10)
    made.service.flush()
    return made


def again(tablet, **properties):
    reopened = tablet.reopen(clean=False)
    reopened.open(0, **properties)
    return reopened


def test_what_is_being_written_is_no_damage(tmp_path):
    """Half of a batch, then it and one behind it: as a look may find what an append puts there meanwhile."""
    tablet = filled(tmp_path)
    path = segments(tablet)[-1]
    sound = path.read_bytes()
    at, last = batches(path)[-1]
    later = bytearray(sound[at:])
    later[:8] = (last.next_offset + STEP).to_bytes(8, "little")
    path.write_bytes(sound + sound[at : at + last.size // 2] + bytes(later))
    assert ranges(tablet) == []
    path.write_bytes(sound)
    tablet.produce({0: batch(RECORDS, STEP, writer_id=7, sequence=RECORDS // STEP)})
    assert read(tablet, 0) == ([*range(RECORDS + STEP)], None)


def test_a_log_that_is_written_and_expires_while_it_is_looked_at_is_sound(tmp_path):
    tablet = filled(tmp_path, table__log__ttl="1s")
    done, looks = threading.Event(), []

    def use():
        number = RECORDS // STEP
        while not done.is_set():
            tablet.produce({0: batch(number * STEP, STEP, writer_id=7, sequence=number)})
            tablet.clock.advance(50)
            tablet.service.apply_retention()
            number += 1

    thread = threading.Thread(target=use)
    thread.start()
    try:
        while len(looks) < 100:
            try:
                looks.append(ranges(tablet))
            except UnavailableError:
                looks.append([])  # it went too fast, and nothing was said of it
    finally:
        done.set()
        thread.join()
    assert looks == [[]] * 100
    assert tablet.describe()[0].log_end_offset > RECORDS


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


def test_segments_that_are_gone_from_the_beginning(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    first, second = segments(tablet)[:2]
    first.unlink()
    tablet = again(tablet)
    assert ranges(tablet) == [(0, int(second.stem))]
    assert read(tablet, int(second.stem))[1] is None
    assert give_up(tablet, 0, int(second.stem)) == int(second.stem)
    assert not tablet.produce({0: batch(RECORDS, 1)})[0].HasField("error_code")


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


def test_a_newer_format_is_no_damage(tmp_path):
    tablet = filled(tmp_path)
    tablet.service.close()
    path = segments(tablet)[-1]
    at, header = batches(path)[-1]
    data = bytearray(path.read_bytes())
    data[at + 12] = 9
    path.write_bytes(bytes(data))
    tablet = again(tablet)
    path.with_name("recovery-point").unlink()
    tablet = again(tablet)
    with pytest.raises(UnsupportedError):
        ranges(tablet)
    with pytest.raises(UnsupportedError):
        give_up(tablet, header.base_offset, header.next_offset, discard=True)


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


def _newer(path):
    value = json.loads(unseal_content(path.read_bytes()))
    path.write_bytes(seal_content(json.dumps(value | {"version": 2}).encode()))


@pytest.mark.parametrize(
    ("damage", "kind", "text"),
    [
        (_cut_off, CorruptDataError, "checksum"),
        (_of_another, CorruptDataError, "expected what was given up of bucket"),
        (_newer, UnsupportedError, "newer version"),
    ],
)
def test_what_was_given_up_is_told_or_an_error(tmp_path, damage, kind, text):
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


def test_a_look_at_many_batches_keeps_none_of_them(tmp_path):
    """Two looks at logs of which one has ten times as many batches as the other need the same memory."""
    one = batch(0, 1)
    peaks = []
    for count in (6_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        damaged = bytearray(one)
        damaged[-1] ^= 1
        places = (count // 2, count - 100)
        data = [(damaged if at in places else one)[8:] for at in range(count)]
        (folder / f"{0:020d}.log").write_bytes(
            b"".join(at.to_bytes(8, "little") + rest for at, rest in enumerate(data))
        )
        del data
        tracemalloc.start()
        found = [(each.start, each.stop) for each in damaged_ranges(folder, {1: SCHEMA}, count)]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == [(at, at + 1) for at in places]
    # What is read at once is 4 MB; the search behind bad places has arrays of some more.
    assert peaks[1] < peaks[0] + (8 << 20), peaks


# -- primary-key tables --------------------------------------------------------------------------------------------------


def keyed(folder):
    made = KvTablet(folder, log__segment__file_size="1kb", log__index__interval_size="64b").open(0)
    for turn in range(16):
        made.put(upserts(turn % 3, 4, f"t{turn}"), writer_id=7, sequence=turn)
        made.clock.advance(10)
    made.service.flush()
    return made


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
