"""Putting rows: the changelog tells exactly what changed, once, and a put that fails changes nothing."""

import random
import threading

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    CorruptDataError,
    DuplicateSequenceError,
    InvalidRecordError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageError,
    UnsupportedError,
    error_from_code,
)
from fluss_lab.records.batch import encode
from fluss_lab.server.kv import row_chunks
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.merge_engines import Partial
from tests.unit.server.tablet.kv_kit import (
    AFTER,
    BEFORE,
    DELETE,
    INSERT,
    TABLE_ID,
    TYPES,
    Event,
    KvTablet,
    Model,
    joined,
    put_batch,
    upserts,
)
from tests.unit.server.tablet.tablet_kit import Tablet, batch


@pytest.fixture
def tablet(tmp_path):
    service = KvTablet(tmp_path).open(0)
    yield service
    service.service.close()


def _refused(tablet, data, error, text, columns=()):
    """A payload is refused with an error, and nothing changes."""
    before = tablet.changelog()
    answer = tablet.put_bytes({0: data}, columns)[0]
    found = error_from_code(answer.error_code, answer.error_message)
    assert type(found) is error, found
    assert text in str(found)
    assert tablet.changelog() == before


def test_an_upsert_is_an_insert_then_an_update_with_the_old_row(tablet):
    assert tablet.put([{"id": 1, "name": "a", "score": 5}]) == (0, 1)
    assert tablet.put([{"id": 1, "name": "b", "score": 5}]) == (1, 3)
    assert tablet.changelog() == [
        Event(0, INSERT, (1, "a", 5), -1),
        Event(1, BEFORE, (1, "a", 5), 0),
        Event(2, AFTER, (1, "b", 5), 0),
    ]
    assert tablet.lookup(1) == [{"id": 1, "name": "b", "score": 5}]


def test_a_delete_logs_the_old_row_and_of_an_absent_key_nothing(tablet):
    tablet.put(upserts(0, 3))
    assert tablet.delete(1, 99) == (3, 4)
    assert tablet.changelog(3) == [Event(3, DELETE, (1, "n-1", 1), 1)]
    assert tablet.delete(1) == (4, 4)
    assert tablet.lookup(0, 1, 2)[1] is None


def test_a_partial_update_keeps_the_other_columns(tablet):
    tablet.put(upserts(1, 1))
    tablet.put([{"id": 1, "score": 50}, {"id": 2, "score": 60}], columns=["id", "score"])
    assert tablet.lookup(1, 2) == [{"id": 1, "name": "n-1", "score": 50}, {"id": 2, "name": None, "score": 60}]


def test_duplicates_in_a_batch_follow_one_another(tablet):
    model = Model()
    rows = [{"id": 1, "name": name, "score": 0} for name in "abc"]
    tablet.put(rows)
    for row in rows:
        model.upsert(row)
    model.check(tablet)


def test_random_puts_leave_what_the_model_has(tmp_path, seed):
    chance = random.Random(seed)
    tablet, model = KvTablet(tmp_path, log__segment__file_size="8kb").open(0), Model()
    for _ in range(120):
        rows, changes = [], []
        columns = chance.choice([None, None, ["id", "score"], ["id", "name"]])
        for _ in range(chance.randrange(12)):
            row = {"id": chance.randrange(25), "name": chance.choice([None, "x", "y"]), "score": chance.randrange(3)}
            # (A delete of some columns is another thing: it makes them null.)
            change = chance.choice([AFTER, AFTER, AFTER, AFTER if columns else DELETE])
            rows.append(row)
            changes.append(change)
            if change == DELETE:
                model.delete(row["id"])
            else:
                model.upsert(row, columns)
        tablet.put(rows, changes, columns=columns)
    assert len(tablet.bucket().log.segments) > 3
    model.check(tablet)
    model.check(tablet.reopen(clean=chance.random() < 0.5))


def test_a_retry_is_answered_with_the_offsets_of_the_changelog(tablet):
    first = tablet.put(upserts(0, 3), writer_id=5, sequence=0)
    second = tablet.put(upserts(0, 3, "m"), writer_id=5, sequence=1)
    assert (first, second) == ((0, 3), (3, 9))
    assert tablet.put(upserts(0, 3, "m"), writer_id=5, sequence=1) == second
    assert tablet.put(upserts(0, 3), writer_id=5, sequence=0) == first
    assert len(tablet.changelog()) == 9
    assert tablet.lookup(0)[0]["name"] == "m-0"


def test_a_retry_is_known_after_a_restart(tablet):
    tablet.put(upserts(0, 3), writer_id=5, sequence=0)
    assert tablet.delete(77, writer_id=5, sequence=1) == (3, 3)
    again = tablet.reopen(clean=False)
    assert again.put(upserts(0, 3), writer_id=5, sequence=0) == (0, 3)
    assert again.delete(77, writer_id=5, sequence=1) == (3, 3)
    assert again.put(upserts(3, 1), writer_id=5, sequence=2) == (3, 4)


def test_another_batch_of_a_number_that_was_used_is_refused(tablet):
    tablet.put(upserts(0, 3), writer_id=5, sequence=0)
    with pytest.raises(DuplicateSequenceError, match=r"sequence 0 of writer 5: another batch .*\[0, 3\)"):
        tablet.put(upserts(1, 3), writer_id=5, sequence=0)
    again = tablet.reopen(clean=True)
    with pytest.raises(DuplicateSequenceError):
        again.put(upserts(1, 3), writer_id=5, sequence=0)
    assert again.put(upserts(0, 3), writer_id=5, sequence=0) == (0, 3)
    assert len(again.changelog()) == 3


def test_a_batch_that_changes_nothing_uses_no_offset_and_its_sequence_survives(tablet):
    tablet.put(upserts(0, 2), writer_id=5, sequence=0)
    assert tablet.put(upserts(0, 2), writer_id=5, sequence=1) == (2, 2)
    assert tablet.put([], writer_id=5, sequence=2) == (2, 2)
    assert tablet.put(upserts(9, 1), writer_id=5, sequence=3) == (2, 3)
    with pytest.raises(OutOfOrderSequenceError):
        tablet.put(upserts(9, 1), writer_id=5, sequence=5)


def test_without_a_writer_a_batch_that_changes_nothing_is_not_even_logged(tablet):
    tablet.put(upserts(0, 2))
    size = tablet.bucket().log.segments.size_bytes
    assert tablet.put(upserts(0, 2)) == (2, 2)
    assert tablet.bucket().log.segments.size_bytes == size


def test_answers_say_where_the_log_ends(tablet):
    answer = tablet.put_bytes({0: put_batch(upserts(0, 4))})[0]
    assert (answer.base_offset, answer.end_offset, answer.log_end_offset) == (0, 4, 4)


def test_timestamps_are_the_servers_and_never_go_back(tablet):
    tablet.put(upserts(0, 1))
    tablet.clock.set_wall(tablet.clock.now_ms() - 500)
    tablet.put(upserts(1, 1))
    rows, _ = tablet.scan()
    assert rows[0]["__timestamp"] == rows[1]["__timestamp"]


# -- what is refused ---------------------------------------------------------------------------------------------------

GOOD = put_batch(upserts(0, 2))


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", InvalidRecordError, "exactly one batch"),
        (GOOD + GOOD, InvalidRecordError, "exactly one batch, found 2"),
        (GOOD[:-1], CorruptDataError, "does not fit"),
        (GOOD[:60] + bytes([GOOD[60] ^ 1]) + GOOD[61:], CorruptDataError, "CRC"),
        (put_batch(upserts(0, 2), [1, 3]), InvalidRecordError, "change types 3"),
        (put_batch(upserts(0, 2), [3, 2]), InvalidRecordError, "found 2"),
        (put_batch(upserts(0, 2), [0, 3]), InvalidRecordError, "found 0"),
        (put_batch(upserts(0, 2), [3, 200]), InvalidRecordError, "found 200"),
        (put_batch([{"id": None, "name": "x"}]), InvalidRecordError, "null in column 'id'"),
        (put_batch(upserts(0, 1), schema_id=9), NotLeaderError, "does not know yet"),
        (put_batch(upserts(0, 1), schema_id=0), InvalidRecordError, "schema id"),
        (put_batch(upserts(0, 1), writer_id=3), InvalidRecordError, "batch sequence"),
        (put_batch(upserts(0, 1), writer_id=3, sequence=4), OutOfOrderSequenceError, "must be 0"),
        (put_batch([{"id": 1}], types={"id": "int"}), InvalidRecordError, "not Arrow of its schema"),
        (batch(0, 2), InvalidRecordError, "attributes"),
    ],
)  # fmt: skip
def test_a_bad_payload_is_refused_whole(tablet, data, error, text):
    tablet.put(upserts(100, 2))
    _refused(tablet, data, error, text)


def test_a_compressed_body_is_refused(tablet):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("score", pa.int32())])
    rows = pa.record_batch(
        [pa.array([1] * 1000), pa.array(["x"] * 1000), pa.array([1] * 1000, pa.int32())], schema=schema
    )

    class Packed:
        num_rows = 1000

        def serialize(self):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                writer.write_batch(rows)
            reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
            reader.read_next_message()
            return reader.read_next_message().serialize()

    _refused(
        tablet, joined(encode(Packed(), schema_id=1, change_types=bytes([3] * 1000))), InvalidRecordError, "compressed"
    )


@pytest.mark.parametrize(
    ("columns", "text"), [((1, 2), "'id' is missing"), ((2, 0), "ascending"), ((0, 3), "[0, 3)"), ((0, 0), "ascending")]
)
def test_target_columns_that_cannot_be_are_refused(tablet, columns, text):
    _refused(tablet, GOOD, InvalidRecordError, text, columns)


def test_a_null_for_a_not_null_column_is_refused_whole(tmp_path):
    types = {"id": "bigint", "name": "string not null", "score": "int"}
    tablet = KvTablet(tmp_path, types=types).open(0)
    tablet.put([{"id": 1, "name": "a", "score": 1}])
    for rows, columns in (([{"id": 2, "name": "b"}, {"id": 1}], None), ([{"id": 2, "score": 3}], ["id", "score"])):
        with pytest.raises(InvalidRecordError, match="name"):
            tablet.put(rows, columns=columns)
    tablet.delete(1)
    assert len(tablet.changelog()) == 2


def test_appending_to_a_primary_key_table_and_putting_to_a_log_table_are_refused(tmp_path, tablet):
    answer = tablet.produce(batch(0, 2))
    assert isinstance(error_from_code(answer.error_code, ""), UnsupportedError)
    assert "primary key" in answer.error_message
    logs = Tablet(tmp_path / "logs")
    logs.open(0)
    answer = KvTablet.put_bytes(logs, {0: GOOD}, table_id=7)[0]
    assert isinstance(error_from_code(answer.error_code, ""), UnsupportedError)
    assert "no primary key" in answer.error_message


def test_one_buckets_failure_is_in_its_own_answer(tmp_path):
    tablet = KvTablet(tmp_path).open(0, 1)
    answers = tablet.put_bytes({0: b"x", 1: GOOD, 2: GOOD})
    assert (answers[0].error_code, answers[2].error_code) == (3, 12)
    assert not answers[1].HasField("error_code")
    assert (answers[1].base_offset, answers[1].end_offset) == (0, 2)


def test_a_changelog_too_large_for_an_answer_is_refused_whole(tmp_path):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0)
    wide = [{"id": i, "name": "x" * 1000, "score": 0} for i in range(600)]
    tablet.put(wide)
    # Small as it comes, but every row is logged twice.
    with pytest.raises(RecordTooLargeError, match="send smaller batches"):
        tablet.put([{"id": i, "score": 1} for i in range(600)], columns=["id", "score"])
    assert len(tablet.changelog()) == 600
    assert tablet.put([{"id": i, "score": 1} for i in range(300)], columns=["id", "score"]) == (600, 1200)


@pytest.mark.parametrize("change", [AFTER, DELETE])
def test_one_wide_row_that_a_batch_updates_often_is_not_copied_as_often(tmp_path, monkeypatch, change):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0)
    # Among many small ones it is not to be seen in their average.
    tablet.put(upserts(0, 5_000))
    tablet.put([{"id": 7, "name": "x" * 400_000, "score": 0}])
    monkeypatch.setattr(Partial, "complete", None)
    with pytest.raises(RecordTooLargeError, match=r"10000 rows have 40000\d{5} bytes"):
        tablet.put([{"id": 7, "score": i} for i in range(10_000)], [change] * 10_000, columns=["id", "score"])
    monkeypatch.undo()
    assert tablet.put([{"id": 7, "score": 1}], columns=["id", "score"]) == (5_002, 5_004)


def test_wide_rows_that_a_small_batch_deletes_are_counted_before_they_are_gathered(tmp_path, monkeypatch):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0)
    tablet.put(upserts(0, 5_000))
    for i in range(20):
        tablet.put([{"id": i, "name": "x" * 400_000, "score": 0}])
    monkeypatch.setattr(row_chunks, "take_columns", None)
    with pytest.raises(RecordTooLargeError, match="smaller batches"):
        tablet.put([{"id": i} for i in range(20)], [DELETE] * 20)
    monkeypatch.undo()
    assert tablet.put([{"id": 3}], [DELETE]) == (5_040, 5_041)


def test_a_retry_is_known_though_the_limit_was_lowered_since(tablet):
    """Refused as too large it would be cut by its writer, and its second half be written under the next number."""
    rows = [{"id": i, "name": "x" * 1000, "score": i} for i in range(100)]
    assert tablet.put(rows, writer_id=4, sequence=0) == (0, 100)
    again = tablet.reopen(server__request_size_max="64kb")
    assert again.put(rows, writer_id=4, sequence=0) == (0, 100)
    with pytest.raises(RecordTooLargeError):
        again.put(rows, writer_id=4, sequence=1)
    assert len(again.changelog()) == 100
    again.service.close()


def test_a_retry_of_appends_is_known_though_the_limit_was_lowered_since(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(0)
    data = batch(0, 5_000, writer_id=4, sequence=0)
    assert tablet.produce({0: data})[0].end_offset == 5_000
    tablet.options["server.request-size-max"] = "64kb"
    tablet = tablet.reopen()
    tablet.open(0)
    found = tablet.produce({0: data})[0]
    assert (found.error_message, found.base_offset, found.end_offset) == ("", 0, 5_000)
    for other in (batch(1, 5_000, writer_id=4, sequence=0), batch(0, 5_000, writer_id=4, sequence=1), data + b"x"):
        assert "send smaller batches" in tablet.produce({0: other})[0].error_message
    tablet.service.close()


# -- all or nothing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", ["tablet.previous.before_write", "tablet.previous.after_write", "tablet.append.before_write",
              "tablet.append.after_write"]
)  # fmt: skip
def test_a_write_that_fails_changes_nothing_and_the_next_one_goes_on(tablet, point):
    model = Model()
    for row in upserts(0, 5):
        model.upsert(row)
    tablet.put(upserts(0, 5), writer_id=4, sequence=0)
    failpoints.arm(point, "enospc")
    with pytest.raises(StorageError, match="nothing was appended"):
        tablet.put(upserts(3, 9, "m"), writer_id=4, sequence=1)
    model.check(tablet)
    failpoints.disarm()
    tablet.put(upserts(4, 2, "k"), writer_id=4, sequence=1)
    for row in upserts(4, 2, "k"):
        model.upsert(row)
    model.check(tablet)
    model.check(tablet.reopen(clean=False))


def test_the_changelog_is_in_the_log_before_the_rows_change(tablet, monkeypatch):
    seen = []
    commit = KvStore.commit

    def watched(store, change, timestamp_ms):
        seen.append((tablet.bucket().log.end, store.log_offset))
        commit(store, change, timestamp_ms)

    monkeypatch.setattr(KvStore, "commit", watched)
    tablet.put(upserts(0, 3))
    tablet.put(upserts(0, 3, "m"))
    assert seen == [(3, 0), (9, 3)]


def test_previous_offsets_are_written_before_their_batch(tablet):
    tablet.put(upserts(0, 3))
    failpoints.arm("tablet.append.before_write", "enospc")
    with pytest.raises(StorageError):
        tablet.put(upserts(1, 1, "m"))
    paths = tablet.bucket().log.reader.view.segments[-1].previous.paths()
    assert [path.stat().st_size for path in paths] == [5 * 8, 2 * 12]


def test_a_commit_that_fails_is_made_good_from_the_log(tablet, monkeypatch):
    tablet.put(upserts(0, 3))
    with monkeypatch.context() as patch:
        patch.setattr(KvStore, "commit", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
        assert tablet.put(upserts(0, 3, "m")) == (3, 9)
    assert tablet.lookup(1)[0]["name"] == "m-1"
    assert tablet.put(upserts(7, 1)) == (9, 10)
    assert tablet.reopen().lookup(1, 7) == tablet.lookup(1, 7)


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_an_older_writer_is_served_after_columns_were_added(tablet):
    tablet.put(upserts(0, 2))
    old = dict(tablet.types)
    tablet.alter(city="string")
    tablet.put(
        [{"id": 0, "name": "n-0", "score": 0, "city": "Ulm"}, {"id": 5, "name": "z", "score": 5, "city": "Bonn"}]
    )
    tablet.put([{"id": 5, "score": 6}], columns=["id", "score"], types=old, schema_id=1)
    tablet.put(upserts(7, 1), types=old, schema_id=1)
    found = tablet.lookup(0, 1, 5, 7)
    assert [row["city"] for row in found] == ["Ulm", None, "Bonn", None]
    assert tablet.reopen(clean=False).lookup(0, 1, 5, 7) == found
    assert [row["score"] for row in found] == [0, 1, 6, 0]


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["ack", "fsync"])
def test_writers_at_once_leave_a_changelog_that_leads_to_the_rows(tmp_path, seed, durability):
    tablet = KvTablet(tmp_path, log__durability=durability, log__segment__file_size="16kb").open(0)
    problems = []

    def write(writer_id):
        chance = random.Random(seed + writer_id)
        try:
            for sequence in range(25):
                rows = [{"id": chance.randrange(40), "name": f"{writer_id}", "score": sequence} for _ in range(5)]
                changes = [chance.choice([AFTER, AFTER, DELETE]) for _ in rows]
                first = tablet.put(rows, changes, writer_id=writer_id, sequence=sequence, timeout_ms=5_000)
                if chance.random() < 0.2:
                    assert tablet.put(rows, changes, writer_id=writer_id, sequence=sequence) == first
                if chance.random() < 0.2:
                    tablet.service.flush()
                    tablet.scan()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(writer_id,)) for writer_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    events = tablet.changelog()
    Model.of(events).check(tablet)
    replayed = Model()
    for event in events:
        if event.change in {INSERT, AFTER}:
            replayed.upsert(dict(zip(TYPES, event.row, strict=True)))
        elif event.change == DELETE:
            replayed.delete(event.row[0])
    assert replayed.events == events
    assert tablet.bucket().id.table_id == TABLE_ID
