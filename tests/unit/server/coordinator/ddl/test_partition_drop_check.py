"""Partitions of lake-enabled tables go when the lake holds every record of them, or when their loss was asked for."""

import contextlib
import re
import threading

import pytest

from fluss_lab import errors, failpoints
from fluss_lab.client import Connection
from fluss_lab.model import TablePath
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.server_metrics import MetricsRegistry
from fluss_lab.server.tablet.log.batch_admission import Seal
from fluss_lab.testing import wait_until
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.coordinator.ddl.test_auto_partitioner import DAY_MS, day, options
from tests.unit.server.coordinator.rig import Rig

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": "true"}
CLOSED = "coordinator.drop.closed"


@pytest.fixture(params=[1, 2])
def cluster(request, tmp_path):
    made = Rig(tmp_path / "lab", options={"auto-partition.check.interval": "20ms"}, tablet_servers=request.param)
    made.create_database()
    yield made
    made.close()


@pytest.fixture
def days(lake_rig):
    """A lake-enabled table of one bucket, ten rows in each of two partitions; none is tiered."""
    lake_rig.table_id = lake_rig.create(partitioned_by=["p"], properties=LAKE)
    for name in ("a", "b"):
        lake_rig.append(10, name)
    lake_rig.epoch = None
    return lake_rig


def tier(rig, table_id, ends, snapshot_id=5):
    """Tell the coordinator that the lake holds partitions up to offsets."""
    epoch = rig.ask(table_id).tiering_table.tiering_epoch
    ids = rig.partitions()
    answer = rig.commit(
        table_id, snapshot_id, epoch, {(ids[name], bucket): end for (name, bucket), end in ends.items()}
    )
    assert not answer.HasField("error_code"), answer
    rig.coordinator.lake_tiering_heartbeat(
        pb.LakeTieringHeartbeatRequest(
            finished_tables=[pb.PbHeartbeatReqForTable(table_id=table_id, coordinator_epoch=1, tiering_epoch=epoch)]
        )
    )


def end_offsets(rig, table_id):
    found = {}
    for bucket in rig.cluster.connection.admin().buckets(rig.cluster.connection.table_info(path())):
        found[bucket.partition, bucket.bucket.bucket] = bucket.end_offset
    return found


def path():
    return TablePath("d", "t")


def losses(rig, first=1):
    """Return what each drop has lost, as the table's readers are answered: by partition its ranges."""
    request = pb.ListPartitionInfosRequest(
        table_path=pb.PbTablePath(database_name="d", table_name="t"), lossy_drops_from=first
    )
    answer = rig.coordinator.list_partition_infos(request)
    found = []
    for number, drop in enumerate(answer.lossy_drops, first):
        assert drop.number == number
        ranges = {
            each.bucket_id: (each.start_offset, each.stop_offset if each.HasField("stop_offset") else None)
            for each in drop.lost_ranges
        }
        found.append((drop.partition_name, ranges))
    assert answer.newest_lossy_drop == first - 1 + len(found)
    return found


def metrics_text(rig):
    found = MetricsRegistry()
    found.add(rig.cluster.node._coordinator.metrics)
    return found.text().decode()


def described(rig):
    return rig.coordinator.describe_cluster(pb.DescribeClusterRequest())


# -- by the clock --------------------------------------------------------------------------------------------------------


def test_retention_waits_until_the_lake_holds_every_bucket(cluster, caplog):
    properties = {**LAKE, **options(num_retention=0, num_precreate=1)}
    table_id = cluster.create(partitioned_by=["p"], buckets=2, bucket_key=["a"], properties=properties)
    cluster.append(20, day())
    ends = end_offsets(cluster, table_id)
    assert min(ends.values()) > 0
    cluster.clock.advance(3 * DAY_MS)
    wait_until(lambda: described(cluster).kept_partitions)
    (kept,) = described(cluster).kept_partitions
    assert (kept.table_path.table_name, kept.partition_name) == ("t", day())
    assert kept.since_time == START_MS - START_MS % DAY_MS + DAY_MS
    assert "does not hold 20 of its records" in kept.reason
    assert "event=partitions_kept table=d.t count=1" in caplog.text
    text = metrics_text(cluster)
    assert re.search(r'keptPartitionCount\{[^}]*table="t"[^}]*\} 1\.0\b', text)
    assert float(re.search(r"keptPartitionAge\{[^}]*\} (\S+)", text)[1]) >= 2 * DAY_MS
    # One bucket is not all of them, and who has still something to write to it may.
    tier(cluster, table_id, {(day(), 0): ends[day(), 0]}, 5)
    cluster.append(1, day())
    ends = end_offsets(cluster, table_id)
    assert sum(ends.values()) == 21
    assert sorted(cluster.partitions()) == [day(), day(3)]
    tier(cluster, table_id, {key: end for key, end in ends.items() if key[0] == day()}, 6)
    wait_until(lambda: list(cluster.partitions()) == [day(3)])
    wait_until(lambda: not described(cluster).kept_partitions)
    assert "keptPartitionCount" not in metrics_text(cluster)


def test_a_partition_without_records_and_one_without_a_lake_go_at_once(lake_rig):
    lake_rig.create(partitioned_by=["p"], properties={**LAKE, **options(num_retention=0, num_precreate=1)})
    lake_rig.create("plain", partitioned_by=["p"], properties=options(num_retention=0, num_precreate=1))
    lake_rig.append(5, day(), "plain")
    lake_rig.clock.advance(DAY_MS)
    for name in ("t", "plain"):
        lake_rig.alter(name, set={"custom.x": "1"})
        assert list(lake_rig.partitions(name)) == [day(1)]


@pytest.mark.parametrize("unit", ["hour", "day", "month", "quarter", "year"])
def test_since_when_a_partition_is_past_keeping(unit):
    for zone in ("UTC", "Asia/Kathmandu", "America/New_York"):
        given = options(num_retention=2, time_unit=unit, time_zone=zone)
        auto = AutoPartition.of(("p",), given)
        since_ms = auto.past_since(auto.value_at(START_MS), START_MS)
        name = auto.value_at(START_MS)
        assert not auto.is_past(name, since_ms - 1), (unit, zone)
        assert auto.is_past(name, since_ms), (unit, zone)


def test_an_hour_that_the_clocks_have_twice_is_past_keeping_when_both_are():
    auto = AutoPartition.of(("p",), options(num_retention=1, time_unit="hour", time_zone="Europe/Berlin"))
    for name in ("2014102601", "2014102602", "2014102603", "2014033001", "2014033003", "2014123123"):
        since_ms = auto.past_since(name, START_MS)
        assert [auto.is_past(name, since_ms - 1), auto.is_past(name, since_ms)] == [False, True], name


# -- no record comes in between ------------------------------------------------------------------------------------------


def late_append(rig, failures, partition="a"):
    def run():
        try:
            rig.append(1, partition)
        except errors.FlussError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    return thread


def drop_beside_append(rig, aborted, **how):
    """Drop partition ``a`` while a row is appended to it when its buckets are sealed; return what the append failed with.

    Args:
        aborted: Whether the drop fails then.
        how: Of the drop.
    """
    threads, failures = [], []

    def act():
        threads.append(late_append(rig, failures))
        if aborted:
            raise errors.StorageError("not today")

    failpoints.arm(CLOSED, act)
    with pytest.raises(errors.StorageError, match="not today") if aborted else contextlib.nullcontext():
        rig.drop_partition(p="a", **how)
    threads[0].join(20)
    return failures


def append_after_restart(rig):
    """Start both tablet servers again, which forgets their seals, and append a row."""
    for server_id in (0, 1):
        rig.cluster.stop_tablet(server_id)
        rig.cluster.start_tablet(server_id)
    rig.append(1, "a")


@pytest.mark.parametrize("aborted", [False, True])
def test_no_append_comes_between_the_check_and_the_drop(days, aborted):
    tier(days, days.table_id, {("a", 0): 10})
    failures = drop_beside_append(days, aborted)
    # The row is there, or whoever wrote it knows that it is not.
    if aborted:
        assert not failures
        assert end_offsets(days, days.table_id) == {("a", 0): 11, ("b", 0): 10}
    else:
        assert isinstance(failures[0], errors.NotFoundError | errors.AlreadyExistsError), failures
        assert list(days.partitions()) == ["b"]


def test_a_bucket_that_ends_elsewhere_is_not_closed(days):
    """Retention looks at it every minute: its writers must not notice."""
    tier(days, days.table_id, {("a", 0): 9})
    log = next(b for b in days.cluster.tablet()._store.all() if b.partition == "a").log
    with pytest.raises(errors.UntieredRecordsError):
        days.drop_partition(p="a")
    assert log.seal._number is None
    assert log.seal._opened == -1


def test_a_server_that_was_started_again_in_between_has_no_seal(tmp_path):
    rig = Rig(tmp_path / "lab", tablet_servers=2)
    try:
        rig.create_database()
        table_id = rig.create(partitioned_by=["p"], properties=LAKE)
        rig.append(3, "a")
        tier(rig, table_id, {("a", 0): 3})

        failpoints.arm(CLOSED, lambda: append_after_restart(rig))
        with pytest.raises(errors.UnavailableError, match="restarted while"):
            rig.drop_partition(p="a")
        with pytest.raises(errors.UntieredRecordsError, match="1 of its records"):
            rig.drop_partition(p="a")
        rig.append(1, "a")
        tier(rig, table_id, {("a", 0): 5}, 6)
        rig.drop_partition(p="a")
    finally:
        rig.close()


def test_a_seal_that_comes_after_it_was_taken_back_is_refused():
    seal = Seal()
    seal.close(5)
    with pytest.raises(errors.NotLeaderError):
        seal.check()
    seal.open(4)
    with pytest.raises(errors.NotLeaderError):
        seal.check()
    seal.open(6)
    seal.check()
    with pytest.raises(errors.ConflictError):
        seal.close(6)
    seal.check()
    seal.close(7)


# -- by hand -------------------------------------------------------------------------------------------------------------


def test_a_drop_says_what_would_be_lost(lake_rig):
    table_id = lake_rig.create(partitioned_by=["p"], buckets=3, bucket_key=["a"], properties=LAKE)
    lake_rig.append(40, "a")
    ends = end_offsets(lake_rig, table_id)
    tier(lake_rig, table_id, {("a", 0): ends["a", 0], ("a", 1): ends["a", 1] - 2})
    with pytest.raises(errors.UntieredRecordsError) as caught:
        lake_rig.drop_partition(p="a")
    missing = {1: 2, 2: ends["a", 2]}
    named = ", ".join(f"{count} of bucket {bucket}" for bucket, count in missing.items())
    assert f"partition 'a': the lake does not hold {sum(missing.values())} of its records yet ({named})" in str(
        caught.value
    )
    assert "discard_untiered=True" in str(caught.value)
    assert list(lake_rig.partitions()) == ["a"]
    lake_rig.append(1, "a")


def test_what_may_be_lost_is_dropped_and_remembered(days):
    days.clock.advance(1000)
    tier(days, days.table_id, {("a", 0): 10, ("b", 0): 4})
    made_ms, dropped_ms = START_MS, days.clock.now_ms()
    days.drop_partition(discard=True, p="a")  # of which nothing is lost
    days.drop_partition(discard=True, p="b")
    admin = days.cluster.connection.admin()
    assert days.partitions() == {}
    for time_ms, expected in ((made_ms - 1, {}), (made_ms, {"b": dropped_ms}), (dropped_ms, {})):
        assert admin.lost_partitions(path(), time_ms) == expected, time_ms
    assert {each.partition_name: each.log_offset for each in days.snapshot().bucket_snapshots} == {"a": 10, "b": 4}


def test_everything_is_dropped_from_the_lake_too_without_a_question(days):
    tier(days, days.table_id, {("a", 0): 3})
    days.drop_partition(lake=True, p="a")
    assert list(days.partitions()) == ["b"]
    assert losses(days) == [("a", {0: (0, 10)})]


# -- which records are lost ----------------------------------------------------------------------------------------------


def test_the_records_that_a_drop_loses_are_remembered(days):
    days.append(10, "c")
    days.create_partition(p="d")
    tier(days, days.table_id, {("a", 0): 10, ("b", 0): 4})
    ids = days.partitions()
    for name in "abcd":
        days.drop_partition(discard=True, p=name)
    expected = [("b", {0: (4, 10)}), ("c", {0: (0, 10)})]
    assert losses(days) == expected
    days.drop_partition(lake=True, p="a")  # of which the lake had all
    assert losses(days) == [*expected, ("a", {0: (0, 10)})]
    assert losses(days, 3) == [("a", {0: (0, 10)})]
    assert losses(days, 4) == []
    # A table of the same path that is made afterwards has lost nothing.
    assert ids
    days.drop()
    days.create(partitioned_by=["p"], properties=LAKE)
    assert losses(days) == []


def test_the_records_of_a_partition_without_a_lake_are_lost_with_it(cluster):
    table_id = cluster.create(partitioned_by=["p"], buckets=3, bucket_key=["a"])
    cluster.append(40, "a")
    ends = end_offsets(cluster, table_id)
    cluster.drop_partition(p="a")
    assert losses(cluster) == [("a", {bucket: (0, ends["a", bucket]) for bucket in range(3) if ends["a", bucket]})]


@pytest.mark.parametrize("how", [{"lake": True}, {"discard": True}], ids=["lake", "discard"])
@pytest.mark.parametrize("aborted", [False, True])
def test_no_append_comes_between_the_ends_and_a_drop_that_loses_records(days, how, aborted):
    tier(days, days.table_id, {("a", 0): 4})
    failures = drop_beside_append(days, aborted, **how)
    if aborted:
        assert not failures
        assert end_offsets(days, days.table_id)["a", 0] == 11
        assert losses(days) == []
    else:
        assert failures
        assert losses(days) == [("a", {0: (4 if how.get("discard") else 0, 10)})]


def test_what_a_server_that_is_away_has_lost_is_not_known(tmp_path):
    rig = Rig(tmp_path / "lab", tablet_servers=2)
    try:
        rig.create_database()
        table_id = rig.create(partitioned_by=["p"], buckets=2, bucket_key=["a"])
        rig.append(20, "a")
        ends = end_offsets(rig, table_id)
        [group] = rig.cluster.node._coordinator._catalog.bucket_groups(table_id)
        rig.cluster.stop_tablet(1)
        rig.drop_partition(p="a")
        expected = {bucket: (0, None if leader else ends["a", bucket]) for bucket, leader in enumerate(group.leaders)}
        assert losses(rig) == [("a", expected)]
        rig.cluster.start_tablet(1)
    finally:
        rig.close()


def test_what_a_server_without_its_seal_has_taken_is_not_known(tmp_path):
    rig = Rig(tmp_path / "lab", tablet_servers=2)
    try:
        rig.create_database()
        rig.create(partitioned_by=["p"])
        rig.append(3, "a")

        failpoints.arm(CLOSED, lambda: append_after_restart(rig))
        rig.drop_partition(p="a")
        assert losses(rig) == [("a", {0: (0, None)})]
    finally:
        rig.close()


def test_a_partition_that_is_written_to_all_the_time_is_dropped_with_its_last_record(days):
    """What was acknowledged before the drop is known to be lost."""
    acknowledged = []

    def write(writer):
        # Until it is refused: the partition is gone.
        with contextlib.suppress(errors.FlussError):
            while True:
                writer.append([{"a": 1, "p": "a"}]).result()
                acknowledged.append(1)

    options = {"client.writer.dynamic-create-partition.enabled": "false"}
    with (
        Connection(lambda: days.cluster.address, options) as connection,
        connection.append_writer("d.t") as writer,
    ):
        threads = [threading.Thread(target=write, args=(writer,)) for _ in range(2)]
        for each in threads:
            each.start()
        wait_until(lambda: len(acknowledged) > 20)
        days.drop_partition(lake=True, p="a")
        for each in threads:
            each.join(20)
    [(name, ranges)] = losses(days)
    assert name == "a"
    assert ranges[0][1] is None or ranges[0][1] >= 10 + len(acknowledged)


def test_a_lake_that_was_switched_off_still_shows_what_it_holds(days):
    """Readers would go on with the lake's older rows: so that partition is kept, and one that never was there goes."""
    tier(days, days.table_id, {("a", 0): 4})
    days.alter(set={"table.datalake.enabled": "false"})
    with pytest.raises(errors.UntieredRecordsError, match="6 of its records"):
        days.drop_partition(p="a")
    days.drop_partition(p="b")
    assert list(days.partitions()) == ["a"]


def test_a_server_that_does_not_answer_keeps_the_partition(tmp_path):
    rig = Rig(tmp_path / "lab", tablet_servers=2)
    try:
        rig.create_database()
        rig.create(partitioned_by=["p"], buckets=2, properties=LAKE)
        rig.create_partition(p="a")
        rig.cluster.stop_tablet(1)
        with pytest.raises(errors.UnavailableError, match="is not known"):
            rig.drop_partition(p="a")
        assert list(rig.partitions()) == ["a"]
        rig.drop_partition(discard=True, p="a")
        rig.cluster.start_tablet(1)
    finally:
        rig.close()


def test_a_bucket_that_stopped_keeps_the_partition(days):
    bucket = next(b for b in days.cluster.tablet()._store.all() if b.partition == "a")
    bucket.log.end_by(errors.CorruptDataError("cut"))
    with pytest.raises(errors.CorruptDataError, match="is not known"):
        days.drop_partition(p="a")
    days.drop_partition(discard=True, p="a")


# -- many at once ----------------------------------------------------------------------------------------------------------


def test_many_partitions_are_created_in_one_call_all_or_none(rig):
    table_id = rig.create(partitioned_by=["p"], buckets=2)
    admin = rig.cluster.connection.admin()
    rig.create_partition(p="v3")
    specs = [{"p": f"v{number}"} for number in range(6)]
    with pytest.raises(errors.PartitionExistsError):
        admin.create_partitions(path(), specs)
    assert list(rig.partitions()) == ["v3"]
    admin.create_partitions(path(), specs, if_not_exists=True)
    assert sorted(rig.partitions()) == [f"v{number}" for number in range(6)]
    wait_until(lambda: len(rig.buckets(table_id)) == 12)


def test_servers_hear_of_new_partitions_only(rig, monkeypatch):
    """Else the hundredth partition costs a hundred times the first."""
    rig.create(partitioned_by=["p"], buckets=2)
    reported = []
    tablets = rig.cluster.node._coordinator._tablets
    real = tablets._buckets
    monkeypatch.setattr(tablets, "_buckets", lambda *given: [reported.append(each) or each for each in real(*given)])
    for number in range(3):
        rig.create_partition(p=f"v{number}")
    assert len(reported) == 6
    rig.append(1, "w")
    assert [each.physical_table_path.partition_name for each in reported[6:]] == ["w", "w"]
    # A change of the table is for all of them.
    rig.alter(add={"note": "string"})
    assert len(reported) == 8 + 8


def test_the_limit_of_partitions_names_its_option(tmp_path):
    rig = Rig(tmp_path / "lab", lake=False, options={"max.partition.num": "4"})
    try:
        rig.create_database()
        rig.create(partitioned_by=["p"])
        rig.append(1, "a")
        with (
            rig.cluster.connection.append_writer("d.t") as writer,
            pytest.raises(errors.InvalidPartitionError, match=r"has 1 partitions, and 4 more .* max\.partition\.num"),
        ):
            writer.append([{"a": 1, "p": f"v{number}"} for number in range(4)]).result()
        assert list(rig.partitions()) == ["a"]
    finally:
        rig.close()
