"""Splits of a primary-key table that cannot be written, are given up, or are long."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import InternalError, StorageError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.write import delete_writer
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile
from fluss_lab.model.json_codec import from_plain
from fluss_lab.records import LogRecords
from tests.unit.lake.changelogs import (
    commit_results,
    events_of,
    keyed_writer,
    offset_files,
    state_of,
    written,
)
from tests.unit.lake.conftest import EPOCH_MS
from tests.unit.lake.iceberg.write.pk_split_kit import (
    change,
    changelog,
    files_on_disk,
    keyed,
    row,
    seen_by_all,
)

# -- failures ----------------------------------------------------------------------------------------------------------


def test_records_that_are_no_changes_are_refused(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    log.upsert(row(1, rng))
    log.upsert(row(1, rng))
    good = log.run(0, 3)

    def refused(change_types=good.change_types, previous=good.previous_offsets):
        writer = keyed_writer(lake, info)
        with pytest.raises(InternalError, match=r"expected a change|need change types"):
            writer.write(LogRecords(good.rows, good.offsets, good.timestamps_ms, change_types, previous))

    refused(change_types=None)
    refused(previous=None)
    refused(change_types=pa.array([0, 0, 0], pa.int8()))
    refused(change_types=pa.array([1, 2, 7], pa.int8()))
    refused(previous=pa.array([-1, -1, 0], pa.int64()))
    refused(previous=pa.array([-1, 1, 0], pa.int64()))


def test_offsets_must_ascend(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    for key in range(10):
        log.upsert(row(key, rng))
    writer = keyed_writer(lake, info)
    writer.write(log.run(3, 6))
    with pytest.raises(InternalError, match="expected offsets from 6, found 5"):
        writer.write(log.run(5, 7))


@pytest.mark.parametrize("step", ["lake.write.after_file", "lake.write.after_delete_file"])
def test_a_failure_leaves_nothing_behind(lake, step, monkeypatch):
    monkeypatch.setattr(delete_writer, "EVENTS_MAX", 30)
    info = keyed(lake, properties={"iceberg.write.target-file-size-bytes": "1"})
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 200, 20)
    writer = keyed_writer(lake, info)
    failpoints.arm(step, "error")
    with pytest.raises(FailpointError):
        write_all(writer, log)
    failpoints.disarm()
    writer.abort()
    assert files_on_disk(lake) == set()


def write_all(writer, log):
    for start in range(0, log.end, 10):
        writer.write(log.run(start, min(start + 10, log.end)))
    return writer.complete()


def test_abort_removes_what_was_written(lake, monkeypatch):
    monkeypatch.setattr(delete_writer, "EVENTS_MAX", 30)
    info = keyed(
        lake, properties={"iceberg.write.target-file-size-bytes": "1", "iceberg.write.parquet.row-group-limit": "20"}
    )
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 200, 20)
    writer = keyed_writer(lake, info)
    for start in range(0, log.end - 10, 10):
        writer.write(log.run(start, start + 10))
    assert len(files_on_disk(lake)) > 4
    writer.abort()
    assert files_on_disk(lake) == set()


def test_a_folder_that_cannot_be_written_is_a_storage_error(lake):
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 20, 5)
    folder = lake.folder / "warehouse" / "db" / "t-7" / "data"
    folder.write_text("a file in the way")
    writer = keyed_writer(lake, info)
    writer.write(log.run(0, log.end))
    with pytest.raises(StorageError, match="Not a directory"):
        writer.complete()
    writer.abort()


def test_files_are_durable_when_the_writer_is_done(lake, monkeypatch):
    """Every file, and every folder up to the table's, is synced after it was written."""
    from fluss_lab.lake.iceberg.files import durable_io

    synced = []
    for name in ("fsync_path", "fsync_folder"):
        real = getattr(durable_io, name)
        monkeypatch.setattr(durable_io, name, lambda path, real=real: (synced.append(str(path)), real(path)))
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 100, 20)
    result = written(lake, info, log.run(0, log.end))
    assert result.files
    assert result.deletes
    for file in result.all_files:
        path = file.file_path.removeprefix("file://")
        assert path in synced
        assert path.rpartition("/")[0] in synced[synced.index(path) :]


def test_memory_does_not_grow_with_the_split(lake):
    """What is held beside a row group and gathered events: a bit an offset."""
    info = keyed(lake, {"id": "bigint not null", "v": "bigint"})
    writer = keyed_writer(lake, info)
    count, keys = 50_000, 1000
    held = []
    for number in range(12):
        base = number * 2 * count
        offsets = np.arange(base, base + 2 * count, dtype=np.int64)
        first = number == 0
        ids = np.repeat(np.arange(count) % keys, 2)
        kinds = np.tile(np.array([2, 3], dtype=np.int8), count)
        previous = np.repeat(offsets[1::2] - 2 * keys, 2)
        if first:
            kinds[: 2 * keys], previous[: 2 * keys] = 1, -1
            ids[: 2 * keys] = np.arange(10**6, 10**6 + 2 * keys)
            previous[2 * keys : 4 * keys] = np.repeat(offsets[1 : 2 * keys : 2], 2)
        rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(offsets)], schema=info.schema.arrow_schema)
        stamps = pa.array(offsets // 10 + EPOCH_MS)
        writer.write(LogRecords(rows, pa.array(offsets), stamps, pa.array(kinds), pa.array(previous)))
        held.append(sum(packed.nbytes for _, packed in writer._own._blocks))
    result = writer.complete()
    assert result.row_count + result.event_count == 12 * 2 * count
    assert {file.content.name for file in result.deletes} == {"POSITION_DELETES"}
    assert held[-1] <= 12 * 2 * count / 8 + 10_000


def test_batches_of_one_record_are_gathered_in_little_memory(lake):
    """A log of single upserts: what Arrow spends on each batch is given back long before a row group is full."""
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 1500, 40)
    writer = keyed_writer(lake, info)
    for offset in range(log.end):
        writer.write(log.run(offset, offset + 1))
        assert len(writer._rows._gathered._runs) < 300
        assert len(writer._deletes._gathered._runs) < 300
    result = writer.complete()
    assert events_of(lake, info, result.deletes) == log.ends(0, log.end)
    commit_results(lake, info, result)
    seen_by_all(lake, info, log)


def test_tasks_need_nothing_but_json(lake):
    """What describes the bucket goes through JSON, and no catalog is asked: its file is gone."""
    info = keyed(lake)
    log, rng = changelog(info), random.Random(1)
    change(log, rng, 50, 10)
    commit_results(lake, info, written(lake, info, log.run(0, log.end)))
    start = log.end
    change(log, rng, 50, 10)
    snapshot = lake.committer(info).current_snapshot_id()
    described = json.loads(json.dumps(lake.factory.describe_buckets(info, [(None, 0)], snapshot)[None, 0]))
    files = from_plain(list[OffsetFile], described["files"], "files")
    assert files == offset_files(lake, info)
    writer = keyed_writer(lake, info, files=files)
    hidden = lake.folder / "catalog"
    hidden.rename(lake.folder / "hidden")
    writer.write(log.run(start, log.end))
    result = writer.complete()
    (lake.folder / "hidden").rename(hidden)
    commit_results(lake, info, result)
    seen_by_all(lake, info, log)
    assert len(state_of(lake, info)[None, 0].deletes) == 2
