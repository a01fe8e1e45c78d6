"""The writer of primary-key tables: what readers see after every round, and every event whole."""

import json
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import CommitConflictError, CorruptDataError
from fluss_lab.lake.iceberg.write import delete_writer
from fluss_lab.model import ChangeType
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.changelogs import (
    Changelog,
    Record,
    commit_cut,
    commit_results,
    events_of,
    expected_rows,
    keyed_writer,
    log_records,
    result_files,
    same_rows,
    snapshot_split,
    written,
)
from tests.unit.lake.conftest import EPOCH_MS
from tests.unit.lake.iceberg.table.test_type_mapping import TYPES
from tests.unit.lake.iceberg.write.pk_split_kit import (
    change,
    changelog,
    files_on_disk,
    keyed,
    row,
    seen_by_all,
)

pytestmark = pytest.mark.slow


def seen_through_filters(lake, info, log: Changelog, rng: random.Random) -> None:
    """A filter must prune no delete that it needs: of the row's columns, delete files say nothing that it could go by."""
    expected, table = expected_rows(lake, info, log), lake.load(info)
    for column, value in (
        ("__offset", rng.randrange(log.end)),
        ("id", rng.randrange(60)),
        ("pos", rng.randrange(1000)),
    ):
        for sign, compare in (("<=", pc.less_equal), (">", pc.greater)):
            wanted = expected.filter(compare(expected.column(column), value))
            assert same_rows(table.scan(row_filter=f"{column} {sign} {value}").to_arrow(), wanted)
            query = f"select * from lake where {column} {sign} {value}"
            assert same_rows(duckdb_rows(table.metadata_location, query), wanted)


# -- random rounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [{}, {"iceberg.write.target-file-size-bytes": "1", "iceberg.write.parquet.row-group-limit": "37"}],
    ids=["one file a round", "many files"],
)
def test_readers_see_the_model_after_every_round(lake, seed, monkeypatch, properties):
    rng = random.Random(seed)
    monkeypatch.setattr(delete_writer, "EVENTS_MAX", rng.choice([40, 1_000_000]))
    info = keyed(lake, properties=properties)
    log = changelog(info)
    for _ in range(7):
        start = log.end
        change(log, rng, rng.choice([1, 30, 200]), 60)
        result = written(lake, info, *log.runs(start, log.end, rng))
        assert events_of(lake, info, result.deletes) == log.ends(start, log.end)
        assert (result.row_count + result.event_count, result.unplaced) == (log.end - start, ())
        commit_results(lake, info, result)
        seen_by_all(lake, info, log)
    seen_through_filters(lake, info, log, rng)


def test_cut_splits_and_a_snapshot_split_with_its_log(lake, seed):
    """The first round begins in the middle of the log, and every round is cut anywhere."""
    rng = random.Random(seed)
    info = keyed(lake)
    log = changelog(info)
    change(log, rng, 200, 50)
    start, snapshot = log.end, snapshot_split(log)
    for round_number in range(4):
        change(log, rng, 200, 50)
        cuts = [start, *sorted(rng.sample(range(start + 1, log.end), 2)), log.end]
        splits = [written(lake, info, *log.runs(cuts[n], cuts[n + 1], rng), split=n, alone=False) for n in range(3)]
        if round_number == 0:
            splits.append(written(lake, info, snapshot, split=3, alone=False))
            assert (splits[-1].row_count, splits[-1].event_count) == (len(snapshot), 0)
        commit_cut(lake, info, splits)
        start = log.end
        seen_by_all(lake, info, log)


# -- types -------------------------------------------------------------------------------------------------------------


def test_values_of_every_type(lake, seed):
    rng = random.Random(seed)
    names = {"id": "bigint not null"} | {f"c{index}": dtype for index, dtype in enumerate(TYPES)}
    info = keyed(lake, names)
    log = changelog(info)
    for _ in range(3):
        start = log.end
        for _ in range(60):
            values = (None if rng.random() < 0.2 else rng.choice(choices) for choices in TYPES.values())
            if rng.random() < 0.2:
                log.delete((rng.randrange(20),))
            else:
                log.upsert({"id": rng.randrange(20)} | dict(zip(list(names)[1:], values, strict=True)))
        result = written(lake, info, *log.runs(start, log.end, rng))
        assert plain(events_of(lake, info, result.deletes)) == plain(written_rows(info, log.ends(start, log.end)))
        commit_results(lake, info, result)
        seen_by_all(lake, info, log)


def written_rows(info, ends):
    """Return events with their rows as Arrow gives them back."""
    rows = pa.Table.from_pylist([each[-1] for each in ends], schema=info.schema.arrow_schema).to_pylist()
    return [(*each[:-1], row) for each, row in zip(ends, rows, strict=True)]


def plain(events) -> str:
    return json.dumps(events, default=str)


KEYS = ["tinyint", "smallint", "int", "bigint", "string", "char(3)", "bytes", "binary(2)", "decimal(5,2)",
        "decimal(38,10)", "date", "time(3)", "time(6)", "timestamp(3)", "timestamp(6)", "timestamp_ltz(3)", "timestamp_ltz(6)"]  # fmt: skip


@pytest.mark.parametrize("dtype", KEYS)
def test_every_type_that_a_key_can_have(lake, dtype):
    info = keyed(lake, {"k": f"{dtype} not null", "b": "boolean not null", "v": "int"}, ("k", "b"), bucket_key=["k"])
    log = changelog(info)
    keys = [(value, flag) for value in TYPES[dtype] for flag in (True, False)]
    for _ in range(2):
        start = log.end
        for number, (key, flag) in enumerate(keys * 2):
            log.upsert({"k": key, "b": flag, "v": number})
        log.delete(keys[-1])
        commit_results(lake, info, written(lake, info, log.run(start, log.end)))
        seen_by_all(lake, info, log)
    # The same by key: the file names both columns of the key.
    start = log.end
    log.upsert({"k": keys[0][0], "b": True, "v": -1})
    (file,) = written(lake, info, log.run(start, log.end), files=[]).deletes
    assert file.equality_ids == [1, 2]
    assert set(file.lower_bounds) <= {1, 2}


# -- what comes in -----------------------------------------------------------------------------------------------------


def test_a_split_without_records(lake):
    info = keyed(lake)
    result = keyed_writer(lake, info).complete()
    assert (result.files, result.deletes, result.unplaced) == ((), (), ())
    assert result.start_offset == result.end_offset
    assert files_on_disk(lake) == set()


def test_a_split_of_deletes_alone(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    for key in range(20):
        log.upsert(row(key, rng))
    commit_results(lake, info, written(lake, info, log.run(0, 20)))
    for key in range(15):
        log.delete((key,))
    result = written(lake, info, log.run(20, 35))
    assert (result.files, len(result.deletes), result.row_count, result.event_count) == ((), 1, 0, 15)
    assert (result.start_offset, result.end_offset, result.max_timestamp_ms) == (20, 35, EPOCH_MS + 34 * 3)
    commit_results(lake, info, result)
    seen_by_all(lake, info, log)


def test_a_key_that_comes_changes_and_goes_within_one_split(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    log.upsert(row(0, rng))
    for _ in range(11):
        log.upsert(row(1, rng))
    log.delete((1,))
    log.upsert(row(2, rng))
    result = written(lake, info, *(log.run(offset, offset + 1) for offset in range(log.end)))
    assert (result.row_count, result.event_count) == (13, 11)
    assert events_of(lake, info, result.deletes) == log.ends(0, log.end)
    commit_results(lake, info, result)
    seen_by_all(lake, info, log)


def test_inserts_alone_have_no_delete_file(lake):
    """As of the merge engine ``first_row``."""
    info = keyed(lake, properties={"table.merge-engine": "first_row"})
    log, rng = changelog(info), random.Random(1)
    for key in range(30):
        log.upsert(row(key, rng))
    result = written(lake, info, log.run(0, 10), log.run(10, 30))
    assert (result.deletes, result.row_count) == ((), 30)
    commit_results(lake, info, result)
    seen_by_all(lake, info, log)


def test_offsets_and_times_of_any_size(lake):
    info = keyed(lake)
    first, last, late_ms = 2**40, 2**62, 253_402_300_799_000
    before = log_records(info.schema.arrow_schema, [change_of(ChangeType.INSERT, 1, -1, 0)], [first])
    commit_results(lake, info, written(lake, info, before))
    found = [
        change_of(ChangeType.UPDATE_BEFORE, 1, first, 5),
        change_of(ChangeType.UPDATE_AFTER, 1, first, 5),
        change_of(ChangeType.DELETE, 1, last, late_ms),
    ]
    result = written(lake, info, log_records(info.schema.arrow_schema, found, [last - 1, last, last + 1]))
    assert [each[:4] for each in events_of(lake, info, result.deletes)] == [
        (last - 1, "-U", first, 5), (last + 1, "-D", last, late_ms)
    ]  # fmt: skip
    commit_results(lake, info, result)
    assert len(lake.load(info).scan().to_arrow()) == 0


def change_of(kind: ChangeType, key: int, previous: int, timestamp_ms: int) -> Record:
    return Record(kind, {"id": key, "pos": None, "file_path": None, "row": None}, previous, timestamp_ms)


def test_records_of_a_partition(lake):
    info = keyed(
        lake, {"p": "string", "id": "int", "v": "string"}, ("p", "id"), partitioned_by=["p"], bucket_key=["id"]
    )
    logs = {name: changelog(info) for name in ("a b/c", "ü" * 90)}
    for _ in range(2):
        results = []
        for name, log in logs.items():
            start = log.end
            for key in range(12):
                log.upsert({"p": name, "id": key, "v": f"{name}{start}"})
            log.delete((name, 3))
            results.append(written(lake, info, log.run(start, log.end), partition=name))
        commit_results(lake, info, *results)
    table = lake.load(info)
    for name, log in logs.items():
        expected = expected_rows(lake, info, log)
        for found in (table.scan().to_arrow(), duckdb_rows(table.metadata_location)):
            assert same_rows(found.filter(pc.equal(found.column("p"), name)), expected)


def test_a_column_that_was_added_between_rounds(lake, seed):
    rng = random.Random(seed)
    info = keyed(lake, {"id": "bigint not null", "v": "string"})
    log = changelog(info)
    for key in range(30):
        log.upsert({"id": key, "v": f"v{key}"})
    commit_results(lake, info, written(lake, info, log.run(0, 30)))
    wider = lake.info({"id": "bigint not null", "v": "string", "w": "row<a int>"}, primary_key=["id"], buckets=1)
    lake.catalog.alter_table(wider)
    log.schema = wider.schema.arrow_schema
    for each in log.log:
        each.row["w"] = None
    for _ in range(2):
        start = log.end
        for _ in range(30):
            log.upsert({"id": rng.randrange(40), "v": "new", "w": {"a": rng.randrange(9)}})
        commit_results(lake, info, written(lake, wider, log.run(start, log.end)))
        seen_by_all(lake, wider, log)


# -- placing -----------------------------------------------------------------------------------------------------------


def test_events_whose_row_is_gone_from_the_lake_are_kept_as_deletes_by_key(lake):
    """Somebody removed a file: the events of its rows lose nothing."""
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    for key in range(20):
        log.upsert(row(key, rng))
    halves = [written(lake, info, log.run(0, 10)), written(lake, info, log.run(10, 20))]
    commit_results(lake, info, *halves)
    start = log.end
    for key in range(5, 15):
        log.upsert(row(key, rng))
    result = written(lake, info, log.run(start, log.end), files=result_files(halves[0]))
    assert sorted(file.content.name for file in result.deletes) == ["EQUALITY_DELETES", "POSITION_DELETES"]
    assert [file.record_count for file in result.deletes] == [5, 5]
    assert events_of(lake, info, result.deletes) == log.ends(start, log.end)


def test_a_row_in_two_live_files_stops_the_round(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    log.upsert(row(1, rng))
    twice = [written(lake, info, log.run(0, 1)) for _ in range(2)]
    log.delete((1,))
    writer = keyed_writer(lake, info, files=[file for result in twice for file in result_files(result)])
    writer.write(log.run(1, 2))
    with pytest.raises(CorruptDataError, match="one live row"):
        writer.complete()
    writer.abort()


def test_a_file_that_is_gone_plans_the_round_again(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    log.upsert(row(1, rng))
    first = written(lake, info, log.run(0, 1))
    files = result_files(first)
    lake.load(info).io.delete(files[0].path)
    log.upsert(row(1, rng))
    writer = keyed_writer(lake, info, files=files)
    writer.write(log.run(1, 3))
    with pytest.raises(CommitConflictError):
        writer.complete()
    writer.abort()
    assert files_on_disk(lake) == set()


def test_a_split_that_is_not_alone_leaves_only_rows_of_other_splits_unplaced(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    for key in range(10):
        log.upsert(row(key, rng))
    commit_results(lake, info, written(lake, info, log.run(0, 10)))
    for key in (20, 21, 0, 20, 21, 22, 22, 1):
        log.upsert(row(key, rng))
    cut = 13  # behind the first of 20 and 21, and of the update of 0
    result = written(lake, info, log.run(cut, log.end), alone=False)
    assert [each[2] for each in events_of(lake, info, result.unplaced)] == [10, 11]
    assert all(previous not in {10, 11} for _, _, previous, _, _ in events_of(lake, info, result.deletes))
    assert events_of(lake, info, [*result.deletes, *result.unplaced]) == log.ends(cut, log.end)
    assert (result.file_count, result.event_count) == (3, len(log.ends(cut, log.end)))
    serializer = lake.factory.write_result_serializer()
    assert serializer.deserialize(serializer.version, serializer.serialize(result)) == result


# -- delete mode equality ----------------------------------------------------------------------------------------------


def test_equality_mode_deletes_by_key_and_by_position_within_the_split(lake):
    info = keyed(lake, properties={"table.datalake.delete-mode": "equality"})
    log, rng = changelog(info), random.Random(1)
    for key in range(10):
        log.upsert(row(key, rng))
    commit_results(lake, info, written(lake, info, log.run(0, 10)))
    for key in (0, 1, 1, 2, 30, 30):
        log.upsert(row(key, rng))
    log.delete((2,))
    result = written(lake, info, log.run(10, log.end))
    kinds = {file.content.name: events_of(lake, info, [file]) for file in result.deletes}
    assert {each[2] < 10 for each in kinds["EQUALITY_DELETES"]} == {True}
    assert {each[2] < 10 for each in kinds["POSITION_DELETES"]} == {False}
    assert events_of(lake, info, result.deletes) == log.ends(10, log.end)
    commit_results(lake, info, result)
    table = lake.load(info)
    assert same_rows(duckdb_rows(table.metadata_location), expected_rows(lake, info, log))


def test_equality_mode_of_a_split_that_is_not_alone(lake):
    info = keyed(lake, properties={"table.datalake.delete-mode": "equality"})
    log, rng = changelog(info), random.Random(1)
    for key in range(10):
        log.upsert(row(key, rng))
    commit_results(lake, info, written(lake, info, log.run(0, 10)))
    for key in (20, 0, 20, 21, 21):
        log.upsert(row(key, rng))
    result = written(lake, info, log.run(11, log.end), alone=False)
    assert [each[2] for each in events_of(lake, info, result.unplaced)] == [10]
    kinds = {file.content.name: events_of(lake, info, [file]) for file in result.deletes}
    assert [each[2] for each in kinds["EQUALITY_DELETES"]] == [0]
    assert events_of(lake, info, [*result.deletes, *result.unplaced]) == log.ends(11, log.end)
