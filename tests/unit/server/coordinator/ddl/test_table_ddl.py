"""Databases, tables and partitions over the wire: what is refused, how, and that nothing stays half done."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab import errors, failpoints, files
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.tablets.leadership import TabletServers
from fluss_lab.testing import wait_until
from tests.unit.server.coordinator.rig import Rig


def described(**changes) -> bytes:
    value = make_descriptor({"a": "bigint", "p": "string"}, buckets=2).to_json()
    return json.dumps({**value, **changes}).encode()


def columns(*pairs: tuple[str, str]) -> dict:
    value = make_descriptor({"a": "bigint"}).to_json()["schema"]
    kinds = {name: make_descriptor({"x": name}).to_json()["schema"]["columns"][0]["data_type"] for _, name in pairs}
    listed = [{"name": name, "data_type": kinds[kind], "id": index} for index, (name, kind) in enumerate(pairs)]
    return {**value, "columns": listed}


LAKE = {"table.datalake.enabled": "true"}

#: What a table definition may not be, though a client that checks nothing sent it -> the error, and a word of its text.
REFUSED = {
    "no json": (b"{", errors.InvalidSchemaError, "not a table definition"),
    "json of something else": (b"[1]", errors.InvalidSchemaError, "expected an object"),
    "nested too deeply": (b"[" * 100_000, errors.InvalidSchemaError, "not a table definition"),
    "no schema": (b'{"bucket_count": 1}', errors.InvalidSchemaError, "schema"),
    "bad bytes": (b"\xff\xfe", errors.InvalidSchemaError, "not a table definition"),
    "no buckets": (described(bucket_count=0), errors.InvalidBucketsError, "found 0"),
    "too many buckets": (described(bucket_count=5), errors.InvalidBucketsError, r"\[1, 4\], found 5"),
    "unknown bucket key": (described(bucket_key=["z"]), errors.InvalidSchemaError, "'z'"),
    "bucket key twice": (described(bucket_key=["a", "a"]), errors.InvalidBucketsError, "twice"),
    "partition by a number": (described(partition_key=["a"]), errors.InvalidSchemaError, "expected STRING"),
    "partition is bucket key": (
        described(partition_key=["p"], bucket_key=["p"]), errors.InvalidBucketsError, "partition column",
    ),
    "only partition columns": (
        described(partition_key=["p", "q"], schema=columns(("p", "string"), ("q", "string"))),
        errors.InvalidSchemaError, "not a partition column",
    ),
    "unknown property": (described(properties={"tabel.x": "1"}), errors.InvalidPropertyError, "tabel.x"),
    "property that is the cluster's": (
        described(properties={"log.durability": "fsync"}), errors.InvalidPropertyError, r"it is of the lab: Lab.open",
    ),
    "ill-typed property": (
        described(properties={"table.datalake.freshness": "soon"}), errors.InvalidPropertyError, "duration",
    ),
    "reserved column": (described(schema=columns(("__offset", "bigint"))), errors.InvalidNameError, "reserved"),
    "bad column name": (described(schema=columns(("a-b", "bigint"))), errors.InvalidNameError, "a-b"),
    "column twice": (described(schema=columns(("a", "bigint"), ("A", "int"))), errors.InvalidSchemaError, "twice"),
    "lake, floating-point key": (
        described(schema={**columns(("a", "bigint"), ("x", "double")), "primary_key": ["a", "x"]}, bucket_key=["a"],
                  properties=LAKE),
        errors.UnsupportedError, "DOUBLE",
    ),
    "lake, primary key of two columns": (
        described(schema={**columns(("a", "bigint"), ("b", "bigint")), "primary_key": ["a", "b"]}, properties=LAKE),
        errors.UnsupportedError, "multi-argument",
    ),
    "lake, two bucket keys": (
        described(bucket_key=["a", "p"], properties=LAKE), errors.UnsupportedError, "multi-argument",
    ),
    "lake, nanoseconds": (
        described(schema=columns(("t", "timestamp(9)")), properties=LAKE), errors.UnsupportedError, "microseconds",
    ),
    "lake that is not configured": (described(properties=LAKE), errors.LakeNotConfiguredError, "no lake"),
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    made = Rig(
        tmp_path_factory.mktemp("small") / "lab", lake=False, options={"max.bucket.num": 4, "max.partition.num": 3}
    )
    made.create_database()
    yield made
    made.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_definition_that_cannot_be_is_refused_and_leaves_nothing(small, name):
    sent, expected, text = REFUSED[name]
    with pytest.raises(errors.FlussError, match=text) as caught:
        small.create("refused", json_bytes=sent)
    assert type(caught.value) is expected
    assert not small.coordinator.table_exists(pb.TableExistsRequest(table_path=pb_path("d", "refused"))).exists


def pb_path(database: str, table: str) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=database, table_name=table)


@pytest.mark.parametrize("database", ["", "1a", "a.b", "a" * 129, "ä", "a/../b"])
def test_bad_names_are_refused_everywhere(small, database):
    for call in (
        lambda: small.create_database(database),
        lambda: small.coordinator.get_table_info(pb.GetTableInfoRequest(table_path=pb_path(database, "t"))),
        lambda: small.coordinator.get_table_info(pb.GetTableInfoRequest(table_path=pb_path("d", database))),
    ):
        with pytest.raises(errors.InvalidNameError, match="expected a letter or underscore"):
            call()


def test_databases_exist_or_not(rig):
    with pytest.raises(errors.DatabaseExistsError):
        rig.create_database("d")
    rig.create_database("d", ignore=True)
    with pytest.raises(errors.DatabaseNotFoundError):
        rig.coordinator.list_tables(pb.ListTablesRequest(database_name="nope"))
    drop = pb.DropDatabaseRequest(database_name="nope", ignore_if_not_exists=False, cascade=False)
    with pytest.raises(errors.DatabaseNotFoundError):
        rig.coordinator.drop_database(drop)
    drop.ignore_if_not_exists = True
    rig.coordinator.drop_database(drop)
    with pytest.raises(errors.DatabaseNotFoundError):
        rig.create("nope.t")


def test_a_database_with_tables_is_dropped_only_by_cascade(rig):
    table_id = rig.create("t", buckets=2)
    drop = pb.DropDatabaseRequest(database_name="d", ignore_if_not_exists=False, cascade=False)
    with pytest.raises(errors.DatabaseNotEmptyError, match=r"1 tables \(t\)"):
        rig.coordinator.drop_database(drop)
    drop.cascade = True
    rig.coordinator.drop_database(drop)
    assert list(rig.coordinator.list_databases(pb.ListDatabasesRequest()).database_name) == []
    assert rig.buckets(table_id) == []


def test_tables_exist_or_not(rig):
    with pytest.raises(errors.TableNotFoundError, match=r"d\.t"):
        rig.info()
    with pytest.raises(errors.TableNotFoundError):
        rig.drop()
    rig.drop(ignore=True)
    first = rig.create(buckets=3)
    with pytest.raises(errors.TableExistsError):
        rig.create()
    assert rig.create(ignore=True, buckets=1) == first
    rig.drop()
    assert rig.create() > first


def test_a_table_is_what_was_asked_for_and_stays_so_over_a_restart(rig):
    rig.create(buckets=3, partitioned_by=["p"], comment="mine", properties={"custom.a": "b", "table.log.ttl": "1h"})
    rig.create_partition(p="x")
    before, partitions = rig.info().SerializeToString(), rig.partitions()
    rig.cluster.restart()
    assert rig.info().SerializeToString() == before
    assert rig.partitions() == partitions
    value = json.loads(rig.info().table_json)
    assert (value["bucket_count"], value["comment"], value["partition_key"]) == (3, "mine", ["p"])
    assert value["properties"] == {"custom.a": "b", "table.log.ttl": "1h"}
    schema = rig.coordinator.get_table_schema(pb.GetTableSchemaRequest(table_path=pb_path("d", "t")))
    assert json.loads(schema.schema_json) == value["schema"]
    with pytest.raises(errors.InvalidSchemaError, match="no schema 9"):
        rig.coordinator.get_table_schema(pb.GetTableSchemaRequest(table_path=pb_path("d", "t"), schema_id=9))


def test_buckets_are_opened_closed_and_opened_again_after_a_restart(rig):
    table_id = rig.create(buckets=3)
    assert rig.buckets(table_id) == [(0, 0), (0, 1), (0, 2)]
    rig.cluster.restart()
    assert rig.buckets(table_id) == [(0, 0), (0, 1), (0, 2)]
    rig.drop()
    assert rig.buckets(table_id) == []
    assert not list((rig.cluster.folder / "tablet").rglob(f"t{table_id}"))


def test_metadata_tells_who_holds_the_buckets(rig):
    table_id = rig.create(buckets=2, partitioned_by=["p"])
    rig.create("plain", buckets=2)
    rig.create_partition(p="x")
    answer = rig.coordinator.metadata(
        pb.MetadataRequest(
            table_path=[pb_path("d", "t"), pb_path("d", "plain")],
            partitions_path=[pb.PbPhysicalTablePath(database_name="d", table_name="t", partition_name="x")],
        )
    )
    host, port = rig.cluster.node.address
    assert [(each.node_id, each.host, each.port) for each in answer.tablet_servers] == [(0, host, port)]
    assert answer.coordinator_server.port == port
    partitioned, plain = answer.table_metadata
    assert list(partitioned.bucket_metadata) == []
    assert [(each.bucket_id, each.leader_id) for each in plain.bucket_metadata] == [(0, 0), (1, 0)]
    (partition,) = answer.partition_metadata
    assert (partition.table_id, partition.partition_name, len(partition.bucket_metadata)) == (table_id, "x", 2)
    again = rig.coordinator.metadata(pb.MetadataRequest(partitions_id=[partition.partition_id]))
    assert again.partition_metadata[0] == partition
    for request in (
        pb.MetadataRequest(table_path=[pb_path("d", "nope")]),
        pb.MetadataRequest(partitions_id=[999]),
        pb.MetadataRequest(
            partitions_path=[pb.PbPhysicalTablePath(database_name="d", table_name="t", partition_name="y")]
        ),
    ):
        with pytest.raises(errors.NotFoundError):
            rig.coordinator.metadata(request)


def test_writer_ids_are_never_given_out_twice(rig):
    rig.create()
    request = pb.InitWriterRequest(table_path=[pb_path("d", "t")])
    found = [rig.coordinator.init_writer(request).writer_id for _ in range(3)]
    rig.cluster.restart()
    found += [rig.coordinator.init_writer(request).writer_id for _ in range(3)]
    assert len(set(found)) == 6
    with pytest.raises(errors.TableNotFoundError):
        rig.coordinator.init_writer(pb.InitWriterRequest(table_path=[pb_path("d", "nope")]))


# -- partitions --------------------------------------------------------------------------------------------------------


def test_partitions_come_and_go(rig):
    table_id = rig.create(buckets=2, partitioned_by=["p"])
    rig.create_partition(p="2013-01")
    with pytest.raises(errors.PartitionExistsError, match="2013-01"):
        rig.create_partition(p="2013-01")
    rig.create_partition(p="2013-01", ignore=True)
    rig.create_partition(p="ä ö/ü")
    first, second = rig.partitions().values()
    assert rig.buckets(table_id) == [(first, 0), (first, 1), (second, 0), (second, 1)]
    rig.drop_partition(p="2013-01")
    assert rig.buckets(table_id) == [(second, 0), (second, 1)]
    with pytest.raises(errors.PartitionNotFoundError):
        rig.drop_partition(p="2013-01")
    rig.drop_partition(p="2013-01", ignore=True)
    rig.create_partition(p="2013-01")
    assert rig.partitions()["2013-01"] > second


@pytest.mark.parametrize("value", ["", "a$b", "a\nb", "x" * 256])
def test_partition_values_that_cannot_be(rig, value):
    rig.create(partitioned_by=["p"])
    with pytest.raises(errors.InvalidPartitionError):
        rig.create_partition(p=value)


def test_partition_specs_that_do_not_fit_the_table(rig):
    rig.create(partitioned_by=["p"])
    rig.create("plain")
    with pytest.raises(errors.InvalidPartitionError, match="not partitioned"):
        rig.create_partition("plain", p="x")
    for values in ({}, {"q": "x"}, {"p": "x", "q": "y"}):
        with pytest.raises(errors.InvalidPartitionError, match=r"expected values of \['p'\]"):
            rig.create_partition(**values)
    twice = pb.PbPartitionSpec(
        partition_key_values=[pb.PbKeyValue(key="p", value="a"), pb.PbKeyValue(key="p", value="b")]
    )
    request = pb.CreatePartitionRequest(table_path=pb_path("d", "t"), partition_spec=twice, ignore_if_not_exists=False)
    with pytest.raises(errors.InvalidPartitionError, match="twice"):
        rig.coordinator.create_partition(request)


def test_partitions_are_listed_by_part_of_their_values(rig):
    rig.create(schema={"a": "int", "p": "string", "q": "string"}, partitioned_by=["p", "q"])
    for p, q in (("a", "x"), ("a", "y"), ("b", "x")):
        rig.create_partition(q=q, p=p)
    assert list(rig.partitions()) == ["a$x", "a$y", "b$x"]
    assert list(rig.partitions(p="a")) == ["a$x", "a$y"]
    assert list(rig.partitions(q="x")) == ["a$x", "b$x"]
    with pytest.raises(errors.InvalidPartitionError, match="expected values"):
        rig.partitions(z="x")


def test_there_is_a_most_of_partitions(small):
    small.create("many", partitioned_by=["p"])
    for value in "abc":
        small.create_partition("many", p=value)
    with pytest.raises(errors.InvalidPartitionError, match=r"has 3 partitions.*max\.partition\.num"):
        small.create_partition("many", p="d")
    small.create_partition("many", ignore=True, p="a")
    small.drop_partition("many", p="a")
    small.create_partition("many", p="d")


# -- alter -------------------------------------------------------------------------------------------------------------


def test_properties_are_set_and_reset(rig):
    rig.create(properties={"custom.a": "1", "table.log.ttl": "1h"})
    rig.clock.advance(5)
    rig.alter(set={"table.log.ttl": "2h", "iceberg.write.x": "y"}, reset=["custom.a", "custom.absent"])
    assert json.loads(rig.info().table_json)["properties"] == {"table.log.ttl": "2h", "iceberg.write.x": "y"}
    assert rig.info().modified_time == rig.info().created_time + 5
    rig.cluster.restart()
    assert json.loads(rig.info().table_json)["properties"]["table.log.ttl"] == "2h"


def test_properties_that_cannot_be_altered_name_themselves(rig):
    rig.create()
    cases = [
        ({"table.datalake.format": "iceberg"}, (), errors.UnsupportedError, "table.datalake.format"),
        ({}, ["table.datalake.format"], errors.UnsupportedError, "table.datalake.format"),
        ({"table.nope": "1"}, (), errors.InvalidPropertyError, "table.nope"),
        ({}, ["table.nope"], errors.InvalidPropertyError, "table.nope"),
        ({"table.log.ttl": "long"}, (), errors.InvalidPropertyError, "table.log.ttl"),
        ({"table.datalake.enabled": "true"}, (), errors.LakeNotConfiguredError, "no lake"),
    ]
    before = rig.info().SerializeToString()
    for values, reset, expected, text in cases:
        with pytest.raises(errors.FlussError, match=text) as caught:
            rig.alter(set=values, reset=reset)
        assert type(caught.value) is expected, caught.value
    assert rig.info().SerializeToString() == before
    with pytest.raises(errors.TableNotFoundError):
        rig.alter("nope", set={"custom.a": "b"})


def test_requests_that_contradict_themselves_are_refused(rig):
    rig.create()
    twice = [pb.PbAlterConfig(config_key="custom.a", config_value="1", op_type=0)] * 2
    missing = [pb.PbAlterConfig(config_key="custom.a", op_type=0)]
    unknown = [pb.PbAlterConfig(config_key="custom.a", op_type=7)]
    for changes, expected in (
        (twice, errors.InvalidPropertyError),
        (missing, errors.InvalidPropertyError),
        (unknown, errors.InvalidRequestError),
    ):
        request = pb.AlterTableRequest(table_path=pb_path("d", "t"), ignore_if_not_exists=False, config_changes=changes)
        with pytest.raises(expected):
            rig.coordinator.alter_table(request)


# -- cut off between two steps -----------------------------------------------------------------------------------------


def test_a_bucket_that_the_tablet_server_was_not_notified_of_is_opened_with_the_next_look_at_the_metadata(rig):
    failpoints.arm("coordinator.ddl.after_commit", "error@1")
    with pytest.raises(errors.InternalError):
        rig.create(buckets=2)
    table_id = rig.info().table_id
    assert rig.buckets(table_id) == []
    rig.coordinator.metadata(pb.MetadataRequest(table_path=[pb_path("d", "t")]))
    assert rig.buckets(table_id) == [(0, 0), (0, 1)]


def test_buckets_of_a_drop_that_was_cut_off_are_deleted_after_the_restart(rig):
    table_id = rig.create(buckets=2)
    failpoints.arm("coordinator.ddl.after_commit", "error@1")
    with pytest.raises(errors.InternalError):
        rig.drop()
    with pytest.raises(errors.TableNotFoundError):
        rig.info()
    assert list((rig.cluster.folder / "tablet").rglob(f"t{table_id}"))
    rig.cluster.restart()
    assert not list((rig.cluster.folder / "tablet").rglob(f"t{table_id}"))


def test_a_bucket_that_cannot_be_deleted_keeps_no_other_from_it_and_is_tried_again(rig, monkeypatch):
    table_id = rig.create(partitioned_by=["p"])
    for number in range(5):
        rig.create_partition(p=f"p{number}")
    kept, move, refused = rig.partitions()["p2"], files.move, []

    def refusing(source, target):
        if source.parent.name == f"p{kept}" and len(refused) < 3:
            refused.append(source)
            raise OSError(5, "Input/output error", str(source))
        move(source, target)

    monkeypatch.setattr(files, "move", refusing)
    rig.drop()
    held = rig.cluster.folder / "tablet" / "data" / f"t{table_id}"
    assert refused
    assert not held.exists() or [path.name for path in held.glob("p*")] == [f"p{kept}"]
    wait_until(lambda: not held.exists())
    assert len(refused) == 3


def test_drops_come_to_an_end_where_a_server_has_time_for_few_buckets_a_call(rig, monkeypatch):
    table_id = rig.create(partitioned_by=["p"])
    for number in range(20):
        rig.create_partition(p=f"p{number}")
    channel, asked = TabletServers._channel, []

    class Busy:
        def __init__(self, gateway):
            self._gateway = gateway

        def __getattr__(self, name):
            return getattr(self._gateway, name)

        def stop_replica(self, request):
            asked.append(len(request.stop_replicas_req))
            if asked[-1] > 3:
                raise errors.ServerUnavailableError("no answer in time")
            return self._gateway.stop_replica(request)

    class BusyChannel:
        def __init__(self, found):
            self._found = found

        def tablet_server(self):
            return Busy(self._found.tablet_server())

    monkeypatch.setattr(TabletServers, "_channel", lambda servers, server_id: BusyChannel(channel(servers, server_id)))
    rig.drop()
    wait_until(lambda: not (rig.cluster.folder / "tablet" / "data" / f"t{table_id}").exists())
    assert asked[0] > 3 >= min(asked), asked


def test_two_clients_that_create_the_same_table_make_one(rig):
    outcomes: list[object] = []

    def create() -> None:
        try:
            outcomes.append(rig.create(buckets=2))
        except errors.TableExistsError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    rig.channel.coordinator()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(each, int) for each in outcomes) == 1
    assert rig.cluster.connection.admin().tables("d") == ["t"]
    assert rig.cluster.connection.table_info(TablePath("d", "t")).descriptor.buckets == 2


def test_many_changes_at_once_do_not_wait_for_each_others_threads(tmp_path):
    """More calls than threads, each of which makes the coordinator call its own tablet server."""
    rig = Rig(tmp_path / "lab", lake=False, options={"server.threads": 2})
    rig.create_database()
    rig.channel.coordinator()
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(rig.create, f"t{index}") for index in range(8)]
        try:
            assert len({each.result(timeout=60) for each in done}) == 8
        finally:
            rig.close()
