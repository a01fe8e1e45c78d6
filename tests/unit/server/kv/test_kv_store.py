"""What a store promises, point by point; the random comparison with a dict is in test_kv_model.py."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import (
    CorruptDataError,
    InternalError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
)
from fluss_lab.model.descriptor import TableDescriptor, make_descriptor
from fluss_lab.server.kv.change_derivation import KvChange
from fluss_lab.server.kv.chunk_compaction import CompactionLimits
from fluss_lab.server.kv.kv_store import KvStore
from tests.unit.server.kv.kv_kit import DELETE, UPSERT, batch, tuples

COLUMNS = {"id": "int", "name": "string", "must": "bigint not null"}


def table(columns: dict[str, str] = COLUMNS, key: tuple[str, ...] = ("id",), **more) -> TableDescriptor:
    return make_descriptor(columns, primary_key=key, **more)


def opened(descriptor: TableDescriptor | None = None, **more) -> KvStore:
    descriptor = descriptor or table()
    return KvStore(descriptor, 1, {1: descriptor.schema.arrow_schema}, **more)


def prepared(
    store: KvStore, rows: list[tuple], kinds: list[int] | None = None, columns=None, descriptor=None
) -> KvChange:
    given = batch(descriptor or table(), rows, columns)
    return store.prepare(given, bytes(kinds or [UPSERT] * len(rows)), base_offset=store.log_offset, columns=columns)


def put(
    store: KvStore, rows: list[tuple], kinds: list[int] | None = None, columns=None, descriptor=None, at=7
) -> KvChange:
    change = prepared(store, rows, kinds, columns, descriptor)
    store.commit(change, at)
    return change


def records(change: KvChange) -> list[tuple]:
    signs = {1: "+I", 2: "-U", 3: "+U", 4: "-D"}
    return [
        (signs[kind], row[0], row[1], previous)
        for kind, row, previous in zip(
            change.change_types, tuples(change.rows), change.previous_offsets.tolist(), strict=True
        )
    ]


def everything(store: KvStore) -> list[tuple]:
    return [row for rows, *_ in store.view().batches() for row in tuples(rows)]


# -- the changelog --------------------------------------------------------------------------------------------------------


def test_duplicates_in_a_batch_are_worked_off_in_order():
    store = opened()
    change = put(
        store,
        [(1, "a", 0), (1, "b", 0), (1, "b", 0), (1, None, 0), (1, "c", 0), (2, None, 0)],
        [UPSERT, UPSERT, UPSERT, DELETE, UPSERT, DELETE],
    )
    assert records(change) == [
        ("+I", 1, "a", -1), ("-U", 1, "a", 0), ("+U", 1, "b", 0), ("-D", 1, "b", 2), ("+I", 1, "c", -1),
    ]  # fmt: skip
    assert (store.log_offset, store.row_count) == (5, 1)
    assert records(put(store, [(1, "c", 0), (1, "d", 0)])) == [("-U", 1, "c", 4), ("+U", 1, "d", 4)]


def test_what_changes_nothing_is_no_change():
    store = opened()
    put(store, [(1, "a", 0)])
    change = put(store, [(1, "a", 0), (2, None, 0)], [UPSERT, DELETE])
    assert (change.rows.num_rows, change.change_types, change.next_offset) == (0, b"", 1)
    assert change.rows.schema == table().schema.arrow_schema
    assert put(store, []).rows.num_rows == 0
    assert store.log_offset == 1


def test_an_update_that_is_taken_back_within_the_batch_is_logged():
    store = opened()
    put(store, [(1, "a", 0)])
    assert records(put(store, [(1, "b", 0), (1, "a", 0)])) == [
        ("-U", 1, "a", 0), ("+U", 1, "b", 0), ("-U", 1, "b", 2), ("+U", 1, "a", 2),
    ]  # fmt: skip
    assert records(put(store, [(1, "a", 0), (1, "a", 0)], [DELETE, UPSERT])) == [("-D", 1, "a", 4), ("+I", 1, "a", -1)]


def test_a_delete_gives_the_old_row_whatever_came_with_it():
    store = opened()
    put(store, [(1, "a", 5)])
    change = put(store, [(1, "something else", None)], [DELETE])
    assert tuples(change.rows) == [(1, "a", 5)]
    assert change.rows.schema == table().schema.arrow_schema
    assert store.row_count == 0


def test_preparing_changes_nothing():
    store = opened()
    put(store, [(1, "a", 0)])
    before = everything(store), store.log_offset, store.row_count
    for _ in range(3):
        prepared(store, [(1, "b", 0), (2, "x", 0), (1, None, 0)], [UPSERT, UPSERT, DELETE])
    assert (everything(store), store.log_offset, store.row_count) == before


def test_a_change_fits_one_state_only():
    store = opened()
    first, second = prepared(store, [(1, "a", 0)]), prepared(store, [(1, "b", 0)])
    store.commit(first, 1)
    for stale in (second, first):
        with pytest.raises(InternalError, match="prepare it again"):
            store.commit(stale, 1)
    with pytest.raises(InternalError, match="all up to 1 already"):
        store.prepare(batch(table(), [(1, "c", 0)]), bytes([UPSERT]), base_offset=0)
    late = prepared(store, [(3, "x", 0)])
    store.define(table({**COLUMNS, "new": "int"}), 2, {1: table().schema.arrow_schema, 2: table({**COLUMNS, "new": "int"}).schema.arrow_schema})  # fmt: skip
    with pytest.raises(InternalError, match="prepare it again"):
        store.commit(late, 1)
    assert everything(store) == [(1, "a", 0, None)]


# -- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "kinds", "message"),
    [
        ([(1, "a", 0), (2, "b", None)], [3, 3], "column 'must' is NOT NULL: row 1 is null"),
        ([(1, "a", 0), (2, "b", 0)], [3, 1], r"row 1: expected change type 3 \(upsert\) or 4 \(delete\), found 1"),
        ([(1, "a", 0)], [3, 3], "expected a change type for each of 1 rows, found 2"),
    ],
)
def test_batches_that_do_not_fit_are_refused_with_column_and_row(rows, kinds, message):
    store = opened()
    with pytest.raises(InvalidRecordError, match=message):
        prepared(store, rows, kinds)
    assert store.row_count == 0


def test_nulls_in_keys_are_refused():
    store = opened()
    columns = [pa.array([1, None], pa.int32()), pa.array(["a", "b"]), pa.array([1, 2])]
    rows = pa.record_batch(columns, names=["id", "name", "must"])
    for kinds in (bytes([UPSERT, UPSERT]), bytes([UPSERT, DELETE])):
        with pytest.raises(InvalidRecordError, match="key column 'id': row 1 is null"):
            store.prepare(rows, kinds, base_offset=0)
    with pytest.raises(InvalidRecordError, match="key column 'id': row 1 is null"):
        store.lookup(rows.select(["id"]))


def test_columns_of_other_types_names_or_order_are_refused():
    store = opened()
    good = batch(table(), [(1, "a", 0)])
    wrong = good.set_column(2, "must", pa.array([0], pa.int32()))
    with pytest.raises(InvalidRecordError, match="column 'must': expected int64, found int32"):
        store.prepare(wrong, b"\3", base_offset=0)
    with pytest.raises(InvalidRecordError, match="expected the columns id, name, must; found name, id, must"):
        store.prepare(good.select([1, 0, 2]), b"\3", base_offset=0)
    with pytest.raises(InvalidRecordError, match="in the table's order"):
        store.prepare(good.select([1, 0]), b"\3", base_offset=0, columns=["name", "id"])
    with pytest.raises(InvalidRecordError, match="column 'x' is unknown"):
        store.prepare(good.select([0]).append_column("x", pa.array([1])), b"\3", base_offset=0, columns=["id", "x"])
    with pytest.raises(InvalidRecordError, match="needs the whole primary key; column 'id' is missing"):
        store.prepare(good.select([1]), b"\3", base_offset=0, columns=["name"])
    with pytest.raises(InvalidRecordError, match="key: expected the columns id; found name"):
        store.lookup(good.select(["name"]))
    with pytest.raises(InvalidRecordError, match="key column 'id': expected int32, found int64"):
        store.lookup(pa.record_batch([pa.array([1])], names=["id"]))
    with pytest.raises(InvalidRequestError, match=r"no column 3: expected indexes in \[0, 3\)"):
        store.lookup(good.select(["id"]), [0, 3])
    assert store.row_count == 0


def test_deletes_can_be_forbidden():
    descriptor = table(properties={"table.delete.behavior": "disable"})
    store = opened(descriptor)
    put(store, [(1, "a", 0)])
    with pytest.raises(InvalidRecordError, match=r"row 1 deletes, but the table has table.delete.behavior=disable"):
        prepared(store, [(2, "b", 0), (1, None, 0)], [UPSERT, DELETE])
    assert everything(store) == [(1, "a", 0)]


@pytest.mark.parametrize("engine", ["first_row", "versioned"])
def test_merge_engines_take_whole_rows_and_no_deletes(engine):
    properties = {"table.merge-engine": engine}
    if engine == "versioned":
        properties["table.merge-engine.versioned.ver-column"] = "must"
    store = opened(table(properties=properties))
    with pytest.raises(InvalidRecordError, match=f"the merge engine {engine} takes whole rows only"):
        prepared(store, [(1, "a", 0)], columns=["id", "must"])
    assert records(put(store, [(1, "a", 0)], columns=["id", "name", "must"])) == [("+I", 1, "a", -1)]
    assert records(put(store, [(1, None, 0)], [DELETE])) == []
    store = opened(table(properties={**properties, "table.delete.behavior": "disable"}))
    with pytest.raises(InvalidRecordError, match="row 0 deletes"):
        prepared(store, [(1, None, 0)], [DELETE])


# -- merge engines ------------------------------------------------------------------------------------------------------------


def test_the_first_row_stays():
    store = opened(table(properties={"table.merge-engine": "first_row"}))
    assert records(put(store, [(1, "a", 0), (1, "b", 0), (2, "c", 0), (2, None, 0)], [3, 3, 3, 4])) == [
        ("+I", 1, "a", -1), ("+I", 2, "c", -1),
    ]  # fmt: skip
    assert put(store, [(1, "z", 9), (2, "z", 9)]).rows.num_rows == 0
    assert everything(store) == [(1, "a", 0), (2, "c", 0)]


def test_the_largest_version_stays_and_null_is_the_least():
    columns = {"id": "int", "name": "string", "v": "int"}
    properties = {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"}
    descriptor = table(columns, properties=properties)
    store = opened(descriptor)

    def step(*rows: tuple) -> list[tuple]:
        return records(put(store, list(rows), descriptor=descriptor))

    assert step((1, "none", None)) == [("+I", 1, "none", -1)]
    assert step((1, "none again", None)) == [("-U", 1, "none", 0), ("+U", 1, "none again", 0)]
    assert step((1, "five", 5), (1, "four", 4), (1, "null", None), (1, "five again", 5)) == [
        ("-U", 1, "none again", 2), ("+U", 1, "five", 2), ("-U", 1, "five", 4), ("+U", 1, "five again", 4),
    ]  # fmt: skip
    assert step((1, "four", 4), (1, "null", None)) == []


# -- partial updates ------------------------------------------------------------------------------------------------------------


def test_partial_updates_keep_and_partial_deletes_clear():
    columns = {"id": "int", "a": "string", "b": "string"}
    descriptor = table(columns)
    store = opened(descriptor)

    def step(row: tuple, kind: int, *given: str) -> list[tuple]:
        change = put(store, [row], [kind], columns=list(given), descriptor=descriptor)
        return [(kind, *row) for kind, row in zip(change.change_types, tuples(change.rows), strict=True)]

    assert step((1, "a", None), UPSERT, "id", "a") == [(1, 1, "a", None)]
    assert step((1, None, "b"), UPSERT, "id", "b") == [(2, 1, "a", None), (3, 1, "a", "b")]
    assert step((1, "?", "?"), UPSERT, "id") == []
    assert step((1, None, None), DELETE, "id", "a") == [(2, 1, "a", "b"), (3, 1, None, "b")]
    assert step((1, None, None), DELETE, "id", "a") == []
    assert step((1, None, None), DELETE, "id", "b") == [(4, 1, None, "b")]
    assert step((2, None, None), UPSERT, "id") == [(1, 2, None, None)]
    assert step((2, None, None), DELETE, "id") == [(4, 2, None, None)]


def test_partial_updates_never_leave_a_column_that_is_not_null_without_a_value():
    store = opened()
    with pytest.raises(
        InvalidRecordError, match="column 'must' is NOT NULL: row 1 leaves it without a value; the key has no row"
    ):
        prepared(store, [(9, "x", 0), (1, "a", 0)], [DELETE, UPSERT], columns=["id", "name"])
    put(store, [(1, "a", 5)])
    assert records(put(store, [(1, "b", None)], columns=["id", "name"])) == [("-U", 1, "a", 0), ("+U", 1, "b", 0)]
    with pytest.raises(
        InvalidRecordError, match="column 'must' is NOT NULL: row 0 leaves it without a value; a partial delete"
    ):
        prepared(store, [(1, None, 0)], [DELETE], columns=["id", "must"])
    assert everything(store) == [(1, "b", 5)]


# -- reading ----------------------------------------------------------------------------------------------------------------------


def test_a_view_stays_as_it_was():
    store = opened()
    put(store, [(each, str(each), 0) for each in range(100)], at=1)
    view = store.view()
    put(store, [(each, "new", 0) for each in range(50)], at=2)
    put(store, [(each, None, 0) for each in range(30, 80)], [DELETE] * 50)
    parts = list(view.batches(columns=[1, 0], rows_max=7))
    assert [row for rows, *_ in parts for row in tuples(rows)] == [(str(each), each) for each in range(100)]
    assert max(rows.num_rows for rows, *_ in parts) == 7
    assert np.concatenate([offsets for _, offsets, _ in parts]).tolist() == list(range(100))
    assert {timestamp for *_, timestamps in parts for timestamp in timestamps.tolist()} == {1}
    assert (view.log_offset, view.row_count) == (100, 100)
    assert store.view().row_count == store.row_count == 50


def test_batches_of_a_view_are_cut_by_bytes():
    store = opened()
    put(store, [(each, "x" * (10_000 if each == 3 else 10), 0) for each in range(50)])
    sizes = [(rows.num_rows, rows.nbytes) for rows, *_ in store.view().batches(bytes_max=400)]
    assert sum(count for count, _ in sizes) == 50
    assert all(size <= 400 or count == 1 for count, size in sizes)


def test_lookups_answer_in_the_order_asked_and_may_ask_twice():
    store = opened()
    put(store, [(each, f"n{each}", each) for each in range(1000)])
    put(store, [(each, f"m{each}", each) for each in range(0, 1000, 3)])
    keys = batch(table(), [(each, "", 0) for each in (998, 5000, 3, 7, 998, -1)]).select(["id"])
    found, rows = store.lookup(keys)
    assert found.tolist() == [True, False, True, True, True, False]
    assert tuples(rows) == [(998, "n998", 998), (3, "m3", 3), (7, "n7", 7), (998, "n998", 998)]
    assert rows.schema == table().schema.arrow_schema
    found, rows = store.lookup(keys.slice(0, 0), [1])
    assert (found.size, rows.num_rows, rows.schema.names) == (0, 0, ["name"])


def test_prefix_lookups_leave_partition_columns_out():
    columns = {"day": "string", "a": "int", "b": "string", "c": "int"}
    descriptor = make_descriptor(columns, primary_key=["a", "day", "b"], partitioned_by=["day"], bucket_key=["a"])
    store = opened(descriptor)
    put(store, [("d", each % 3, f"b{each}", each) for each in range(9)], descriptor=descriptor)
    prefixes = pa.record_batch([pa.array([2, 7, 0], pa.int32())], names=["a"])
    counts, rows = store.prefix_lookup(prefixes, [2])
    assert (counts.tolist(), rows.column(0).to_pylist()) == ([3, 0, 3], ["b2", "b5", "b8", "b0", "b3", "b6"])
    both = pa.record_batch([pa.array([2], pa.int32()), pa.array(["b5"])], names=["a", "b"])
    assert store.prefix_lookup(both)[0].tolist() == [1]
    with pytest.raises(InvalidRecordError, match="expected the first columns of a, b"):
        store.prefix_lookup(pa.record_batch([pa.array([1]), pa.array([1]), pa.array([1])], names=["a", "b", "c"]))
    with pytest.raises(InvalidRecordError, match="prefix: expected the columns a; found b"):
        store.prefix_lookup(both.select(["b"]))


def test_a_limit_scan_gives_so_many_rows():
    store = opened()
    assert store.limit_scan(5).num_rows == 0
    put(store, [(each, "x", 0) for each in range(200)])
    assert [store.limit_scan(limit).num_rows for limit in (0, 1, 7, 200, 1000)] == [0, 1, 7, 200, 200]


def test_rows_do_not_hold_on_to_the_request_that_brought_them():
    store = opened()
    memory = bytearray(batch(table(), [(1, "abcdefgh", 5), (2, "x", 6)]).serialize().to_pybytes())
    rows = pa.ipc.read_record_batch(pa.py_buffer(memory), batch(table(), []).schema)
    store.commit(store.prepare(rows, bytes([UPSERT, UPSERT]), base_offset=0), 1)
    memory[:] = bytes(len(memory))
    assert everything(store) == [(1, "abcdefgh", 5), (2, "x", 6)]


# -- altering ------------------------------------------------------------------------------------------------------------------------


def test_columns_are_added_at_the_end():
    store = opened()
    put(store, [(1, "a", 0), (2, "b", 0)])
    old_view = store.view()
    wider = table({**COLUMNS, "new": "array<int>", "last": "string"})
    schemas = {1: table().schema.arrow_schema, 2: wider.schema.arrow_schema}
    store.define(wider, 2, schemas)
    assert everything(store) == [(1, "a", 0, None, None), (2, "b", 0, None, None)]
    assert [row for rows, *_ in old_view.batches() for row in tuples(rows)] == [(1, "a", 0), (2, "b", 0)]
    change = put(store, [(1, "a", 0, [1, None], "z")], descriptor=wider)
    assert tuples(change.rows) == [(1, "a", 0, None, None), (1, "a", 0, [1, None], "z")]
    assert put(store, [(2, "b", 0, None, None)], descriptor=wider).rows.num_rows == 0
    found, rows = store.lookup(batch(wider, [(2, "", 0, [], "")]).select(["id"]), [4, 1])
    assert (found.tolist(), tuples(rows)) == ([True], [(None, "b")])
    again = KvStore.restore(wider, 2, schemas, store.image())
    assert everything(again) == everything(store)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "int", "name": "string"}, "expected the columns of schema 1"),
        ({"id": "int", "name": "bytes", "must": "bigint not null"}, "expected the columns of schema 1"),
        ({**COLUMNS, "new": "int not null"}, "new column 'new' is NOT NULL"),
    ],
)
def test_other_alterations_are_refused(columns, message):
    store = opened()
    with pytest.raises(InvalidSchemaError, match=message):
        store.define(table(columns), 2, {2: table(columns).schema.arrow_schema})


# -- replaying -------------------------------------------------------------------------------------------------------------------------


def replayed(store: KvStore, rows: list[tuple], kinds: list[int], base: int = 0) -> list[int]:
    given = pa.RecordBatch.from_arrays(batch(table(), rows).columns, schema=table().schema.arrow_schema)
    return store.replay(given, bytes(kinds), base, 1).tolist()


def test_several_batches_are_replayed_as_one():
    rows = [(1, "a", 0), (1, "a", 0), (1, "b", 0), (1, "b", 0), (1, "c", 0), (2, "x", 0)]
    store = opened()
    given = pa.RecordBatch.from_arrays(batch(table(), rows).columns, schema=table().schema.arrow_schema)
    previous = store.replay(given, bytes([1, 2, 3, 4, 1, 1]), 10, np.array([5, 6, 6, 6, 7, 8]))
    assert previous.tolist() == [-1, 10, 10, 12, -1, -1]
    parts = list(store.view().batches())
    assert [(offsets.tolist(), timestamps.tolist()) for _, offsets, timestamps in parts] == [([14, 15], [7, 8])]
    assert store.log_offset == 16


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([1, 1], r"changelog at offset 1: \+I does not fit .* its key has one of offset 0"),
        ([4, 1], "changelog at offset 0: -D does not fit .* its key has none"),
        ([2, 3], r"changelog at offset 1: \+U does not fit"),
        ([1, 2], "expected each -U just before its"),
        ([3, 2], "expected each -U just before its"),
        ([1, 5], "expected change types 1 to 4"),
        ([1], "2 rows with 1 change types"),
    ],
)
def test_a_changelog_that_does_not_fit_is_refused_whole(kinds, message):
    store = opened()
    with pytest.raises(CorruptDataError, match=message):
        replayed(store, [(1, "a", 0), (1, "b", 0)], kinds)
    assert (store.row_count, store.log_offset) == (0, 0)


def test_what_is_there_already_is_not_replayed():
    store = opened()
    put(store, [(1, "a", 0)])
    with pytest.raises(InternalError, match="holds all up to 1 already"):
        replayed(store, [(1, "a", 0)], [1])


# -- images and memory -------------------------------------------------------------------------------------------------------------------


def test_an_image_never_changes_and_a_restored_store_goes_on():
    store = opened()
    put(store, [(each, "a", 0) for each in range(100)])
    put(store, [(each, "b", 0) for each in range(0, 100, 2)])
    image = store.image()
    kept = [live.copy() for live in image.live]
    put(store, [(each, "c", 0) for each in range(100)])
    assert all((now == then).all() for now, then in zip(image.live, kept, strict=True))
    again = KvStore.restore(table(), 1, {1: table().schema.arrow_schema}, image)
    assert (again.log_offset, again.row_count, image.row_count) == (200, 100, 100)
    put(again, [(each, "d", 0) for each in range(100)])
    put(again, [(7, None, 0)], [DELETE])
    assert sorted(everything(again)) == [(each, "d", 0) for each in range(100) if each != 7]
    assert all((now == then).all() for now, then in zip(image.live, kept, strict=True))
    used = {chunk.chunk_id for chunk in image.chunks}
    assert used.isdisjoint({chunk.chunk_id for chunk in again.image().chunks} - used)
    assert again.image().next_chunk_id > max(used)


def test_chunk_ids_name_the_same_rows_for_ever(seed):
    rng = random.Random(seed)
    store = opened(limits=CompactionLimits(chunk_rows=300, at_once_rows=50, step_rows=20, pace=2, dead_rows=4))
    seen: dict[int, tuple] = {}
    for _ in range(150):
        put(store, [(rng.randrange(400), str(rng.random()), 0) for _ in range(rng.randrange(1, 30))])
        image = store.image()
        assert [chunk.offsets[0] for chunk in image.chunks] == sorted(chunk.offsets[0] for chunk in image.chunks)
        for chunk in image.chunks:
            assert (np.diff(chunk.offsets) > 0).all()
            state = (chunk.rows.num_rows, chunk.offsets.tobytes(), chunk.rows.column(1).to_pylist())
            assert seen.setdefault(chunk.chunk_id, state) == state
            assert chunk.chunk_id < image.next_chunk_id


def test_dead_rows_do_not_pile_up(seed):
    rng = np.random.default_rng(seed)
    limits = CompactionLimits(chunk_rows=4096, at_once_rows=256, step_rows=256, dead_rows=16)
    store = opened(limits=limits)
    keys = np.arange(5000, dtype=np.int32)
    for turn in range(200):
        chosen = rng.choice(keys, 500, replace=False) if turn > 10 else keys[turn * 500 % 5000 :][:500]
        names = pa.array([f"name {turn} {each}" for each in chosen])
        rows = pa.record_batch(
            [pa.array(chosen), names, pa.array(np.zeros(500, np.int64))], names=["id", "name", "must"]
        )
        store.commit(store.prepare(rows, bytes([UPSERT] * 500), base_offset=store.log_offset), 1)
    assert store.row_count == 5000
    held = sum(chunk.rows.num_rows for chunk in store.image().chunks)
    assert held < 5000 / (1 - limits.dead_part) * 1.5
    assert store.chunk_count < 40
    assert store.memory_bytes < 5000 * 400


def test_nothing_is_left_of_rows_that_are_deleted():
    store = opened()
    for turn in range(20):
        put(store, [(each, "x" * 100, turn) for each in range(1000)])
        put(store, [(each, None, 0) for each in range(1000)], [DELETE] * 1000)
    put(store, [(1, "a", 0)])
    assert (store.row_count, store.chunk_count) == (1, 1)
    assert store.memory_bytes < 300_000
