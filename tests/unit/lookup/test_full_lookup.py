"""Full lookups: rows are loaded once, and followed by their changes; what was kept and is wrong is loaded anew."""

import json
import random

import pyarrow as pa
import pytest

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.lookup import FunctionContext, TaskInfo, full_lookup
from fluss_lab.lookup.rows import kept_rows
from tests.unit.lookup.lookup_kit import check, found, key_batch, opened, planned

pytestmark = pytest.mark.slow

NAMES = {"pk": ("id",), "pk_prefix": ("g",), "pk_parts": ("id",)}


def row(key, name="a"):
    return {"id": key, "name": name, "x": 1.5}


def counted(table, function, moment, folder, rng):
    """Look up at a moment, held against the model; return what was counted."""
    with opened(function, moment, folder):
        check(table, function, moment, rng)
        counts = function.counters()
    assert counts["rows_cached"] == len(table.expected(moment.stops))
    assert counts["calls"] == 0
    assert counts["found"] <= counts["keys"] * counts["rows_cached"]
    return counts


@pytest.mark.parametrize("kind", NAMES)
def test_a_micro_batch_reads_only_what_has_changed_since_the_last(kind, make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(kind, seed)
    table.write(3)
    function = planned(table, "full", NAMES[kind])
    first = table.keep()
    assert counted(table, function, first, tmp_path, rng)["loads"] == 1
    again = counted(table, function, first, tmp_path, rng)
    assert (again["loads"], again["changes"]) == (0, 0)
    made = {place[0] for place in table.stops}
    for _ in range(3):
        before = table.stops
        table.write(2)
        if rng.random() < 0.5:
            table.tier()
            table.retain()
        counts = counted(table, function, table.keep(), tmp_path, rng)
        assert counts["loads"] == 0
        assert counts["changes"] == sum(table.stops.values()) - sum(before.values())
    assert {place[0] for place in table.stops} >= made
    # A point that lies before the rows kept is not reached by changes.
    assert counted(table, function, first, tmp_path, rng)["loads"] == 1


def test_changes_are_merged_into_the_rows_when_they_are_many(make_keyed, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(full_lookup, "_APART_MIN", 3)
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.upsert([row(key) for key in range(12)])
    function = planned(table, "full", ("id",))
    counted(table, function, table.keep(), tmp_path, rng)
    bases = set()
    for number in range(8):
        table.upsert([row(number, "new"), row(20 + number)])
        table.delete([{"id": 11 - number}])
        assert counted(table, function, table.keep(), tmp_path, rng)["loads"] == 0
        bases |= {path.name for path in tmp_path.glob("rows-*")}
    assert 2 <= len(bases) <= 5


def test_rows_are_loaded_anew_where_that_is_less_than_the_changes(make_keyed, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(full_lookup, "_FOLLOWED_MIN", 5)
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.upsert([row(1)])
    function = planned(table, "full", ("id",))
    counted(table, function, table.keep(), tmp_path, rng)
    for number in range(4):
        table.upsert([row(1, str(number))])
    assert counted(table, function, table.keep(), tmp_path, rng)["loads"] == 1


@pytest.mark.parametrize("damage", ["bytes", "head", "gone", "a folder"])
def test_damaged_rows_are_loaded_anew(damage, make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.write(3)
    function = planned(table, "full", ("id",))
    moment = table.keep()
    counted(table, function, moment, tmp_path, rng)
    for name in ("rows", "key_marks", "key_slots", "apart"):
        (path,) = (each for each in tmp_path.glob(f"{name}-*.arrow") if each.is_file())
        if damage == "bytes":
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 255
            path.write_bytes(data)
        elif damage == "head":
            (tmp_path / "head.json").write_text(json.dumps({"version": 1}))
        else:
            path.unlink()
        if damage == "a folder":
            path.mkdir()
        assert counted(table, function, moment, tmp_path, rng)["loads"] == 1


def test_rows_of_another_join_are_not_used(make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table, other = make_keyed(seed=seed), make_keyed(seed=seed + 1)
    for each in (table, other):
        each.write(3)
        assert counted(each, planned(each, "full", ("id",)), each.keep(), tmp_path, rng)["loads"] == 1
    moment = other.keep()
    assert counted(other, planned(other, "full", ("id",)), moment, tmp_path, rng)["loads"] == 0
    assert counted(other, planned(other, "full", ("id",), ["name"]), moment, tmp_path, rng)["loads"] == 1
    assert counted(other, planned(other, "full", ("name",), ["name"]), moment, tmp_path, rng)["loads"] == 1


def test_rows_of_other_buckets_are_not_used(make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed("pk_by_int", seed)
    table.write(3)
    moment, held = table.keep(), []
    for task in range(3):
        function = planned(table, "full", table.kind.primary_key, tasks=3)
        with opened(function, moment, tmp_path, task, 3):
            held.append(function.counters()["rows_cached"])
            assert function.counters()["loads"] == 1
    assert sum(held) == len(table.expected(moment.stops))
    assert rng


def test_changes_that_have_gone_are_no_loss(make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(seed=seed, **{"table.datalake.enabled": False})
    table.upsert([row(key) for key in range(60)])
    function = planned(table, "full", ("id",))
    counted(table, function, table.keep(), tmp_path, rng)
    for number in range(8):
        table.upsert([row(key, f"{number} of {key}") for key in range(60)])
        table.clock.advance(10)
    table.retain()
    assert all(status.start_offset > 60 for status in table.statuses().values()), "the log is whole: nothing is shown"
    assert counted(table, function, table.keep(), tmp_path, rng)["loads"] == 1


def test_a_server_that_was_started_again_between_micro_batches_changes_nothing(
    make_keyed, lookup_cluster, seed, tmp_path
):
    rng = random.Random(seed)
    table = make_keyed(seed=seed)
    table.write(3)
    function = planned(table, "full", ("id",))
    moment = table.keep()
    counted(table, function, moment, tmp_path, rng)
    table.write()
    later = table.keep()
    lookup_cluster.restart()
    assert counted(table, function, later, tmp_path, rng)["loads"] == 0
    assert counted(table, function, moment, None, rng)["loads"] == 1


def test_more_than_a_batch_can_hold_is_an_error(make_keyed, monkeypatch):
    table = make_keyed()
    table.write()
    function = planned(table, "full", ("id",))

    def too_large(_batches):
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(full_lookup.pa, "concat_batches", too_large)
    with pytest.raises(RecordTooLargeError, match="use mode 'remote', fewer columns, or more tasks"):
        function.open(opened_context(table))
    function.close()


def opened_context(table):
    return FunctionContext(TaskInfo(0, 1, 1, 0), table.keep().asked["read_point"].to_json())


def test_what_cannot_be_kept_is_no_failure(make_keyed, seed, tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(kept_rows, "write_atomic", full)
    table = make_keyed(seed=seed)
    table.write(2)
    function = planned(table, "full", ("id",))
    for _ in range(2):
        assert counted(table, function, table.keep(), tmp_path, random.Random(seed))["loads"] == 1


def test_rows_of_a_partition_that_has_gone_go(make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed("pk_parts", seed)
    table.upsert([row(1) | {"p": "p1"}, row(1) | {"p": "p2"}, row(2) | {"p": "p2"}])
    functions = {mode: planned(table, mode, ("id",)) for mode in ("full", "remote")}
    for again in range(2):
        moment = table.keep()
        for mode, function in functions.items():
            with opened(function, moment, tmp_path / mode):
                check(table, function, moment, rng)
                keys = key_batch(table, ("id",), [{"id": 1}, {"id": 2}])
                assert [len(each) for each in found(function, keys)] == [[2, 1], [1, 0]][again]
        if not again:
            table.connection.admin().drop_partition(table.history.path, {"p": "p2"}, lake=True, discard_untiered=True)
            table.history.model.drop_partition("p2")
            table.history.logs = {place: log for place, log in table.history.logs.items() if place[0] != "p2"}


@pytest.mark.parametrize("mode", ["full", "remote"])
def test_a_join_of_keys_alone_counts_their_rows(mode, make_keyed, tmp_path):
    table = make_keyed("pk_prefix")
    table.upsert([{"g": 1, "word": word, "name": None, "x": None} for word in ("a", "b")])
    function, moment = planned(table, mode, ("g",), []), table.keep()
    keys = key_batch(table, ("g",), [{"g": 2}, {"g": 1}])
    for _ in range(2):
        with opened(function, moment, tmp_path):
            for _ in range(2):
                answer = function.lookup(keys)
                assert answer.positions.tolist() == [1, 1]
                assert answer.rows.num_rows == 2
                assert not answer.rows.schema.names
