"""Few rows that are looked up are sliced out one by one: what is found is what taking them finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.model.descriptor import make_descriptor
from fluss_lab.server.kv import row_chunks
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_chunks import GATHERED_BYTES_MAX, Chunk, ChunkLayout, KvChunk
from tests.unit.server.kv.kv_kit import UPSERT, batch, tuples

COLUMNS = {"id": "int", "name": "string", "many": "array<int>"}
WIDER = {**COLUMNS, "new": "string"}


def table(columns):
    return make_descriptor(columns, primary_key=["id"])


@pytest.mark.parametrize("is_altered", [False, True])
def test_few_rows_are_sliced_as_they_are_taken(rng, monkeypatch, is_altered):
    descriptor, model = table(COLUMNS), {}
    schemas = {1: descriptor.schema.arrow_schema}
    store = KvStore(descriptor, 1, schemas)
    for turn in range(12):
        if is_altered and turn == 6:
            descriptor = table(WIDER)
            schemas[2] = descriptor.schema.arrow_schema
            store.define(descriptor, 2, schemas)
            model = {key: (*row, None) for key, row in model.items()}
        rows = [
            (key, rng.choice([None, f"n{turn}"]), rng.choice([None, [turn, None], []]), f"z{turn}")[: len(schemas) + 2]
            for key in rng.sample(range(300), rng.randrange(1, 150))
        ]
        change = store.prepare(batch(descriptor, rows), bytes([UPSERT] * len(rows)), base_offset=store.log_offset)
        store.commit(change, turn)
        model.update((row[0], row) for row in rows)
        for count in (1, 2, rng.randrange(3, 64), 64, 65):
            keys = [rng.randrange(-50, 350) for _ in range(count)]
            keys[: count // 3] = [rng.choice(keys) for _ in range(count // 3)]
            asked = batch(table({"id": "int"}), [(key,) for key in keys])
            wanted = rng.sample(range(len(descriptor.schema.columns)), rng.randrange(1, len(descriptor.schema.columns)))
            found, sliced = store.lookup(asked, wanted)
            with monkeypatch.context() as without:
                without.setattr(row_chunks, "_SLICED_ROWS_MAX", 0)
                assert sliced.equals(store.lookup(asked, wanted)[1])
            sliced.validate(full=True)
            assert found.tolist() == [key in model for key in keys]
            one = store.lookup_one(keys[0] % 2**32, wanted)
            assert one.equals(store.lookup(asked.slice(0, 1), wanted)[1])
            assert tuples(sliced) == [tuple(model[key][each] for each in wanted) for key in keys if key in model]


def test_one_wide_row_that_is_named_often_is_counted_before_it_is_copied():
    rows = pa.record_batch({"id": [1, 2], "value": ["x" * (GATHERED_BYTES_MAX >> 5), "y"]})
    layout = ChunkLayout((Chunk(KvChunk(0, 1, rows, np.arange(2), np.zeros(2, np.int64))),))
    assert layout.rows_of(np.array([0, 1, 0, 1]), [0, 1], rows.schema, rows.schema)["id"].to_pylist() == [1, 2, 1, 2]
    assert layout.row_of(1, [1], rows.schema, rows.select([1]).schema).to_pylist() == [{"value": "y"}]
    with pytest.raises(RecordTooLargeError, match="the rows of these keys have"):
        layout.rows_of(np.zeros(33, np.int64), [0, 1], rows.schema, rows.schema)
