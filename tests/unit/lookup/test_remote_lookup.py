"""Remote lookups: what changed since the point is undone, what was asked is cached, what is gone is an error."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import pytest

from fluss_lab.errors import (
    CorruptDataError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.lookup import remote_lookup
from fluss_lab.testing import MockClock
from tests.unit.lookup.lookup_kit import check, found, key_batch, opened, planned, wanted
from tests.unit.read.keyed_kit import Moment

pytestmark = pytest.mark.slow


def row(key, name="a"):
    return {"id": key, "name": name, "x": 1.5}


def ids(table, *values):
    return key_batch(table, ("id",), [{"id": value} for value in values])


def names_of(function, keys):
    answer = function.lookup(keys)
    return dict(zip(answer.positions.tolist(), answer.rows.column("name").to_pylist(), strict=True))


def test_the_first_change_since_the_point_says_what_there_was(make_keyed):
    table = make_keyed()
    table.upsert([row(key, "old") for key in range(4)])
    moment = table.keep()
    function = planned(table, "remote", ("id",))
    keys = ids(table, 0, 1, 2, 3, 4, 5)
    table.upsert([row(0, "newer")])
    with opened(function, moment):
        # Reads what has changed so far; what changes next is read by the next call.
        assert names_of(function, ids(table, 3)) == {0: "old"}
        table.upsert([row(0, "newest")])
        assert names_of(function, ids(table, 0)) == {0: "old"}
    table.delete([{"id": 1}])
    table.upsert([row(1, "back")])
    table.delete([{"id": 2}])
    table.upsert([row(4, "made since")])
    table.upsert([row(5, "made and gone")])
    table.delete([{"id": 5}])
    with opened(function, moment):
        assert names_of(function, keys) == {0: "old", 1: "old", 2: "old", 3: "old"}
    assert names_of_now(table, keys) == {0: "newest", 1: "back", 3: "old", 4: "made since"}


def names_of_now(table, keys):
    function = planned(table, "remote", ("id",))
    with opened(function, table.keep()):
        return names_of(function, keys)


def test_keys_are_asked_once_and_then_cached_without_a_row_too(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(10)])
    moment = table.keep()
    function = planned(table, "remote", ("id",), ["name"])
    with opened(function, moment):
        keys = ids(table, 1, 2, 1, 99, 99, 1)
        assert found(function, keys) == wanted(table, moment, keys, ["name"])
        assert function.counters() | {"bytes_cached": 0} == {
            "keys": 6, "hits": 0, "misses": 6, "calls": 1, "found": 4, "rows_cached": 3, "bytes_cached": 0,
        }  # fmt: skip
        table.upsert([row(key, "new") for key in (1, 2, 99)])
        assert found(function, keys) == wanted(table, moment, keys, ["name"])
        assert function.counters()["calls"] == 1
        assert function.counters()["hits"] == 6
        keys = ids(table, 3, 1)
        assert found(function, keys) == wanted(table, moment, keys, ["name"])
        assert function.counters()["calls"] == 2
        assert function.counters()["rows_cached"] == 4


def test_a_cache_is_kept_between_micro_batches_without_the_keys_that_have_changed(make_keyed, tmp_path):
    table = make_keyed()
    table.upsert([row(key) for key in range(10)])
    function = planned(table, "remote", ("id",))
    keys = ids(table, *range(12))
    with opened(function, table.keep(), tmp_path):
        assert len(names_of(function, keys)) == 10
    table.upsert([row(1, "new"), row(10, "new")])
    table.delete([{"id": 2}])
    with opened(function, table.keep(), tmp_path):
        assert function.counters()["rows_cached"] == 9
        assert names_of(function, keys) == {**dict.fromkeys([0, 3, 4, 5, 6, 7, 8, 9], "a"), 1: "new", 10: "new"}
        assert function.counters()["misses"] == 3


def test_a_cache_is_dropped_where_more_has_changed_than_it_has(make_keyed, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_lookup, "_FOLLOWED_MIN", 3)
    table = make_keyed()
    table.upsert([row(1)])
    function = planned(table, "remote", ("id",))
    with opened(function, table.keep(), tmp_path):
        names_of(function, ids(table, 1))
    for number in range(4):
        table.upsert([row(2, str(number))])
    with opened(function, table.keep(), tmp_path):
        assert function.counters()["rows_cached"] == 0


def test_cached_rows_expire_by_the_clock(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    moment = table.keep()
    function = planned(table, "remote", ("id",), options={"lookup.cache.expire-after-write": "10s"})
    clock = MockClock()
    function._clock = clock
    with opened(function, moment):
        for step_ms, calls in ((0, 1), (9_999, 1), (1, 2), (9_999, 2)):
            clock.advance(step_ms)
            assert names_of(function, ids(table, 1)) == {0: "a"}
            assert function.counters()["calls"] == calls


def test_a_cache_has_at_most_the_rows_that_it_may(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(60)])
    moment = table.keep()
    function = planned(table, "remote", ("id",), options={"lookup.cache.max-rows": 16})
    with opened(function, moment):
        for first in range(0, 60, 7):
            keys = ids(table, *range(first, first + 11))
            assert found(function, keys) == wanted(table, moment, keys, function.plan.columns)
            assert function.counters()["rows_cached"] <= 16


# -- partitions --------------------------------------------------------------------------------------------------------


def part(key, partition, name="a"):
    return row(key, name) | {"p": partition}


def test_without_the_partition_columns_every_partition_is_asked(make_keyed, monkeypatch):
    monkeypatch.setattr(remote_lookup, "_ASKED_KEYS", 3)
    table = make_keyed("pk_parts")
    table.upsert([part(1, "p1"), part(1, "p2"), part(2, "p3"), part(3, "p3")])
    moment = table.keep()
    function = planned(table, "remote", ("id",))
    table.upsert([part(1, "p2", "new"), part(1, "p3", "new"), part(1, "p9", "made since")])
    table.delete([{"id": 2, "p": "p3"}])
    keys = ids(table, 1, 2, 9)
    with opened(function, moment):
        assert found(function, keys) == wanted(table, moment, keys, function.plan.columns)
        assert function.counters()["found"] == 3


def test_more_partitions_than_allowed_are_an_error(make_keyed):
    table = make_keyed("pk_parts")
    table.upsert([part(1, "p1"), part(1, "p2"), part(2, "p3")])
    function = planned(table, "remote", ("id",), options={"lookup.max-partitions": 2})
    with (
        pytest.raises(
            UnsupportedError, match=r"without partition column 'p': expected at most 2 partitions .* found 3"
        ),
        opened(function, table.keep()),
    ):
        pass
    named = planned(table, "remote", ("id", "p"), options={"lookup.max-partitions": 2})
    moment = table.keep()
    with opened(named, moment):
        check(table, named, moment, random.Random(1))


def test_what_came_with_a_partition_made_since_has_no_row(make_keyed):
    table = make_keyed("pk_parts")
    table.upsert([part(1, "p1")])
    moment = table.keep()
    table.upsert([part(1, "p7"), part(2, "p1")])
    function = planned(table, "remote", ("p", "id"))
    keys = key_batch(table, ("p", "id"), [{"p": p, "id": 1} for p in ("p1", "p7", "p8", "", "x" * 400)])
    with opened(function, moment):
        assert [len(each) for each in found(function, keys)] == [1, 0, 0, 0, 0]


def test_a_partition_dropped_since_is_an_error_where_it_is_asked(make_keyed):
    table = make_keyed("pk_parts")
    table.upsert([part(1, "p1"), part(1, "p2")])
    table.tier()
    moment = table.keep()
    named, all_of_them = (planned(table, "remote", names) for names in (("p", "id"), ("id",)))
    table.drop_partition("p2")
    with opened(named, moment):
        assert len(found(named, key_batch(table, ("p", "id"), [{"p": "p1", "id": 1}]))[0]) == 1
        with pytest.raises(
            PartitionNotFoundError, match=r"partition 'p2' was dropped from the cluster.*use mode 'full'"
        ):
            named.lookup(key_batch(table, ("p", "id"), [{"p": "p2", "id": 1}]))
    with opened(all_of_them, moment), pytest.raises(PartitionNotFoundError, match="'p2' was dropped"):
        all_of_them.lookup(ids(table, 1))
    full = planned(table, "full", ("id",))
    with opened(full, moment):
        assert [len(each) for each in found(full, ids(table, 1))] == [2]


def test_a_partition_that_nobody_has_any_more_is_an_error_where_it_is_asked(make_keyed):
    """Neither cluster nor lake has its rows; the point had."""
    table = make_keyed("pk_parts")
    table.upsert([part(1, "p1"), part(1, "p2")])
    moment = table.keep()
    function = planned(table, "remote", ("p", "id"))
    table.drop_partition("p2", discard=True)
    with opened(function, moment):
        assert len(found(function, key_batch(table, ("p", "id"), [{"p": "p1", "id": 1}]))[0]) == 1
        with pytest.raises(PartitionNotFoundError, match="partition 'p2' was dropped from the cluster"):
            function.lookup(key_batch(table, ("p", "id"), [{"p": "p2", "id": 1}]))


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_a_table_made_again_is_never_taken_for_the_first(make_keyed, lookup_cluster):
    table = make_keyed()
    table.upsert([row(1)])
    moment = table.keep()
    functions = [planned(table, mode, ("id",)) for mode in ("remote", "full")]
    admin, info = lookup_cluster.connection.admin(), table.history.info
    admin.drop_table(info.path)
    for function in functions:
        with pytest.raises(TableNotFoundError):
            read(function, moment, table)
    admin.create_table(info.path, info.descriptor)
    with table.connection.upsert_writer(info.path) as writer:
        writer.upsert([row(1, "another")]).result()
    later = planned(table, "remote", ("id",))
    for function in functions:
        with pytest.raises(TableNotFoundError, match="dropped and made again"):
            function.present_point()
        with pytest.raises(TableNotFoundError):
            read(function, moment, table)
    with pytest.raises(TableNotFoundError, match="dropped and made again"):
        read(later, moment, table)


def read(function, moment, table):
    with opened(function, moment):
        return names_of(function, ids(table, 1))


def test_columns_added_since_change_nothing(make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.write(2)
    functions = [planned(table, mode, ("id",)) for mode in ("remote", "full")]
    for number, function in enumerate(functions):
        moment = table.keep()
        with opened(function, moment, tmp_path / str(number)):
            check(table, function, moment, rng)
        table.history.add_column()
        table.write(2)
        moment = table.keep()
        with opened(function, moment, tmp_path / str(number)):
            check(table, function, moment, rng)


def test_changes_that_have_gone_are_an_error(make_keyed):
    table = make_keyed(**{"table.datalake.enabled": False})
    table.upsert([row(key) for key in range(60)])
    moment = table.keep()
    function = planned(table, "remote", ("id",))
    for number in range(8):
        table.upsert([row(key, f"{number} of {key}") for key in range(60)])
        table.clock.advance(10)
    table.retain()
    assert not table.within_reach(moment), "the log is whole: nothing is shown"
    with (
        opened(function, moment),
        pytest.raises(OffsetOutOfRangeError, match="held neither in the cluster nor in the lake"),
    ):
        function.lookup(ids(table, 1))


def test_lookups_outlive_a_server_that_is_started_again(make_keyed, lookup_cluster, seed):
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.write(2)
    moment = table.keep()
    function = planned(table, "remote", ("id",))
    table.write()
    with opened(function, moment):
        check(table, function, moment, rng)
        lookup_cluster.restart()
        check(table, function, moment, rng)


@pytest.mark.parametrize("failures", [2, 3])
def test_calls_are_repeated_as_often_as_allowed(failures, make_keyed, monkeypatch):
    table = make_keyed()
    table.upsert([row(1)])
    function = planned(table, "remote", ("id",), options={"lookup.max-retries": 2})
    with opened(function, table.keep()):
        lookup, failed = function._lookuper.lookup, []

        def failing(keys):
            if len(failed) < failures:
                failed.append(keys)
                raise ServerUnavailableError("no server answered")
            return lookup(keys)

        monkeypatch.setattr(function._lookuper, "lookup", failing)
        if failures > 2:
            with pytest.raises(ServerUnavailableError, match="no server answered"):
                names_of(function, ids(table, 1))
        else:
            assert names_of(function, ids(table, 1)) == {0: "a"}


def test_what_servers_cannot_look_up_by_is_an_error_that_says_by_what_they_can(make_keyed):
    table = make_keyed("pk_prefix")
    with pytest.raises(UnsupportedError, match=r"\(g, word.*bucket key \(g\).*found \(word\); use mode 'full'"):
        planned(table, "remote", ("word",))


def test_a_log_that_has_lost_its_end_is_an_error(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    point = table.reader().read_point()
    later = replace(point, buckets=tuple(msgspec.structs.replace(each, stop=each.stop + 5) for each in point.buckets))
    function = planned(table, "remote", ("id",))
    with (
        opened(function, Moment({"read_point": later}, {})),
        pytest.raises(CorruptDataError, match="records up to offset"),
    ):
        function.lookup(ids(table, 1))


def test_what_changes_between_batches_is_undone_too(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in (1, 2, 3)])
    moment = table.keep()
    function = planned(table, "remote", ("id",))
    with opened(function, moment):
        for key in (1, 2, 3):
            table.upsert([row(key, "new")])
            assert names_of(function, ids(table, key)) == {0: "a"}


def test_lookups_while_others_write_are_those_of_the_point(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(0, 40, 2)])
    moment = table.keep()
    function = planned(table, "remote", ("id",), options={"lookup.cache.max-rows": 0})
    keys = ids(table, *range(40))
    expected = wanted(table, moment, keys, function.plan.columns)

    def write():
        with table.connection.upsert_writer(table.history.path) as writer:
            for number in range(40):
                writer.upsert([row(key, str(number)) for key in range(number % 3, 40, 3)]).result()
                writer.delete([{"id": key} for key in range(number % 5, 40, 5)]).result()

    with ThreadPoolExecutor(1) as pool, opened(function, moment):
        written = pool.submit(write)
        while not written.done():
            assert found(function, keys) == expected
        written.result()
        assert found(function, keys) == expected


def test_more_changes_than_a_task_may_hold_are_an_error(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    moment = table.keep()
    function = planned(table, "remote", ("id",), options={"lookup.remote.max-changes": 2})
    table.upsert([row(key, "new") for key in (1, 2)])
    with opened(function, moment):
        assert names_of(function, ids(table, 1, 2)) == {0: "a"}
        table.upsert([row(3)])
        with pytest.raises(UnsupportedError, match=r"at most 2 keys that have changed.*found 3; use mode 'full'"):
            function.lookup(ids(table, 3))
