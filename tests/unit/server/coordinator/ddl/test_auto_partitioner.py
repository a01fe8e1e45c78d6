"""Partitions by the clock: made ahead, dropped when past keeping, whatever else happens to the table."""

import logging
import threading
from datetime import UTC, datetime

import pytest

from fluss_lab import errors
from fluss_lab.model import TablePath
from fluss_lab.server.coordinator.ddl.partition_records import AutoPartitionMark, AutoPartitionMarks
from fluss_lab.testing import wait_until
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.coordinator.rig import Rig

AUTO = "table.auto-partition."
DAY_MS = 86_400_000


def options(**values) -> dict[str, str]:
    return {AUTO + "enabled": "true"} | {AUTO + key.replace("_", "-"): str(value) for key, value in values.items()}


def day(ahead: int = 0) -> str:
    return datetime.fromtimestamp(START_MS / 1000 + ahead * 86_400, UTC).strftime("%Y%m%d")


@pytest.fixture
def eager(tmp_path):
    """A cluster that looks after partitions all the time."""
    made = Rig(tmp_path / "lab", options={"auto-partition.check.interval": "10ms", "max.partition.num": "5"})
    made.create_database()
    yield made
    made.close()


def become(rig, *names: str) -> None:
    wait_until(lambda: sorted(rig.partitions()) == sorted(names))


def test_partitions_are_there_when_the_table_is(rig):
    table_id = rig.create(partitioned_by=["p"], buckets=2, properties=options(num_precreate=3))
    assert list(rig.partitions()) == [day(), day(1), day(2)]
    assert len(rig.buckets(table_id)) == 6


def test_partitions_follow_the_clock(eager):
    eager.create(partitioned_by=["p"], properties=options(num_retention=1))
    become(eager, day(), day(1))
    eager.clock.advance(DAY_MS)
    become(eager, day(), day(1), day(2))
    eager.clock.advance(DAY_MS)
    become(eager, day(1), day(2), day(3))
    eager.clock.advance(30 * DAY_MS)
    become(eager, day(32), day(33))
    held = [(each, 0) for each in sorted(eager.partitions().values())]
    wait_until(lambda: eager.buckets(eager.info().table_id) == held)


def test_partitions_are_made_while_the_server_was_away(eager):
    eager.create(partitioned_by=["p"], properties=options(num_retention=0))
    eager.cluster.stop()
    eager.clock.advance(3 * DAY_MS)
    eager.cluster.start()
    become(eager, day(3), day(4))


def test_the_options_change_on_a_live_table(rig):
    rig.create(partitioned_by=["p"])
    assert rig.partitions() == {}
    rig.create_partition(p="whatever")
    rig.alter(set=options(num_precreate=1))
    assert sorted(rig.partitions()) == [day(), "whatever"]
    rig.alter(set=options(num_precreate=4))
    assert sorted(rig.partitions()) == [day(), day(1), day(2), day(3), "whatever"]
    rig.clock.advance(2 * DAY_MS)
    rig.alter(set=options(num_precreate=0, num_retention=1))
    assert sorted(rig.partitions()) == [day(1), day(2), day(3), "whatever"]
    rig.alter(set={AUTO + "enabled": "false"})
    rig.clock.advance(30 * DAY_MS)
    rig.alter(set={"custom.x": "1"})
    assert sorted(rig.partitions()) == [day(1), day(2), day(3), "whatever"]
    for key in ("time-unit", "time-zone", "key"):
        with pytest.raises(errors.UnsupportedError, match="may not change"):
            rig.alter(set={AUTO + key: "year"})


def test_too_many_partitions_are_logged_and_the_rest_goes_on(eager, caplog):
    with caplog.at_level(logging.WARNING):
        eager.create(partitioned_by=["p"], properties=options(num_precreate=7, num_retention=0))
        become(eager, *map(day, range(5)))
    assert "the most there may be" in caplog.text
    eager.create("u", partitioned_by=["p"], properties=options(num_precreate=1))
    eager.clock.advance(2 * DAY_MS)
    become(eager, *map(day, range(2, 7)))


def test_rows_of_another_time_or_of_none_are_refused(rig):
    rig.create(partitioned_by=["p"], properties=options(num_retention=1, num_precreate=0))
    rig.create_partition(p=day(-1))
    rig.create_partition(p=day(5))
    for value in (day(-2), "yesterday", "2025"):
        with pytest.raises(errors.InvalidPartitionError):
            rig.create_partition(p=value)
    with rig.cluster.connection.append_writer("d.t") as writer:
        writer.append([{"a": 1, "p": day()}]).result()
        with pytest.raises(errors.InvalidPartitionError, match="is out of date"):
            writer.append([{"a": 1, "p": day(-3)}]).result()


def test_a_table_by_several_columns_is_only_cleared(eager):
    eager.create(partitioned_by=["p", "q"], schema={"a": "bigint", "p": "string", "q": "string"},
                 properties=options(key="q", num_retention=1))  # fmt: skip
    for p, q in (("x", day(-1)), ("y", day(-1)), ("x", day())):
        eager.create_partition(p=p, q=q)
    assert sorted(eager.partitions()) == [f"x${day(-1)}", f"x${day()}", f"y${day(-1)}"]
    eager.clock.advance(DAY_MS)
    become(eager, f"x${day()}")


def test_a_lake_table_keeps_what_it_has_of_a_partition_past_keeping(tmp_path):
    rig = Rig(tmp_path / "lab")
    try:
        rig.create_database()
        properties = {"table.datalake.enabled": True, **options(num_retention=0, num_precreate=1)}
        table_id = rig.create(partitioned_by=["p"], properties=properties)
        (partition_id,) = rig.partitions().values()
        rig.append(10, day())
        epoch = rig.ask(table_id).tiering_table.tiering_epoch
        assert not rig.commit(table_id, 5, epoch, {(partition_id, 0): 10}).HasField("error_code")
        rig.clock.advance(DAY_MS)
        rig.alter(set={"custom.x": "1"})
        assert list(rig.partitions()) == [day(1)]
        assert [entry.partition_name for entry in rig.snapshot().bucket_snapshots] == [day()]
        # A clock that steps back wants a partition that rests in the lake: it is not made again, nor is that an error.
        rig.clock.set_wall(START_MS)
        rig.alter(set={"custom.x": "2"})
        assert list(rig.partitions()) == [day(1)]
    finally:
        rig.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_set_back_brings_nothing_back(tmp_path, restarted, caplog):
    """Neither what was dropped, nor what was too old to be made when the table came."""
    rig = Rig(tmp_path / "lab", lake=False)
    try:
        rig.create_database()
        rig.create(partitioned_by=["p"], properties=options(num_retention=1))
        rig.create("kept", partitioned_by=["p"], properties=options(num_retention=-1))
        rig.clock.advance(4 * DAY_MS)
        both = {"t", "kept"}
        for name in both:
            rig.alter(name, set={"custom.x": "1"})
        assert list(rig.partitions()) == [day(4), day(5)]
        assert list(rig.partitions("kept")) == [day(), day(1), day(4), day(5)]
        rig.clock.set_wall(START_MS + DAY_MS)
        if restarted:
            rig.cluster.restart()
        for name in both:
            rig.alter(name, set={"custom.x": "2"})
        assert list(rig.partitions()) == [day(4), day(5)]
        assert list(rig.partitions("kept")) == [day(), day(1), day(4), day(5)]
        assert "event=clock_set_back" in caplog.text
        with pytest.raises(errors.InvalidPartitionError, match="clock was set back"):
            rig.create_partition(p=day(1))
        rig.create_partition(p=day(2))
        rig.create_partition("kept", p=day(2))
        # Who says anew how partitions follow the clock begins anew.
        rig.alter(set=options(num_retention=2))
        assert list(rig.partitions()) == [day(4), day(5), day(2), day(1)]
    finally:
        rig.close()


def test_a_partition_that_an_alteration_kept_is_not_dropped_by_a_look_that_began_before(rig):
    """A look takes the definitions of all tables first, and then as long as its drops take."""
    rig.create(partitioned_by=["p"], properties=options(num_retention=0, num_precreate=1))
    rig.append(10, day())
    rig.clock.advance(2 * DAY_MS)
    coordinator = rig.cluster.node._coordinator
    before = coordinator._catalog.table(TablePath("d", "t"))
    rig.alter(set=options(num_retention=-1))
    coordinator._auto.maintain(before)
    assert day() in rig.partitions()
    coordinator._auto.run()
    assert sorted(rig.partitions()) == [day(), day(2)]


def test_who_begins_anew_does_so_though_a_look_raises_the_mark_just_then(rig, monkeypatch):
    """The mark of before, which the look had read, must not come back."""
    table_id = rig.create(partitioned_by=["p"], properties=options(num_precreate=1))
    marks = AutoPartitionMarks(rig.cluster.node._coordinator.store)
    marks.raise_to(table_id, AutoPartitionMark(present=day(9)))
    original, forgetting = AutoPartitionMarks.get, threading.Thread(target=marks.forget, args=[table_id])

    def get(self, table_id):
        found = original(self, table_id)
        forgetting.start()
        # It waits: there is nothing to see of that but that it does not end.
        forgetting.join(0.2)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(AutoPartitionMarks, "get", get)
        marks.raise_to(table_id, AutoPartitionMark(dropped=day(1)))
    forgetting.join(60)
    assert marks.get(table_id) == AutoPartitionMark()


def test_what_fails_for_one_table_leaves_the_others_their_turn(rig, monkeypatch, caplog):
    """On a full disk the mark of a table cannot be raised; the drops of the others are what makes room."""
    failing = rig.create("a", partitioned_by=["p"], properties=options(num_retention=0, num_precreate=1))
    rig.create("b", partitioned_by=["p"], properties=options(num_retention=0, num_precreate=1))
    original = AutoPartitionMarks.raise_to

    def raise_to(self, table_id, mark):
        if table_id == failing and mark.present:
            raise errors.StorageError("the disk is full")
        return original(self, table_id, mark)

    monkeypatch.setattr(AutoPartitionMarks, "raise_to", raise_to)
    rig.clock.advance(DAY_MS)
    rig.cluster.node._coordinator._auto.run()
    assert list(rig.partitions("a")) == []
    assert list(rig.partitions("b")) == [day(1)]
    assert "table=d.a" in caplog.text
    rig.alter("a", set={"custom.x": "1"})  # done, whatever becomes of the partitions
    monkeypatch.undo()
    rig.cluster.node._coordinator._auto.run()
    assert list(rig.partitions("a")) == [day(1)]


def test_partitions_are_listed_by_a_part_of_their_spec(rig):
    rig.create(partitioned_by=["p", "q"], schema={"a": "bigint", "p": "string", "q": "string"})
    for p, q in (("1", "x"), ("1", "y"), ("2", "x")):
        rig.create_partition(p=p, q=q)
    assert list(rig.partitions(p="1")) == ["1$x", "1$y"]
    assert list(rig.partitions(q="x")) == ["1$x", "2$x"]
    assert list(rig.partitions(p="2", q="x")) == ["2$x"]
    assert rig.partitions(p="3") == {}
    with pytest.raises(errors.InvalidPartitionError, match="expected values of"):
        rig.partitions(r="1")
