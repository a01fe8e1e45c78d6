"""What an answer holds is checked before anybody sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab.client.log.fetch_codec import FetchedBucket, FetchLimits, Projection, decode_bucket, fetch_request
from fluss_lab.client.log.range_reader import checked_lake_records
from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import FetchContext, FlussLogSource, LookupContext
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.records import LogRecords, encode

INFO = TableInfo(TablePath("db", "t"), 7, 1, make_descriptor({"id": "bigint", "s": "string"}), 0, 0)
BUCKET = TableBucket(7, None, 0)


def batch(base: int, stop: int, schema_id: int = 1) -> bytes:
    rows = pa.record_batch({"id": pa.array(range(base, stop), pa.int64()), "s": pa.nulls(stop - base, pa.string())})
    parts = encode(rows, schema_id=schema_id, base_offset=base, timestamp_ms=base)
    return b"".join(bytes(part) for part in parts)


def offsets(data: bytes, start: int, found: list[int] | None = None) -> list[int]:
    found = [] if found is None else found
    for run in decode_bucket(FetchedBucket(BUCKET, None, None, -1, 0, data), start, Projection(INFO, None)):
        found += run.offsets.to_pylist()
        assert run.rows.column("id").to_pylist() == run.offsets.to_pylist()
    return found


def test_records_before_the_fetch_offset_are_left_out():
    data = batch(0, 10) + batch(10, 20) + batch(20, 30)
    assert offsets(data, 0) == list(range(30))
    assert offsets(data, 13) == list(range(13, 30))
    assert offsets(data, 29) == [29]
    assert offsets(data, 30) == []
    assert offsets(b"", 5) == []


def test_a_batch_without_records_is_passed_over():
    assert offsets(batch(0, 3) + batch(3, 3) + batch(3, 5), 0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("data", [batch(1, 5), batch(0, 5) + batch(6, 8)], ids=["at the begin", "in between"])
def test_a_gap_is_corruption(data):
    found: list[int] = []
    with pytest.raises(CorruptDataError, match="expected records from offset"):
        offsets(data, 0, found)
    assert found == list(range(len(found)))


@pytest.mark.parametrize("at", [22, 26, 60, -1])
def test_a_batch_that_comes_alone_is_checked_as_others_are(at):
    data = bytearray(batch(0, 5))
    data[at] ^= 1
    with pytest.raises(CorruptDataError):
        offsets(bytes(data), 0)


def test_another_schema_is_refused():
    with pytest.raises(CorruptDataError, match="schema id 1, found 2"):
        offsets(batch(0, 5, schema_id=2), 0)


@pytest.mark.parametrize("place", [-1, 25, 60, 100])
def test_a_changed_byte_is_corruption_and_what_came_before_it_is_right(place):
    first, second = batch(0, 5), bytearray(batch(5, 10))
    second[place] ^= 1
    found: list[int] = []
    with pytest.raises(CorruptDataError):
        offsets(first + bytes(second), 0, found)
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, 8, 32, 36, 48])
def test_previous_offsets_are_as_many_as_records(size):
    """Of five records in two batches."""
    data = batch(0, 3) + batch(3, 5)
    previous = pa.array([-1, -1, 0, 1, 2], pa.int64()).buffers()[1].to_pybytes()[:40]
    whole = FetchedBucket(BUCKET, None, None, -1, 0, data, previous_offsets=previous)
    runs = list(decode_bucket(whole, 1, Projection(INFO, None)))
    assert [each for run in runs for each in run.previous_offsets.to_pylist()] == [-1, 0, 1, 2]
    wrong = replace(whole, previous_offsets=(previous * 2)[:size])
    given = []
    with pytest.raises(CorruptDataError, match="previous offsets"):
        given.extend(decode_bucket(wrong, 0, Projection(INFO, None)))
    assert all(len(run.previous_offsets) == len(run) for run in given)


def test_of_all_columns_nothing_is_projected_by_the_server():
    """In whichever order they are wanted, and whatever columns batches of other schemas have."""
    newer = make_descriptor({"id": "bigint", "s": "string", "n": "int"}).schema
    limits = FetchLimits(1 << 20, 0, enable_lake=False)
    for wanted, is_projected in ((["id", "s"], False), (["s", "id"], False), (["s"], True), (None, False)):
        projection = Projection(INFO, wanted, lambda _: newer)
        (table,) = fetch_request(7, [(BUCKET, 0)], projection, limits).tables_req
        assert table.projection_pushdown_enabled == is_projected
        assert list(table.projected_fields) == ([1] if is_projected else [])
        assert projection.columns == (None if wanted is None else tuple(wanted))
        if is_projected:
            continue
        rows = pa.record_batch({
            "id": pa.array([5, 6], pa.int64()), "s": pa.array(["a", "b"]), "n": pa.array([1, 2], pa.int32()),
        })  # fmt: skip
        later = b"".join(bytes(part) for part in encode(rows, schema_id=2, base_offset=5, timestamp_ms=5))
        found = FetchedBucket(BUCKET, None, None, -1, 0, batch(0, 5) + later)
        runs = list(decode_bucket(found, 0, projection))
        assert {tuple(run.rows.schema.names) for run in runs} == {tuple(wanted or ("id", "s"))}
        assert [each for run in runs for each in run.rows.column("id").to_pylist()] == list(range(7))
        assert [each for run in runs for each in run.rows.column("s").to_pylist()] == [None] * 5 + ["a", "b"]


class _Lake(FlussLogSource):
    """A lake that holds these ranges."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._ranges = ranges

    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        raise NotImplementedError

    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        raise NotImplementedError

    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        for start, stop in self._ranges:
            values = pa.array(range(start, stop), pa.int64())
            yield LogRecords(pa.record_batch({"id": values}), values, values)


def from_lake(*ranges: tuple[int, int]) -> list[int]:
    context = FetchContext(10, 30, None, 0, 1)
    return [each for run in checked_lake_records(_Lake(*ranges), context, "t") for each in run.offsets.to_pylist()]


def test_what_the_lake_gives_is_complete_and_in_order():
    assert from_lake((10, 15), (15, 15), (15, 30)) == list(range(10, 30))
    for wrong in [(), ((10, 29),), ((11, 30),), ((10, 15), (16, 30)), ((10, 15), (14, 30)), ((15, 30), (10, 15))]:
        with pytest.raises(CorruptDataError, match="lake snapshot 1"):
            from_lake(*wrong)


def test_a_changelog_from_the_lake_has_change_types_and_previous_offsets():
    context = FetchContext(10, 30, None, 0, 1)
    with pytest.raises(CorruptDataError, match="change types and previous offsets"):
        list(checked_lake_records(_Lake((10, 30)), context, "t", keyed=True))
