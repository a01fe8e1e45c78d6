"""What an answer holds is checked before anybody sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab.client.log import fetch_codec
from fluss_lab.client.log.fetch_codec import (
    DecodedEnds,
    FetchedBucket,
    FetchLimits,
    Projection,
    decode_bucket,
    fetch_request,
)
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


NEWER = make_descriptor({"id": "bigint", "s": "string", "n": "int"}).schema


def random_batch(rng, base):
    """A batch of one row or some, of either schema, with change types or without."""
    stop, schema_id = base + rng.choice([1, 1, 1, 3]), rng.choice([1, 1, 1, 2])
    columns = {
        "id": pa.array(range(base, stop), pa.int64()),
        "s": pa.array([rng.choice([None, "", "a", "long" * 9]) for _ in range(base, stop)], pa.string()),
    }
    if schema_id == 2:
        columns["n"] = pa.array([rng.randrange(9) for _ in range(base, stop)], pa.int32())
    kinds = bytes(rng.randrange(4) for _ in range(base, stop)) if rng.random() < 0.2 else None
    parts = encode(
        pa.record_batch(columns),
        schema_id=schema_id,
        base_offset=base,
        timestamp_ms=rng.randrange(99),
        change_types=kinds,
    )
    return stop, b"".join(bytes(part) for part in parts)


def contents(data, start, projection, ends=None, all_columns=True):
    found = FetchedBucket(BUCKET, None, None, -1, 0, data, all_columns=all_columns)
    return [
        (offset, time, kind, row)
        for run in decode_bucket(found, start, projection, ends)
        for offset, time, kind, row in zip(
            run.offsets.to_pylist(),
            run.timestamps_ms.to_pylist(),
            [0] * len(run) if run.change_types is None else run.change_types.to_pylist(),
            run.rows.to_pylist(),
            strict=True,
        )
    ]


def test_what_was_decoded_before_is_what_decoding_gives(rng):
    """A log that grows, is read from elsewhere, or was begun anew with other records at the same offsets."""
    ends = DecodedEnds()
    projections = [Projection(INFO, wanted, lambda _: NEWER) for wanted in (None, ["s"], ["s", "id"])]
    batches, end = [], 0
    for step in range(120):
        if rng.random() < 0.1:
            cut = rng.randrange(len(batches) + 1)
            batches, end = batches[:cut], batches[cut][0] if cut < len(batches) else end
        for _ in range(rng.choice([0, 1, 1, 5, 40]) if step else 60):
            begin, (end, data) = end, random_batch(rng, end)
            batches.append((begin, data))
        low = rng.choice([0, 0, 0, rng.randrange(len(batches) + 1)])
        data, start = b"".join(data for _, data in batches[low:]), batches[low][0] if low < len(batches) else end
        projection = rng.choice(projections)
        assert contents(data, start, projection, ends) == contents(data, start, projection)


def test_nothing_is_decoded_twice_while_rows_are_added(monkeypatch):
    ends, projection, data, decoded = DecodedEnds(), Projection(INFO, None), b"", []
    decode_runs = fetch_codec.decode_runs

    def counted(view, schemas):
        decoded.append(len(view))
        return decode_runs(view, schemas)

    monkeypatch.setattr(fetch_codec, "decode_runs", counted)
    for base in range(50):
        data += batch(base, base + 1)
        assert [offset for offset, *_ in contents(data, 0, projection, ends)] == list(range(base + 1))
    assert sum(decoded) <= len(data)


def test_columns_of_one_bucket_are_kept_apart():
    """The server leaves columns out of large batches: then the same bytes are not of the same columns."""
    ends = DecodedEnds()
    numbers = pa.record_batch({"id": pa.array(range(3), pa.int64())})
    data = b"".join(
        bytes(part) for base in (0, 3) for part in encode(numbers, schema_id=1, base_offset=base, timestamp_ms=0)
    )
    twice = TableInfo(INFO.path, 7, 1, make_descriptor({"id": "bigint", "other": "bigint"}), 0, 0)
    for name in ("id", "other"):
        found = contents(data, 0, Projection(twice, [name]), ends, all_columns=False)
        assert [row for *_, row in found] == [{name: value} for value in (0, 1, 2, 0, 1, 2)]


def test_a_table_that_has_the_id_of_another_has_its_own_columns():
    """Ids are used again where older metadata is restored; what columns are called is not in the bytes."""
    ends, data = DecodedEnds(), batch(0, 2) + batch(2, 4)
    renamed = TableInfo(INFO.path, 7, 1, make_descriptor({"number": "bigint", "text": "string"}), 0, 0)
    for info, name in ((INFO, "id"), (renamed, "number")):
        assert [row[name] for *_, row in contents(data, 0, Projection(info, None), ends)] == [0, 1, 2, 3]


def test_damage_behind_what_is_kept_is_found_each_time_and_not_kept():
    ends, projection = DecodedEnds(), Projection(INFO, None)
    data = b"".join(batch(base, base + 1) for base in range(20))
    assert len(contents(data, 0, projection, ends)) == 20
    new = bytearray(batch(20, 21) + batch(21, 22))
    new[-1] ^= 1
    for _ in range(2):
        runs = decode_bucket(FetchedBucket(BUCKET, None, None, -1, 0, data + bytes(new)), 0, projection, ends)
        given = []
        with pytest.raises(CorruptDataError):
            given.extend(offset for run in runs for offset in run.offsets.to_pylist())
        assert given == list(range(21))
        broken = bytearray(data)
        broken[-1] ^= 1
        with pytest.raises(CorruptDataError):
            contents(bytes(broken), 0, projection, ends)
    new[-1] ^= 1
    assert [offset for offset, *_ in contents(data + bytes(new), 0, projection, ends)] == list(range(22))


def test_a_reader_that_stops_leaves_nothing_half_kept():
    ends, projection = DecodedEnds(), Projection(INFO, None)
    data = b"".join(batch(base, base + 1) for base in range(200))
    runs = decode_bucket(FetchedBucket(BUCKET, None, None, -1, 0, data), 0, projection, ends)
    assert len(next(runs)) < 200
    runs.close()
    assert [offset for offset, *_ in contents(data, 0, projection, ends)] == list(range(200))


def test_ends_of_many_buckets_take_a_bounded_room(monkeypatch):
    monkeypatch.setattr(fetch_codec, "_KEPT_TOGETHER_BYTES_MAX", 20_000)
    ends, projection = DecodedEnds(), Projection(INFO, None)
    data = b"".join(batch(base, base + 1) for base in range(10))
    for number in range(100):
        found = FetchedBucket(TableBucket(7, None, number), None, None, -1, 0, data)
        assert sum(map(len, decode_bucket(found, 0, projection, ends))) == 10
    kept = sum(end.size_bytes for end in ends._kept.values())
    assert len(data) <= kept <= 20_000
    monkeypatch.setattr(fetch_codec, "_KEPT_ONE_BYTES_MAX", len(data))  # which leaves no room for the records
    large = FetchedBucket(TableBucket(7, None, 100), None, None, -1, 0, data)
    assert sum(map(len, decode_bucket(large, 0, projection, ends))) == 10
    assert not [key for key in ends._kept if key[0] == large.bucket]
