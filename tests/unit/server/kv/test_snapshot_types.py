"""Values of every type come back from a snapshot as they were, from slices too."""

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.model import make_descriptor
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_chunks import KvChunk
from fluss_lab.server.kv.store_view import KvImage
from tests.unit.server.kv.snapshot_kit import store, write

VALUES = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "smallint": [-(1 << 15), 5, None],
    "int": [-(1 << 31), 5, None],
    "bigint": [-(1 << 63), (1 << 63) - 1, None],
    "float": [0.5, float("-inf"), None],
    "double": [1e308, -0.0, None],
    "string": ["", "ä€😀" * 100, None],
    "char(3)": ["abc", "x  ", None],
    "bytes": [b"", b"\x00\xff" * 1000, None],
    "binary(2)": [b"ab", b"\x00\x00", None],
    "decimal(9,2)": [Decimal("-1234567.89"), Decimal("0.00"), None],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), None],
    "date": [date(1, 1, 1), date(9999, 12, 31), None],
    "time(0)": [time(0, 0), time(23, 59, 59), None],
    "time(6)": [time(0, 0), time(23, 59, 59, 999_999), None],
    "timestamp(3)": [datetime(1970, 1, 1), datetime(2999, 1, 1, 0, 0, 0, 1000), None],
    "timestamp(6)": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), None],
    "timestamp_ltz(6)": [datetime(2000, 1, 1, tzinfo=timezone(timedelta())), None, None],
    "array<int>": [[], [1, None, 3], None],
    "map<string, int>": [[("a", 1), ("b", None)], [], None],
    "row<a int, b string>": [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
    "array<row<a array<string>>>": [[{"a": ["x", None]}], [], None],
}


@pytest.fixture(params=[0, 1, 3], ids=["whole", "from the first", "from the third"])
def image(request):
    """An image whose one chunk is a slice of a batch of rows with every type."""
    types = {"id": "bigint not null", **{f"c{at}": each for at, each in enumerate(VALUES)}}
    descriptor = make_descriptor(types, primary_key=["id"])
    schema = descriptor.schema.arrow_schema
    count = 21
    columns = [pa.array(range(count), pa.int64())]
    for field, values in zip(list(schema)[1:], VALUES.values(), strict=True):
        columns.append(pa.array([values[at % 3] for at in range(count)], field.type))
    rows = pa.RecordBatch.from_arrays(columns, schema=schema).slice(request.param)
    offsets = np.arange(count, dtype=np.int64)[request.param :]
    live = np.array([at % 4 != 0 for at in range(rows.num_rows)])
    return descriptor, KvImage(50, (KvChunk(3, 1, rows, offsets, offsets * 10),), (live,), 4)


def test_every_type_comes_back(tmp_path, image):
    descriptor, written = image
    write(store(tmp_path), written)
    schema = descriptor.schema.arrow_schema
    _, found = store(tmp_path).load({1: schema})
    assert found.chunks[0].rows.equals(written.chunks[0].rows)
    assert found.chunks[0].rows.schema.equals(schema)
    found.chunks[0].rows.validate(full=True)
    assert found.live[0].tolist() == written.live[0].tolist()
    assert found.chunks[0].offsets.tolist() == written.chunks[0].offsets.tolist()


def test_a_store_goes_on_from_it(tmp_path, image):
    """Its chunks lie in a mapped file that nobody may write: the store never tries to."""
    descriptor, written = image
    schemas = {1: descriptor.schema.arrow_schema}
    write(store(tmp_path), written)
    snapshots = store(tmp_path)
    _, found = snapshots.load(schemas)
    rows = KvStore.restore(descriptor, 1, schemas, found)
    assert rows.row_count == int(np.count_nonzero(written.live[0]))
    ids = pa.record_batch({"id": pa.array(range(30), pa.int64())}, schema=pa.schema([schemas[1].field("id")]))
    before = dict(zip(range(30), rows.lookup(ids, None)[0], strict=True))
    change = rows.prepare(written.chunks[0].rows, bytes([3] * written.chunks[0].rows.num_rows), base_offset=50)
    rows.commit(change, 600)
    change = rows.prepare(written.chunks[0].rows.slice(0, 2), bytes([4, 4]), base_offset=rows.log_offset)
    rows.commit(change, 700)
    assert sum(before.values()) == len([1 for each in written.live[0] if each])
    write(snapshots, rows.image())
    _, last = store(tmp_path).load(schemas)
    assert last.row_count == rows.row_count == written.chunks[0].rows.num_rows - 2
    assert last.log_offset == rows.log_offset
