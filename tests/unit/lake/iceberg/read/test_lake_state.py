"""Rows of primary-key tables out of Iceberg snapshots: at any stop, whoever deleted rows and however."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import GreaterThanOrEqual

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError, OffsetOutOfRangeError
from fluss_lab.lake import splits_from_json, splits_to_json
from fluss_lab.lake.iceberg.read.bucket_deletes import EndedCache, MergedEnds
from fluss_lab.lake.lake_splits import LakeSplit
from fluss_lab.model.json_codec import to_plain
from tests.unit.lake.changelogs import commit_files, state_of
from tests.unit.lake.foreign import bare_position_deletes, equality_deletes
from tests.unit.lake.rounds import KeyedLake
from tests.unit.lake.upkeep import DAY_MS, Upkeep, keyed_lake

pytestmark = pytest.mark.slow

KEY = (None, 0)


class Reading:
    """Reads one bucket, as it was at a stop."""

    def __init__(self, keyed: KeyedLake) -> None:
        self.keyed = keyed
        self.source = keyed.lake.storage.create_lake_source(keyed.info)

    @property
    def snapshot(self) -> int:
        return self.keyed.lake.load(self.keyed.info).metadata.current_snapshot_id

    def splits(self, stop: int | None = None, **options) -> list[LakeSplit]:
        return self.source.plan(self.snapshot, stops=None if stop is None else {KEY: stop}, **options)

    def offsets(self, stop: int | None = None, *, columns=("__offset",), **options) -> list[int]:
        stops = None if stop is None else {KEY: stop}
        splits = self.splits(stop)
        found = [
            offset
            for _, batch in self.source.read(splits, list(columns), stops=stops, **options)
            for offset in batch.column("__offset").to_pylist()
        ]
        if options.get("where") is None:
            assert self.source.count(splits, stops=stops, **options) == len(found)
        return found

    def expected(self, stop: int | None = None) -> list[int]:
        log = self.keyed.logs[0].log[: self.keyed.tiered[0] if stop is None else stop]
        live: set[int] = set()
        for offset, record in enumerate(log):
            live.discard(record.previous)
            if record.kind.symbol in {"+I", "+U"}:
                live.add(offset)
        return sorted(live)

    def check(self, *stops: int) -> None:
        for stop in (None, *stops):
            assert self.offsets(stop) == self.expected(stop), stop


def rounds(lake, rng, count=3, each=12, **definition) -> KeyedLake:
    keyed = keyed_lake(lake, **definition)
    for _ in range(count):
        keyed.change(rng, each, keys=12)
        keyed.round()
    return keyed


def deleted_at(keyed: KeyedLake) -> list[tuple[str, int]]:
    """Return path and position of every row of the newest snapshot's data files, ended ones among them, by offset."""
    found = []
    for each in state_of(keyed.lake, keyed.info)[KEY].data:
        offsets = pq.read_table(each.file.file_path.removeprefix("file://"), columns=["__offset"]).column(0).to_pylist()
        found += [(offset, each.file.file_path, at) for at, offset in enumerate(offsets)]
    return [(path, at) for _, path, at in sorted(found)]


@pytest.mark.parametrize("mode", ["position", "equality"])
def test_every_stop_of_both_delete_modes(lake, rng, mode):
    keyed = rounds(lake, rng, properties={"table.datalake.delete-mode": mode})
    kinds = {each.is_equality for each in state_of(lake, keyed.info)[KEY].deletes}
    assert (mode == "equality") == (True in kinds)
    Reading(keyed).check(*range(keyed.tiered[0] + 2))


def test_a_stop_before_a_compaction_that_dropped_rows(lake, rng):
    """The rows that it dropped are in the snapshot before it, which a tag keeps; later ones are in the newest."""
    keyed = rounds(lake, rng, each=20)
    upkeep = Upkeep(lake, keyed.info)
    ends = [keyed.tiered[0]]
    for _ in range(2):
        assert upkeep.compact().tag is not None
        keyed.change(rng, 20, keys=12)
        keyed.round()
        ends.append(keyed.tiered[0])
    reading = Reading(keyed)
    reading.check(*range(ends[-1] + 1))
    files = [{split.path for split in reading.splits(end)} for end in ends]
    assert files[0] & files[1] == set()
    newest = {each.file.file_path for each in state_of(lake, keyed.info)[KEY].data}
    assert files[-1] <= newest
    # The tags' time is over: the log begins where the last of them ended.
    upkeep.clock.advance(8 * DAY_MS)
    upkeep.expire()
    reading = Reading(keyed)
    reading.check(*range(ends[1], ends[2] + 1))
    with pytest.raises(OffsetOutOfRangeError, match=f"from offset {ends[1]} on"):
        reading.splits(ends[1] - 1)
    assert reading.offsets(0) == []


def test_what_others_delete_by_position_is_gone_at_every_stop(lake, rng):
    keyed = rounds(lake, rng)
    reading = Reading(keyed)
    places = deleted_at(keyed)
    offsets = sorted(
        offset
        for each in state_of(lake, keyed.info)[KEY].data
        for offset in pq.read_table(each.file.file_path.removeprefix("file://"))["__offset"].to_pylist()
    )
    # Some of these rows tiering ended, too.
    chosen = sorted(rng.sample(range(len(places)), len(places) // 2))
    gone = {offsets[at] for at in chosen}
    commit_files(
        lake, keyed.info, [], [bare_position_deletes(lake.load(keyed.info), keyed.info, [places[a] for a in chosen])]
    )
    for stop in (None, *range(keyed.tiered[0] + 1)):
        assert reading.offsets(stop) == [offset for offset in reading.expected(stop) if offset not in gone]
        where = pc.field("__offset") > 5
        filtered = reading.offsets(stop, columns=["id", "__offset"], where=where)
        assert filtered == [offset for offset in reading.expected(stop) if offset not in gone and offset > 5]


def test_what_others_delete_by_key_is_gone_at_every_stop_from_older_files(lake, rng):
    keyed = rounds(lake, rng)
    reading = Reading(keyed)
    before = keyed.tiered[0]
    keys = [1, 2, 3, 99]
    commit_files(lake, keyed.info, [], [equality_deletes(lake.load(keyed.info), keyed.info, {"id": keys})])
    keyed.change(rng, 20, keys=12)
    # Rows that only the cluster knows of: their ends hit nothing.
    keyed.round()
    log = keyed.logs[0].log
    for stop in (None, *range(keyed.tiered[0] + 1)):
        expected = [o for o in reading.expected(stop) if o >= before or log[o].row["id"] not in keys]
        assert reading.offsets(stop) == expected
        assert reading.offsets(stop, where=pc.field("id") < 5) == [o for o in expected if log[o].row["id"] < 5]


def test_delete_files_whose_names_tell_nothing_are_opened(lake, rng):
    """Tiering's own under other names, as a copy of the table may have them."""
    from pyiceberg.manifest import DataFile

    from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace

    keyed = rounds(lake, rng)
    table = lake.load(keyed.info)
    deletes = state_of(lake, keyed.info)[KEY].deletes
    added = []
    for number, each in enumerate(deletes):
        path = lake.folder / f"copy-{number}.parquet"
        path.write_bytes(Path(each.file.file_path.removeprefix("file://")).read_bytes())
        copied = DataFile.from_args(
            content=each.file.content, file_path=f"file://{path}", file_format=each.file.file_format,
            partition=each.file.partition, record_count=each.file.record_count,
            file_size_in_bytes=each.file.file_size_in_bytes, lower_bounds=each.file.lower_bounds,
            upper_bounds=each.file.upper_bounds,
        )  # fmt: skip
        copied.spec_id = 0
        added.append((copied, each.data_sequence_number))
    staged = stage_replace(table, removed=[each.file for each in deletes], added=added, summary={})
    lake.storage.access.commit("copy", table, staged.requirements, staged.updates)
    Reading(keyed).check(*range(keyed.tiered[0] + 1))


def test_an_event_ends_no_row_of_a_file_that_came_later(lake):
    """Somebody put a row back as it was, in a new file: older deletes do not apply to it."""
    keyed = keyed_lake(lake)
    keyed.logs[0].upsert({"id": 1, "name": "a"})
    keyed.round()
    keyed.logs[0].delete((1,))
    keyed.round()
    assert Reading(keyed).offsets() == []
    (file,) = state_of(lake, keyed.info)[KEY].data
    again = lake.folder / "again.parquet"
    again.write_bytes(Path(file.file.file_path.removeprefix("file://")).read_bytes())
    from pyiceberg.manifest import DataFile

    copied = DataFile.from_args(
        content=file.file.content, file_path=f"file://{again}", file_format=file.file.file_format,
        partition=file.file.partition, record_count=1, file_size_in_bytes=file.file.file_size_in_bytes,
    )  # fmt: skip
    copied.spec_id = 0
    commit_files(lake, keyed.info, [copied], [])
    assert Reading(keyed).offsets() == [0]
    # Nor when something else may delete rows of it.
    commit_files(lake, keyed.info, [], [bare_position_deletes(lake.load(keyed.info), keyed.info, [("file:///x", 0)])])
    assert Reading(keyed).offsets() == [0]


def test_clean_files_say_so_and_are_counted_without_a_look(lake, rng):
    keyed = keyed_lake(lake)
    for number in range(40):
        keyed.logs[0].upsert({"id": number, "name": "a"})
    keyed.round()
    reading = Reading(keyed)
    (split,) = reading.splits()
    assert split.deletes == ()
    paths = [Path(each.removeprefix("file://")) for each in keyed.paths()]
    for path in paths:
        path.rename(path.with_suffix(".away"))
    assert reading.source.count([split]) == 40
    # Every offset of the file is a row's: a stop, and offsets that ended, need no look either.
    assert reading.source.count([split], stops={KEY: 25}) == 25
    assert reading.source.count([split], stops={KEY: 25}, ended={KEY: np.array([3, 4, 30, 99])}) == 23
    for path in paths:
        path.with_suffix(".away").rename(path)
    keyed.logs[0].delete((3,))
    keyed.round()
    first = reading.splits()[0]
    assert first.deletes != ()
    assert reading.source.count([first]) == 39
    for number in range(40, 45):
        keyed.logs[0].upsert({"id": number, "name": "a"})
    keyed.round()
    # A file that came after every delete is clean.
    assert [bool(each.deletes) for each in reading.splits()] == [True, False]


def test_deletes_are_loaded_once_for_the_files_of_a_bucket(lake, rng):
    keyed = rounds(lake, rng)
    reading = Reading(keyed)
    splits = splits_from_json(splits_to_json(reading.splits()))
    assert len({id(split.deletes) for split in splits if split.deletes}) == 1
    assert list(reading.source.read(splits[:1], ["id"])) is not None
    for each in state_of(lake, keyed.info)[KEY].deletes:
        Path(each.file.file_path.removeprefix("file://")).unlink()
    found = [o for _, b in reading.source.read(splits[1:2], ["__offset"]) for o in b.column(0).to_pylist()]
    span = range(splits[1].min_offset, splits[1].max_offset + 1)
    assert found == [offset for offset in reading.expected() if offset in span]


def test_files_that_are_gone_tell_whether_to_plan_again(lake, rng):
    keyed = rounds(lake, rng, each=20)
    upkeep = Upkeep(lake, keyed.info)
    reading = Reading(keyed)
    splits = reading.splits()
    old = reading.snapshot
    upkeep.compact()
    keyed.change(rng, 10, keys=12)
    keyed.round()
    upkeep.clock.advance(8 * DAY_MS)
    keyed.change(rng, 10, keys=12)
    keyed.round()
    assert old in upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1).snapshot_ids
    with pytest.raises(LakeSnapshotNotFoundError):
        list(Reading(keyed).source.read(splits, ["id"]))
    reading.check()
    # Nothing was expired: somebody removed them.
    for victim in (reading.splits()[0].path, state_of(lake, keyed.info)[KEY].deletes[0].file.file_path):
        path = Path(victim.removeprefix("file://"))
        path.rename(path.with_suffix(".away"))
        fresh = Reading(keyed)
        with pytest.raises(CorruptDataError, match="missing"):
            list(fresh.source.read(fresh.splits(), ["id"]))
        path.with_suffix(".away").rename(path)


def test_row_groups_that_cannot_match_are_not_read_though_rows_are_deleted(lake, rng):
    """In the file with deletes of ours, and in one from which somebody else deleted by position."""
    keyed = keyed_lake(lake, properties={"iceberg.write.parquet.row-group-limit": "50"})
    for number in range(300):
        keyed.logs[0].upsert({"id": number, "name": f"n{number}"})
    keyed.round()
    for number in (3, 210, 290):
        keyed.logs[0].delete((number,))
    keyed.round()
    where = pc.field("id") >= 250
    expected = [offset for offset in range(250, 300) if offset != 290]
    (file,) = state_of(lake, keyed.info)[KEY].data
    path = Path(file.file.file_path.removeprefix("file://"))
    whole = path.read_bytes()
    for others in (False, True):
        if others:
            table = lake.load(keyed.info)
            commit_files(lake, keyed.info, [], [bare_position_deletes(table, keyed.info, [(file.file.file_path, 299)])])
            expected.remove(299)
        reading = Reading(keyed)
        assert reading.offsets(where=where) == expected
        path.write_bytes(b"\0" * 2_000 + whole[2_000:])
        assert reading.offsets(where=where) == expected
        with pytest.raises(CorruptDataError):
            reading.offsets()
        path.write_bytes(whole)


def test_a_hint_leaves_files_out_and_no_row(lake, rng):
    keyed = rounds(lake, rng, count=5)
    reading = Reading(keyed)
    log = keyed.logs[0].log
    for stop in (None, keyed.tiered[0] // 2):
        hint = GreaterThanOrEqual("id", 9)
        splits = reading.splits(stop, where=hint)
        stops = None if stop is None else {KEY: stop}
        found = [
            offset
            for _, batch in reading.source.read(splits, ["__offset"], where=pc.field("id") >= 9, stops=stops)
            for offset in batch.column(0).to_pylist()
        ]
        assert found == [offset for offset in reading.expected(stop) if log[offset].row["id"] >= 9]


def test_a_file_that_claims_an_order_it_has_not_is_corruption(lake):
    keyed = keyed_lake(lake)
    for number in range(10):
        keyed.logs[0].upsert({"id": number, "name": "a"})
    keyed.round()
    keyed.logs[0].delete((4,))
    keyed.round()
    (file,) = state_of(lake, keyed.info)[KEY].data
    path = file.file.file_path.removeprefix("file://")
    rows = pq.read_table(path)
    pq.write_table(rows.take(pa.array(list(reversed(range(10))))).replace_schema_metadata(), path)
    with pytest.raises(CorruptDataError, match="sorted by"):
        Reading(keyed).offsets()


def test_many_small_files_among_large_ones_come_in_order(lake, rng, monkeypatch):
    """Read a few at a time, some by one scan and some from memory."""
    monkeypatch.setattr("fluss_lab.lake.iceberg.read.row_source.FILES_AT_ONCE", 3)
    keyed = keyed_lake(lake)
    for _ in range(8):
        size = rng.choice([5, 60])
        keyed.change(rng, size, keys=50)
        keyed.round()
    sizes = sorted(each.file.file_size_in_bytes for each in state_of(lake, keyed.info)[KEY].data)
    for limit in (0, sizes[len(sizes) // 2], 2**20):
        monkeypatch.setattr("fluss_lab.lake.iceberg.read.data_file_scan.SMALL_BYTES", limit)
        Reading(keyed).check(keyed.tiered[0] // 2, 2 * keyed.tiered[0] // 3)


def test_what_a_split_says_is_checked(lake, rng):
    keyed = rounds(lake, rng, count=1)
    reading = Reading(keyed)
    (split,) = reading.splits()
    for wrong in ('{"x": 1}', "[1]", "no"):
        with pytest.raises(CorruptDataError, match="detail"):
            list(reading.source.read([LakeSplit(*to_plain(split)[:7], (), wrong)], ["id"]))
        with pytest.raises(CorruptDataError, match="delete file"):
            list(reading.source.read([LakeSplit(*to_plain(split)[:7], (wrong,), split.detail)], ["id"]))


@pytest.mark.parametrize("text", ["", "[]", '{"splits": [[1]], "deletes": []}', '{"splits": [["p", null, 0, 1, 2, 3, 4, 5, ""]], "deletes": []}', '{"splits": [[0, ["p", null, 0, 1, 2, 3, 4, [], ""]]], "deletes": []}', '{"splits": [[-1, ["p", null, 0, 1, 2, 3, 4, [], ""]]], "deletes": [[]]}'])  # fmt: skip
def test_splits_that_are_no_splits(text):
    with pytest.raises(CorruptDataError):
        splits_from_json(text)


def test_splits_travel_as_json():
    clean = LakeSplit("file:///a", None, 1, 2, 3, 4, 5)
    dirty = [LakeSplit(f"file:///{n}", "p", 1, n, n, 1, 9, ("x", "y"), "d") for n in range(3)]
    found = splits_from_json(splits_to_json([clean, *dirty]))
    assert found == [clean, *dirty]
    assert found[1].deletes is found[3].deletes
    assert splits_to_json(dirty).count('"y"') == 1


def test_offsets_that_are_no_rows_end_none(lake, rng):
    keyed = rounds(lake, rng)
    reading = Reading(keyed)
    live = reading.expected()
    gone = [offset for offset in range(keyed.tiered[0] + 3) if offset not in live]
    assert reading.offsets(ended={KEY: np.array(gone)}) == live
    some = sorted(rng.sample(live, len(live) // 2))
    left = [offset for offset in live if offset not in some]
    assert reading.offsets(ended={KEY: np.array(sorted([*gone, *some]))}) == left
    # Of what a filter leaves, too.
    where = pc.field("__offset") >= left[0] if left else None
    assert reading.offsets(ended={KEY: np.array(some)}, where=where) == left


def test_a_file_of_which_equality_deletes_alone_delete(lake):
    keyed = keyed_lake(lake, properties={"table.datalake.delete-mode": "equality"})
    for number in range(4):
        keyed.logs[0].upsert({"id": number, "name": "a"})
    keyed.round()
    keyed.logs[0].delete((2,))
    keyed.round()
    assert {each.is_equality for each in state_of(lake, keyed.info)[KEY].deletes} == {True}
    Reading(keyed).check(3, 4)


def test_buckets_have_deletes_of_their_own(lake, rng):
    keyed = keyed_lake(lake, buckets=3)
    for _ in range(3):
        keyed.change(rng, 40, keys=30)
        keyed.round()
    source = lake.storage.create_lake_source(keyed.info)
    snapshot = lake.load(keyed.info).metadata.current_snapshot_id
    splits = source.plan(snapshot)
    rng.shuffle(splits)
    found = {bucket: [] for bucket in keyed.logs}
    for split, batch in source.read(splits, ["__offset"]):
        found[split.bucket] += batch.column(0).to_pylist()
    assert {bucket: sorted(offsets) for bucket, offsets in found.items()} == {
        bucket: keyed.rows(bucket)["__offset"].to_pylist() for bucket in keyed.logs
    }


def test_deletes_are_loaded_for_each_stop(lake):
    """One source reads the same files at one stop and another."""
    keyed = keyed_lake(lake)
    for number in range(10):
        keyed.logs[0].upsert({"id": number, "name": "a"})
    keyed.round()
    for number in range(5):
        keyed.logs[0].delete((number,))
    keyed.round()
    Reading(keyed).check(11, 13, 12, 15)


def test_what_delete_files_end_is_kept_within_bounds():
    cache = EndedCache(bytes_max=80)
    first, second, third = (np.arange(4, dtype=np.int64) + number for number in range(3))
    for path, ended in (("s3://a", first), ("s3://b", second), ("s3://b", second)):
        cache.keep(path, ended)
    assert cache.get("s3://a") is first
    # 32 bytes each: the third is one too many, and "b" was not asked for.
    cache.keep("s3://c", third)
    assert [cache.get(f"s3://{path}") is None for path in "abc"] == [False, True, False]
    # More than all that is kept: the others stay.
    cache.keep("s3://d", np.arange(100, dtype=np.int64))
    assert [cache.get(f"s3://{path}") is None for path in "abcd"] == [False, True, False, True]


def test_sources_share_what_delete_files_end_until_a_file_is_another(tmp_path):
    cache, path = EndedCache(), tmp_path / "deletes.parquet"
    path.write_bytes(b"one")
    ended = np.arange(3, dtype=np.int64)
    cache.keep(str(path), ended)
    assert cache.get(str(path)) is ended
    path.write_bytes(b"other")
    assert cache.get(str(path)) is None


def test_what_files_end_together_is_kept_with_what_each_applies_to(tmp_path):
    """Compaction gives rows to newer files: which a delete file applies to is the read's, not the file's."""
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_bytes(b"1")
    cache = EndedCache()
    made = []

    def ends(*numbers: int) -> MergedEnds:
        def merge() -> MergedEnds:
            made.append(numbers)
            return MergedEnds.of([(np.array([number], dtype=np.int64), number) for number in numbers])

        return cache.merged_ends(list(zip(paths[: len(numbers)], numbers, strict=True)), merge)

    assert ends(3, 4).offsets.tolist() == [3, 4]
    assert ends(3, 4).numbers.tolist() == [0, 1]
    assert (ends(4, 5).smallest, ends(3, 4).smallest, ends(7, 7).numbers) == (4, 3, None)
    assert made == [(3, 4), (4, 5), (7, 7)]
    # What one file ends is something else than what it ends together with others: alone.
    cache.keep(paths[0], np.array([9], dtype=np.int64))
    assert ends(3).offsets.tolist() == [3]
    assert cache.get(paths[0]).tolist() == [9]
    Path(paths[1]).write_bytes(b"other")
    ends(3, 4)
    Path(paths[1]).unlink()
    ends(3, 4)
    ends(3, 4)
    assert made[3:] == [(3,), (3, 4), (3, 4), (3, 4)]
