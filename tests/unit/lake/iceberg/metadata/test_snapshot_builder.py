"""Compactions as commits: the same rows in other files, on condition, with a tag; and how log tables read through them."""

import json
import random
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.typedef import Record
from sqlalchemy import text

from fluss_lab.errors import CommitConflictError, LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits
from fluss_lab.lake.iceberg.metadata.snapshot_builder import TagRequest, stage_delete, stage_replace, stage_row_delta
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, snapshot_state
from fluss_lab.lake.reader_interfaces import FetchContext, LookupContext
from fluss_lab.model import LakeOffset
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.changelogs import commit_files, state_of
from tests.unit.lake.conftest import EPOCH_MS, records, summary
from tests.unit.lake.iceberg.commit.test_row_delta import assert_totals, check, keyed
from tests.unit.lake.rounds import RETENTION_MS, keyed_result, tags

COLUMNS = {"id": "bigint", "v": "string"}


def replaced(lake, info, planned, *, removed, added, tags=(), commit_id=None, more=None) -> int:
    """Commit a replace; it tells what the newest snapshot of ours does."""
    known = lake.committer(info).newest_lake_snapshot()
    carried = {} if known is None else {key: known.properties[key] for key in ("fluss-bucket-offset", "commit-user")}
    given = carried | {"fluss-commit-id": commit_id or uuid.uuid4().hex} | (more or {})

    def stage(current):
        return stage_replace(current, removed=removed, added=added, summary=given, tags=tags)

    return SnapshotCommits(lake.storage.access, info.path, "compaction").commit(stage, planned, given)


def log_table(lake, files=4, each=5):
    info = lake.table(COLUMNS, buckets=2)
    for number in range(files):
        lake.append(info, batch(info, each, number * each), number * each)
    return info


def batch(info, count, first=0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": first + i, "v": f"v{first + i}"} for i in range(count)], schema=info.schema.arrow_schema
    )


def compacted(lake, info) -> tuple[int, int]:
    """Merge all files of bucket 0 of a log table; return the snapshots before and after."""
    planned = lake.load(info).metadata.current_snapshot()
    old = [each.file for each in state_of(lake, info)[(None, 0)].data]
    count = sum(file.record_count for file in old)
    new = lake.write(info, records(batch(info, count))).files
    after = replaced(lake, info, planned.snapshot_id, removed=old, added=[(f, planned.sequence_number) for f in new])
    return planned.snapshot_id, after


def test_log_tables_read_the_same_through_a_compaction(lake):
    info = log_table(lake)
    before, after = compacted(lake, info)
    expected = [f"v{i}" for i in range(20)]
    source = lake.storage.create_lake_source(info)
    assert [len(source.plan(snapshot_id)) for snapshot_id in (before, after)] == [4, 1]
    for snapshot_id in (before, after):
        assert lake.rows(info, snapshot_id).column("v").to_pylist() == expected
        assert lake.rows(info, snapshot_id, stops={(None, 0): 7}).column("v").to_pylist() == expected[:7]
    later = lake.append(info, batch(info, 3, 20), 20)
    assert lake.rows(info, later).column("v").to_pylist() == [f"v{i}" for i in range(23)]
    assert duckdb_rows(lake.load(info).metadata_location).num_rows == 23
    assert_totals(lake, info)


def test_a_compaction_leaves_one_manifest_and_one_of_all_that_it_emptied(lake):
    """Whoever reads its snapshot opens every manifest, and each round before had written one."""
    info = log_table(lake, files=12)
    assert counts(lake, info) == [(1, 0)] * 12
    compacted(lake, info)
    assert sorted(counts(lake, info)) == [(0, 12), (1, 0)]
    lake.append(info, batch(info, 3, 60), 60)
    assert counts(lake, info) == [(1, 0)] * 2


def counts(lake, info) -> list[tuple[int, int]]:
    """Return the added and deleted entries of each manifest of the newest snapshot."""
    table = lake.load(info)
    return [(each.added_files_count, each.deleted_files_count) for each in table.current_snapshot().manifests(table.io)]


def test_the_log_is_fetched_and_sought_through_a_compaction(lake):
    info = log_table(lake)
    _, after = compacted(lake, info)
    log = lake.storage.create_fluss_log_source(info)
    runs = log.fetch_log_records(FetchContext(3, 17, None, 0, after))
    assert [offset for run in runs for offset in run.offsets.to_pylist()] == list(range(3, 17))
    assert log.lookup_log_offset_by_timestamp(LookupContext(None, 0, EPOCH_MS + 11, after)) == (11, EPOCH_MS + 11)
    assert log.earliest_offset(None, 0, after) == 0


def test_a_replace_of_ours_is_what_recovery_finds(lake):
    info = log_table(lake)
    before, after = compacted(lake, info)
    committer = lake.committer(info)
    missing = committer.missing_lake_snapshot(before)
    assert missing is not None
    assert (missing.snapshot_id, missing.offsets[(None, 0)]) == (after, LakeOffset(20, EPOCH_MS + 19))
    assert committer.missing_lake_snapshot(after) is None
    assert lake.load(info).metadata.current_snapshot().summary.operation.value == "replace"


def test_a_replace_is_conditional_on_its_plan(lake):
    info = log_table(lake)
    planned = lake.load(info).metadata.current_snapshot_id
    old = [each.file for each in state_of(lake, info)[(None, 0)].data]
    newest = lake.append(info, batch(info, 1, 20), 20)
    with pytest.raises(CommitConflictError, match="plan it again"):
        replaced(lake, info, planned, removed=old, added=[])
    assert lake.load(info).metadata.current_snapshot_id == newest


def test_a_file_that_is_not_there_cannot_be_replaced(lake):
    info = log_table(lake)
    old = [each.file for each in state_of(lake, info)[(None, 0)].data]
    before, after = compacted(lake, info)
    metadata = {path for path in lake.folder.rglob("*") if path.suffix in {".avro", ".json"}}
    with pytest.raises(CommitConflictError, match=f"is not in snapshot {after} any more"):
        replaced(lake, info, after, removed=old[:1], added=[])
    assert {path for path in lake.folder.rglob("*") if path.suffix in {".avro", ".json"}} == metadata
    assert lake.load(info).metadata.current_snapshot_id == after != before


def test_the_tag_comes_with_the_snapshot(lake):
    info = log_table(lake)
    planned = lake.load(info).metadata.current_snapshot_id
    tag = TagRequest("before", planned, RETENTION_MS)
    replaced(lake, info, planned, removed=[], added=[], tags=[tag])
    assert tags(lake, info) == {"before": tag}
    assert lake.load(info).metadata.refs["main"].snapshot_id != planned


def test_an_equality_delete_since_the_plan_applies_to_rewritten_rows(lake):
    """A file's data sequence number is that of the planned snapshot, so what was deleted since stays deleted."""
    table = keyed(lake, buckets=1, **{"table.datalake.delete-mode": "equality"})
    log = table.logs[0]
    for number in range(4):
        log.upsert({"id": number, "name": "x"})
    table.round()
    planned = lake.load(table.info).metadata.current_snapshot()
    old = state_of(lake, table.info)[(None, 0)].data
    copy = keyed_result(lake, table.info, log, 0).files
    log.delete((2,))
    table.round()
    newest = lake.load(table.info).metadata.current_snapshot_id
    replaced(
        lake,
        table.info,
        newest,
        removed=[each.file for each in old],
        added=[(file, planned.sequence_number) for file in copy],
    )
    rows = duckdb_rows(lake.load(table.info).metadata_location)
    assert sorted(rows.column("id").to_pylist()) == [0, 1, 3]
    state = state_of(lake, table.info)[(None, 0)]
    assert [each.data_sequence_number for each in state.data] == [planned.sequence_number]
    assert [(each.is_equality, each.data_sequence_number) for each in state.deletes] == [(True, 2)]


def test_files_can_be_taken_out(lake):
    """As the drop of a partition does it: data and delete files together."""
    table = keyed(lake)
    table.change(random.Random(6), 60)
    table.round()
    table.change(random.Random(7), 60)
    table.round()
    state = state_of(lake, table.info)[(None, 1)]
    gone = [each.file for each in (*state.data, *state.deletes)]
    assert state.deletes
    given = summary()

    def stage(current):
        return stage_delete(current, gone, given)

    planned = lake.load(table.info).metadata.current_snapshot_id
    SnapshotCommits(lake.storage.access, table.info.path, "drop").commit(stage, planned, given)
    assert set(state_of(lake, table.info)) == {(None, 0)}
    assert set(duckdb_rows(lake.load(table.info).metadata_location).column("__bucket").to_pylist()) == {0}
    assert_totals(lake, table.info)
    assert lake.load(table.info).metadata.current_snapshot().summary.operation.value == "delete"


@pytest.mark.slow
def test_random_replaces_and_rounds_of_one_process_and_another(lake, seed):
    """What one process keeps decoded is what another reads."""
    rng = random.Random(seed)
    table = keyed(lake)
    for turn in range(8):
        table.change(rng, 15)
        table.round(rng.choice([1, 2]))
        table.compact(rng.randrange(2), ours=rng.random() < 0.5)
        loaded = lake.load(table.info)
        kept, fresh = (
            snapshot_state(table.info, loaded, loaded.metadata.current_snapshot_id, entries)
            for entries in (lake.storage._entry_cache(), EntryCache())
        )
        assert described(kept) == described(fresh), turn
    check(table)


def described(state) -> dict:
    return {
        key: (
            [(each.file.file_path, each.min_offset, each.max_offset, each.data_sequence_number) for each in found.data],
            [(each.file.file_path, each.data_sequence_number, each.is_equality) for each in found.deletes],
        )
        for key, found in state.items()
        if found.data or found.deletes
    }


def test_buckets_are_described_for_writers(lake):
    table = keyed(lake)
    table.logs[0].upsert({"id": 0, "name": "a"})
    table.logs[0].upsert({"id": 2, "name": "a"})
    first = table.round()
    table.logs[0].upsert({"id": 4, "name": "a"})
    second = table.round()
    buckets = [(None, 0), (None, 1)]
    assert lake.factory.describe_buckets(table.info, buckets, None) == {}
    found = lake.factory.describe_buckets(table.info, buckets, second)
    assert list(found) == [(None, 0)]
    assert [file[1:] for file in found[(None, 0)]["files"]] == [[0, 1, 2], [2, 2, 1]]
    assert json.loads(json.dumps(found[(None, 0)])) == found[(None, 0)]
    before = lake.factory.describe_buckets(table.info, buckets, first)
    assert [file[1:] for file in before[(None, 0)]["files"]] == [[0, 1, 2]]
    with pytest.raises(LakeSnapshotNotFoundError):
        lake.factory.describe_buckets(table.info, buckets, 99)
    log = lake.table(COLUMNS, name="log", table_id=8)
    assert lake.factory.describe_buckets(log, buckets, None) == {}


def delete_file(spec_id=0, partition=(0,), **more) -> DataFile:
    """A delete file that only manifests know of."""
    values = {
        "content": DataFileContent.POSITION_DELETES,
        "file_path": f"file:///nowhere/{uuid.uuid4().hex}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": 1,
        "file_size_in_bytes": 100,
    } | more
    file = DataFile.from_args(**values)
    file.spec_id = spec_id
    return file


def test_deletion_vectors_are_refused(lake):
    table = keyed(lake, buckets=1)
    table.logs[0].upsert({"id": 0, "name": "a"})
    table.round()
    commit_files(lake, table.info, [], [delete_file(file_format=FileFormat.PUFFIN)])
    with pytest.raises(UnsupportedError, match="PUFFIN"):
        state_of(lake, table.info)


def test_equality_deletes_of_everything_are_among_every_buckets(lake):
    """Of an unpartitioned spec: equality deletes apply everywhere, position deletes to none of our files."""
    table = keyed(lake)
    for number in range(4):
        table.logs[number % 2].upsert({"id": number, "name": "a"})
    table.round()
    loaded = lake.load(table.info)
    spec = UNPARTITIONED_PARTITION_SPEC.model_copy(update={"spec_id": 1})
    loaded.catalog.commit_table(loaded, (), (AddPartitionSpecUpdate(spec=spec),))
    everywhere = delete_file(1, (), content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    nowhere = delete_file(1, ())
    commit_files(lake, table.info, [], [everywhere, nowhere])
    state = state_of(lake, table.info)
    assert sorted(state) == [(None, 0), (None, 1)]
    for found in state.values():
        assert [(each.file.file_path, each.is_equality) for each in found.deletes] == [(everywhere.file_path, True)]


def test_delete_files_of_others_are_known_by_their_partition(lake):
    table = keyed(lake)
    table.logs[1].upsert({"id": 1, "name": "a"})
    table.round()
    theirs = delete_file(partition=(1,))
    commit_files(lake, table.info, [], [theirs])
    state = state_of(lake, table.info)
    assert [each.file.file_path for each in state[(None, 1)].deletes] == [theirs.file_path]
    assert state[(None, 1)].deletes[0].data_sequence_number == 2


def test_a_table_that_somebody_upgraded_is_refused(lake):
    table = keyed(lake, buckets=1)
    table.logs[0].upsert({"id": 0, "name": "a"})
    snapshot_id = table.round()
    loaded = lake.load(table.info)
    path = Path(loaded.metadata_location.removeprefix("file://"))
    newer = path.with_name(f"00099-{uuid.uuid4()}.metadata.json")
    newer.write_text(json.dumps(json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}))
    with loaded.catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :new"), {"new": f"file://{newer}"})
    with pytest.raises(UnsupportedError, match="upgraded it to format version 3"):
        state_of(lake, table.info)
    with pytest.raises(UnsupportedError, match="format version"):
        table.round()
    assert lake.load(table.info).metadata.current_snapshot_id == snapshot_id


def test_delete_manifests_are_listed_as_such(lake):
    table = keyed(lake, buckets=1)
    commit_files(lake, table.info, [], [delete_file(), delete_file()])
    loaded = lake.load(table.info)
    (manifest,) = loaded.metadata.current_snapshot().manifests(loaded.io)
    assert (manifest.content, manifest.added_files_count, manifest.min_sequence_number) == (
        ManifestContent.DELETES,
        2,
        1,
    )


def test_merged_deletes_carry_the_sequence_number_they_are_given(lake):
    table = keyed(lake, buckets=1)
    loaded = lake.load(table.info)
    one = delete_file()
    commit_files(lake, table.info, [], [one])
    commit_files(lake, table.info, [], [delete_file()])
    table.logs[0].upsert({"id": 0, "name": "a"})
    table.round()
    planned = lake.load(table.info).metadata.current_snapshot_id
    merged = delete_file()
    replaced(lake, table.info, planned, removed=[one], added=[(merged, 1)])
    state = state_of(lake, table.info)[(None, 0)]
    assert [(each.file.file_path == merged.file_path, each.data_sequence_number) for each in state.deletes] == [
        (True, 1),
        (False, 2),
    ]
    assert loaded.metadata.current_snapshot_id is None


def test_a_row_delta_of_a_stale_table_is_refused_by_the_catalog(lake):
    table = keyed(lake, buckets=1)
    stale = lake.load(table.info)
    staged = stage_row_delta(stale, [], [], summary())
    table.round()
    with pytest.raises(Exception, match="main"):
        lake.storage.access.commit("x", stale, staged.requirements, staged.updates)
    staged.discard()
