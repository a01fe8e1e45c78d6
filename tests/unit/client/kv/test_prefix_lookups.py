"""Looking up by prefix: every row whose key begins so, in the order asked, and what is no prefix is refused."""

from __future__ import annotations

import pytest

from fluss_lab.errors import InvalidRecordError, UnsupportedError


@pytest.fixture
def legs(connection, make_table):
    info = make_table(
        {"origin": "string", "id": "int", "dest": "string"},
        primary_key=["origin", "id"], bucket_key=["origin"], buckets=3,
    )  # fmt: skip
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([leg(origin, number) for number in range(5) for origin in ("JFK", "EWR", "LGA", "", "JF")])
        writer.delete([{"origin": "JFK", "id": 3}])
    return info


def leg(origin, number):
    return {"origin": origin, "id": number, "dest": f"to {number}"}


def test_all_rows_of_a_prefix_are_found(connection, legs):
    with connection.lookuper(legs.path) as lookuper:
        found = lookuper.prefix_lookup({"origin": "JFK"}).to_pylist()
        assert sorted(found, key=lambda each: each["id"]) == [leg("JFK", number) for number in (0, 1, 2, 4)]
        assert lookuper.prefix_lookup({"origin": "XXX"}).num_rows == 0
        assert lookuper.prefix_lookup([]).num_rows == 0


def test_several_prefixes_come_in_the_order_asked(connection, legs):
    origins = ["LGA", "XXX", "", "JFK", "LGA", "JF"]
    with connection.lookuper(legs.path, columns=["id", "origin"]) as lookuper:
        found = lookuper.prefix_lookup({"origin": origins})
    assert found.schema.names == ["id", "origin"]
    expected = [origin for origin in origins for _ in range({"XXX": 0, "JFK": 4}.get(origin, 5))]
    assert found["origin"].to_pylist() == expected
    assert sorted(found["id"].to_pylist()[:5]) == list(range(5))


@pytest.mark.parametrize("prefix", [{"origin": "JFK", "id": 1}, {"id": 1}, {"origin": None}, {}, [{"origin": 1}]])
def test_a_prefix_is_exactly_the_bucket_key(connection, legs, prefix):
    with connection.lookuper(legs.path) as lookuper, pytest.raises(InvalidRecordError):
        lookuper.prefix_lookup(prefix)


def test_prefixes_of_a_partitioned_table_name_the_partition(connection, make_table):
    info = make_table(
        {"p": "string", "a": "int", "b": "int", "c": "int"},
        primary_key=["a", "p", "b", "c"], partitioned_by=["p"], bucket_key=["a", "b"], buckets=2,
    )  # fmt: skip
    rows = [{"p": p, "a": a, "b": b, "c": c} for p in "xy" for a in range(3) for b in range(3) for c in range(3)]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(rows)
    with connection.lookuper(info.path) as lookuper:
        asked = [{"p": "y", "b": 2, "a": 1}, {"p": "z", "b": 2, "a": 1}, {"p": "x", "b": 0, "a": 0}]
        found = lookuper.prefix_lookup(asked).to_pylist()
        assert [sorted(each["c"] for each in part) for part in (found[:3], found[3:])] == [[0, 1, 2]] * 2
        assert {(each["p"], each["a"], each["b"]) for each in found[:3]} == {("y", 1, 2)}
        assert {(each["p"], each["a"], each["b"]) for each in found[3:]} == {("x", 0, 0)}
        with pytest.raises(InvalidRecordError, match="'p' is missing"):
            lookuper.prefix_lookup({"a": 1, "b": 2})


def test_tables_without_such_a_bucket_key_refuse_prefixes(connection, make_table):
    whole = make_table({"a": "int", "b": "int"}, name="whole", primary_key=["a", "b"])
    other = make_table({"a": "int", "b": "int"}, name="other", primary_key=["a", "b"], bucket_key=["b"])
    for info in (whole, other):
        with connection.lookuper(info.path) as lookuper, pytest.raises(UnsupportedError, match="proper prefix"):
            lookuper.prefix_lookup({"a": 1})
