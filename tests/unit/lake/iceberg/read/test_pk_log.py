"""A primary-key table's log read back from Iceberg: record for record, whatever compactions and expiries did since."""

import json
import random

import pytest
from pyiceberg.types import LongType

from fluss_lab.errors import (
    CorruptDataError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
)
from fluss_lab.lake import LookupContext
from fluss_lab.lake.snapshot_summary import REPLAY_START_KEY
from fluss_lab.testing.conformance.catalogs import alter
from tests.readers import foreign
from tests.unit.lake.changelogs import Changelog, commit_files, snapshot_split, state_of, written
from tests.unit.lake.conftest import Lake
from tests.unit.lake.foreign import bare_position_deletes
from tests.unit.lake.keyed_logs import check_log, compact_keeping, copied, exchange, expected, fetched, newest
from tests.unit.lake.rounds import Round
from tests.unit.lake.upkeep import DAY_MS, HOUR_MS, Upkeep, keyed_lake

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["position", "equality"])
def test_every_record_comes_back_through_random_histories(lake, seed, mode):
    """Rounds cut into splits, compactions of ours that keep and drop, and (not with equality deletes) of others."""
    rng = random.Random(seed)
    keyed = keyed_lake(lake, buckets=2, properties={"table.datalake.delete-mode": mode})
    upkeep = Upkeep(lake, keyed.info)
    kept: list[tuple[int, dict[int, int]]] = []
    source = lake.storage.create_fluss_log_source(keyed.info)
    for _ in range(14):
        keyed.change(rng, rng.randrange(20), keys=30)
        kept.append((keyed.round(rng.choice([1, 1, 2, 3])), dict(keyed.tiered)))
        match rng.randrange(6):
            case 0 | 1:
                upkeep.compact(force=rng.random() < 0.7)
            case 2:
                compact_keeping(upkeep)
            case 3 if mode == "position":
                foreign.compact(lake.load(keyed.info), rng)
        again = rng.choice([source, None])
        check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng, source=again)
        # An older snapshot reads as it was.
        snapshot_id, ends = rng.choice(kept)
        check_log(lake, keyed.info, keyed.logs, ends, rng, snapshot_id=snapshot_id, source=again)


def test_what_expired_is_out_of_range_and_the_rest_is_exact(lake, seed):
    rng = random.Random(seed)
    given = {
        "table.datalake.snapshots-min": 2,
        "table.datalake.changelog-retention": "30h",
        "table.datalake.snapshot-retention": "3h",
    }
    keyed = keyed_lake(lake, properties=given)
    upkeep = Upkeep(lake, keyed.info)
    source = lake.storage.create_fluss_log_source(keyed.info)
    starts: dict[int, int] = {}
    for turn in range(14):
        keyed.change(rng, rng.randrange(1, 20), keys=20)
        keyed.round()
        if rng.random() < 0.6:
            upkeep.compact()
        upkeep.clock.advance(rng.randrange(9 * HOUR_MS))
        if turn > 3 and rng.random() < 0.6:
            starts = {bucket: offset for (_, bucket), offset in upkeep.expire(fewest=1).replay_starts.items()}
            # Whoever has the table loaded learns of it.
            keyed.round()
        check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng, starts=starts, source=rng.choice([source, None]))


def test_a_tag_that_expires_under_a_reader_is_reported_and_asking_again_helps(lake):
    keyed = keyed_lake(lake, properties={"table.datalake.snapshots-min": 1})
    upkeep = Upkeep(lake, keyed.info)
    rng = random.Random(5)
    for _ in range(3):
        keyed.change(rng, 20)
        keyed.round()
    upkeep.compact()
    end = keyed.tiered[0]
    keyed.change(rng, 20)
    snapshot_id = keyed.round()
    source = Lake(lake.folder).storage.create_fluss_log_source(keyed.info)
    assert source.earliest_offset(None, 0, snapshot_id) == 0
    upkeep.clock.advance(8 * DAY_MS)
    assert upkeep.expire(keep=1).replay_starts == {(None, 0): end}
    with pytest.raises(LakeSnapshotNotFoundError):
        fetched(source, 0, keyed.tiered[0], snapshot_id)
    with pytest.raises(OffsetOutOfRangeError, match=str(end)):
        fetched(source, 0, keyed.tiered[0], snapshot_id)
    with pytest.raises(OffsetOutOfRangeError, match=str(end)):
        fetched(source, end - 1, keyed.tiered[0], snapshot_id)
    assert fetched(source, end, keyed.tiered[0], snapshot_id) == expected(keyed.logs[0], end, keyed.tiered[0])


def test_a_snapshot_that_is_gone_is_reported_by_every_question(lake):
    keyed = keyed_lake(lake)
    keyed.change(random.Random(1), 5)
    wrong = keyed.round() + 1
    source = lake.storage.create_fluss_log_source(keyed.info)
    for ask in (
        lambda: fetched(source, 0, 1, wrong),
        lambda: source.earliest_offset(None, 0, wrong),
        lambda: source.lookup_log_offset_by_timestamp(LookupContext(None, 0, 0, wrong)),
    ):
        with pytest.raises(LakeSnapshotNotFoundError):
            ask()


def test_a_first_round_from_a_snapshot_is_state_and_no_log(lake, seed):
    """Rows keep their old offsets and times; the log begins where the snapshot was taken."""
    rng = random.Random(seed)
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    keyed.change(rng, 50)
    start = log.end
    first = snapshot_split(log)
    keyed.change(rng, 20)
    rounds = [
        written(lake, keyed.info, first, alone=False),
        written(lake, keyed.info, log.run(start, log.end), alone=False),
    ]
    committer = lake.committer(keyed.info)
    done = Round(None, rounds, {0: log.end}, committer)
    keyed.commit(done, **{REPLAY_START_KEY: json.dumps([{"bucket": 0, "offset": start}])})
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng, starts={0: start})
    keyed.change(rng, 20)
    keyed.round()
    Upkeep(lake, keyed.info).compact()
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng, starts={0: start})


def test_bare_deletes_of_others_are_no_events(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(7)
    keyed.change(rng, 20)
    keyed.round()
    (file, *_) = state_of(lake, keyed.info)[(None, 0)].data
    bare = bare_position_deletes(lake.load(keyed.info), keyed.info, [(file.file.file_path, 0)])
    commit_files(lake, keyed.info, [], [bare])
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng)


def test_events_that_are_missing_are_named(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for number in range(10):
        log.upsert({"id": number, "name": "a"})
    for number in (3, 4):
        log.delete((number,))
    log.upsert({"id": 3, "name": "b"})
    keyed.round()
    exchange(lake.load(keyed.info), [each.file for each in state_of(lake, keyed.info)[(None, 0)].deletes], [])
    source = lake.storage.create_fluss_log_source(keyed.info)
    with pytest.raises(CorruptDataError, match=r"\[10, 12\) are missing"):
        fetched(source, 0, 13, newest(lake, keyed.info))
    assert fetched(source, 12, 13, newest(lake, keyed.info)) == expected(log, 12, 13)


def test_records_that_are_there_twice_are_named(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for number in range(10):
        log.upsert({"id": number, "name": "a"})
    log.delete((3,))
    keyed.round()
    state = state_of(lake, keyed.info)[(None, 0)]
    source = lake.storage.create_fluss_log_source(keyed.info)
    for file in (state.data[0].file, state.deletes[0].file):
        exchange(lake.load(keyed.info), [], [copied(file, "again." + file.file_path.rpartition("/")[2])])
        with pytest.raises(CorruptDataError, match="more than once"):
            fetched(source, 5, 11, newest(lake, keyed.info))


def test_a_range_may_begin_in_the_middle_of_an_update(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    log.upsert({"id": 1, "name": "a"})
    keyed.round()
    log.upsert({"id": 1, "name": "b"})
    log.upsert({"id": 2, "name": "c"})
    snapshot_id = keyed.round()
    source = lake.storage.create_fluss_log_source(keyed.info)
    for start in range(4):
        assert fetched(source, start, 4, snapshot_id) == expected(log, start, 4)


def test_a_seek_opens_one_data_file_and_one_delete_file(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for turn in range(6):
        for number in range(20 * turn, 20 * turn + 20):
            log.upsert({"id": number, "name": "a"})
        for number in range(20 * turn, 20 * turn + 10):
            log.delete((number,))
        snapshot_id = keyed.round()
    state = state_of(lake, keyed.info)[(None, 0)]
    assert (len(state.data), len(state.deletes)) == (6, 6)
    # Of a round: rows at [0, 20), events at [20, 30).
    for offset in (30 * 3 + 5, 30 * 3 + 20, 30 * 3 + 27):
        other = Lake(lake.folder)
        kept = {each.file.file_path for each in (state.data[3], state.deletes[3])}
        held = {}
        for path in lake.folder.rglob("*.parquet"):
            if f"file://{path}" not in kept:
                held[path] = path.read_bytes()
                path.write_bytes(b"broken")
        source = other.storage.create_fluss_log_source(keyed.info)
        wanted = log.log[offset].timestamp_ms
        found = source.lookup_log_offset_by_timestamp(LookupContext(None, 0, wanted - 1, snapshot_id))
        assert found == (offset, wanted)
        for path, data in held.items():
            path.write_bytes(data)


def test_rows_that_were_ended_are_read_by_field_id(lake):
    """Columns that somebody renamed and widened in the lake, and one that was added: old events and new ones."""
    columns = {"id": "int not null", "n": "int", "s": "row<a int, b string>"}
    info = lake.table(columns, primary_key=["id"], buckets=1)
    log = Changelog(info.schema.arrow_schema, ("id",))

    def round_of(number: int) -> None:
        start = log.end
        for key in (1, 2, 3):
            log.upsert({"id": key, "n": key * number, "s": {"a": number, "b": "x"}})
        log.delete((2,))
        lake.commit(info, written(lake, info, log.run(start, log.end)))

    round_of(1)
    round_of(2)
    with lake.load(info).update_schema() as update:
        update.update_column("n", LongType()).rename_column("n", "amount").add_column("theirs", LongType())
    round_of(3)
    check_log(lake, info, {0: log}, {0: log.end}, random.Random(1))
    new = alter(info, extra="int")
    lake.catalog.alter_table(new)
    more = Changelog(new.schema.arrow_schema, log.key, log.log, log.live)
    for record in more.log:
        record.row["extra"] = None
    start = more.end
    more.upsert({"id": 1, "n": 7, "s": None, "extra": 5})
    more.upsert({"id": 1, "n": 8, "s": None, "extra": 6})
    lake.commit(new, written(lake, new, more.run(start, more.end)))
    source = lake.storage.create_fluss_log_source(new)
    for names in (None, ("extra", "id"), ("s",)):
        found = fetched(source, 0, more.end, newest(lake, new), names=names)
        assert found == expected(more, 0, more.end, names)
