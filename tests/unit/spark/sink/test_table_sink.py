"""The sink: every batch written once, whichever process dies between whichever two steps, and whoever runs it again."""

import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from fluss_lab import failpoints
from fluss_lab.client.write.bucket_queue import following
from fluss_lab.errors import (
    CommitOutcomeUnknownError,
    FlussError,
    InvalidPropertyError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    PartitionNotFoundError,
    RecordTooLargeError,
    UnsupportedError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.read.table_reader import TableReader
from fluss_lab.server.tablet.requests import write_payloads
from fluss_lab.spark.sink.exactly_once_commit import SinkCommit
from fluss_lab.spark.sink.sink_journal import SinkFolder
from fluss_lab.spark.sink.sink_resend import distance
from fluss_lab.spark.sink.sink_staging import StagedFile
from fluss_lab.spark.sink.table_sink import FlussBatchWriter, FlussStreamWriter
from fluss_lab.spark.source.source_options import parse_options, place_options
from tests.unit.read.kit import retain
from tests.unit.spark.sink.sink_kit import CHANGES, COLUMNS, KINDS, SCHEMA, changes, complete, rows, six_tasks

pytestmark = pytest.mark.slow

# -- exactly once ---------------------------------------------------------------------------------------------------------

STEPS = [
    "sink.stage.after",
    "sink.intent.before",
    "sink.intent.after",
    "sink.send.after",
    "sink.send.after@2",
    "sink.send.after@4",
    "sink.send.after@5",
    "sink.note.before",
    "sink.note.after",
    "sink.done.before",
    "sink.done.after",
]

CASES = [(kind, step) for kind in ("log by key", "keyed") for step in STEPS]


CASES += [
    (kind, step) for kind in KINDS for step in ("sink.send.after@2", "sink.done.after") if (kind, step) not in CASES
]


@pytest.mark.parametrize(("kind", "step"), CASES)
def test_a_batch_is_written_once_whichever_step_fails(make, kind, step):
    sink = make(**KINDS[kind])
    sink.run(0, six_tasks())
    name, _, turn = step.partition("@")
    failpoints.arm(name, f"error@{turn}" if turn else "error")
    with pytest.raises(FailpointError):
        sink.run(1, six_tasks(60))
    failpoints.arm(name, "error")
    # Once all is sent, or done, the step is not passed again.
    with suppress(FailpointError):
        sink.run(1, six_tasks(60))
    failpoints.disarm()
    sink.run(1, six_tasks(60))
    complete(sink, 120)
    # Spark may ask for it again, if it died before it took note.
    sink.run(1, six_tasks(60))
    sink.run(2, [[rows(120)]])
    complete(sink, 121)
    assert sink.files() == []


WHOLE = [("keyed", None), *(("partitioned keyed", step) for step in STEPS if not step.endswith(("@4", "@5")))]


@pytest.mark.parametrize(("kind", "step"), WHOLE)
def test_a_whole_result_takes_the_place_of_the_one_before_whichever_step_fails(make, kind, step):
    sink = make(whole=True, **KINDS[kind])

    def held():
        found = TableReader(sink.cluster.connection, sink.path).scan().to_arrow().to_pylist()
        return {(row["id"], row["month"]): row["v"] for row in found}

    # Also what the table held before the query.
    other = sink.cluster.connection.upsert_writer(sink.path)
    with other:
        other.upsert([{"id": 77, "month": "m0", "v": "old"}]).result()
    sink.run(0, [[rows(*range(10))], [], [rows(*range(10, 15), month="m1")]])
    assert held() == {(i, "m0"): f"v{i}" for i in range(10)} | {(i, "m1"): f"v{i}" for i in range(10, 15)}
    second = [[rows(3, 4, text="w")], [rows(12, 20, month="m1", text="w")]]
    wanted = {(3, "m0"): "w3", (4, "m0"): "w4", (12, "m1"): "w12", (20, "m1"): "w20"}
    if step is not None:
        name, _, turn = step.partition("@")
        failpoints.arm(name, f"error@{turn}" if turn else "error")
        with suppress(FailpointError):
            sink.run(1, second)
        failpoints.disarm()
    sink.run(1, second)
    assert held() == wanted
    before = sink.rows()
    assert sorted(row[0] for row in before if row[0] == "-D") == ["-D"] * (1 + 8 + 4)
    sink.run(1, second)
    assert sink.rows() == before
    sink.run(2, [])
    assert held() == {}
    assert sink.files() == []


@pytest.mark.parametrize(
    ("options", "schema", "given", "text"),
    [
        ({}, SCHEMA, {}, "a table with a primary key, for a log table only grows"),
        (KINDS["keyed"], CHANGES, {}, "whole rows, all of them to be written, found a column of changes"),
        (KINDS["keyed"], SCHEMA, {"columns": '["id", "v"]'}, "whole rows"),
        (KINDS["keyed"] | {"properties": {"table.delete.behavior": "ignore"}}, SCHEMA, {}, "can be deleted from"),
        (KINDS["keyed"] | {"properties": {"table.merge-engine": "first_row"}}, SCHEMA, {}, "whose last rows count"),
    ],
    ids=["log", "changes", "columns", "no deletes", "first row"],
)
def test_tables_that_cannot_be_made_equal_to_a_result_say_so(make, options, schema, given, text):
    sink = make(whole=True, schema=schema, **options)
    sink.options |= given
    with pytest.raises(UnsupportedError, match=f"output mode complete: .*{text}"):
        sink.writer()


@pytest.mark.parametrize("kind", ["log by key", "keyed"])
def test_a_sink_that_dies_again_and_again_gets_on(make, kind):
    sink = make(**KINDS[kind])
    tasks = [[rows(*range(at, at + 3))] for at in range(0, 60, 3)]
    deaths = 0
    while True:
        failpoints.arm("sink.send.after", "error@6")
        try:
            sink.run(0, tasks)
            break
        except FailpointError:
            deaths += 1
            assert deaths < 20
    failpoints.disarm()
    assert deaths > 2
    complete(sink, 60)


def test_what_was_written_down_is_the_batch_whatever_tasks_bring_later(make):
    sink = make(bucket_key=["id"])
    failpoints.arm("sink.send.after", "error@2")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    sink.run(0, [[rows(1000)]])
    complete(sink, 60)
    assert sink.files() == []


def test_rows_come_in_the_order_of_tasks_and_of_rows(make):
    sink = make(buckets=1)
    failpoints.arm("sink.send.after", "error@3")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    sink.run(0, six_tasks())
    assert [row[1] for row in sink.rows()] == list(range(60))


def test_a_task_that_failed_leaves_nothing(make):
    sink = make()

    def broken():
        yield rows(*range(5))
        raise ValueError("the frame failed")

    with pytest.raises(ValueError, match="the frame failed"):
        sink.writer().write(broken())
    assert sink.files() == []
    messages = sink.stage([[rows(1)]])
    assert len(sink.files()) == 1
    sink.writer().abort([*messages, None], 0)
    assert sink.files() == []


def test_a_batch_without_rows_is_done_too(make):
    sink = make()
    sink.run(0, [])
    sink.run(1, [[], [rows()]])
    sink.run(2, [[rows(0)]])
    sink.run(2, [[rows(7)]])
    complete(sink, 1)


def test_many_rows_are_sent_in_pieces_and_wide_ones_in_smaller_pieces(make):
    sink = make(primary_key=["id"], buckets=1, columns=COLUMNS | {"wide": "string"})
    schema = T.StructType([*SCHEMA.fields, T.StructField("wide", T.StringType())])
    sink.schema = schema

    def wide(text):
        batch = rows(*range(60), text=text)
        return batch.append_column("wide", pa.array([text * 3_000] * 60))

    sink.run(0, [[wide("a")]])
    # The changelog of these has rows before and after: twice as much as what is sent.
    failpoints.arm("sink.send.after", "error@3")
    with pytest.raises(FailpointError):
        sink.run(1, [[wide("b")]])
    failpoints.disarm()
    sink.run(1, [[wide("b")]])
    found = sink.rows()
    assert [row[0] for row in found] == ["+I"] * 60 + ["-U", "+U"] * 60
    assert [row[1] for row in found[60::2]] == list(range(60))


def test_one_row_that_is_too_large_is_refused(make):
    sink = make()
    sink.options["client.writer.batch-size"] = "10kb"
    with pytest.raises(RecordTooLargeError, match=r"expected at most .* \(7/.* of server.request-size-max"):
        sink.run(0, [[rows(1, text="x" * 30_000_000)]])
    assert sink.files() == []


def test_a_server_that_starts_again_is_waited_for(make, cluster):
    sink = make(bucket_key=["id"])
    staged = [StagedFile.from_json(message.text) for message in sink.stage(six_tasks())]
    folder = SinkFolder(sink.folder / "_fluss_sink")
    commit = SinkCommit(cluster.connection, sink.writer()._staging.form, folder)
    cluster.stop()
    failed = []

    def run():
        try:
            commit.commit(0, staged, "q")
        except FlussError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    cluster.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not failed
    complete(sink, 60)


# -- writers that were forgotten ----------------------------------------------------------------------------------------------


def forget(cluster, clock, monkeypatch):
    """Let the servers forget every writer: they were idle for more than a week."""
    # Of a writer that is forgotten every batch but the first looks like one that has overtaken others; here none does.
    monkeypatch.setattr(write_payloads, "GAP_WAIT_MS", 20)
    buckets = cluster.tablet()._store.all()
    # The first look finds them idle, the next one forgets them.
    for _ in range(2):
        clock.advance(8 * 86_400_000)
        for bucket in buckets:
            # With a recovery point writers are looked through; the background makes them less often.
            bucket.log.checkpoint(durable=False)
    assert not any(len(bucket.log.writers()) for bucket in buckets)


@pytest.mark.parametrize(("kind", "turn"), [("log by key", 1), ("log by key", 2), ("log by key", 5), ("keyed", 3)])
def test_a_forgotten_writer_is_found_in_the_log(make, cluster, clock, kind, turn, monkeypatch):
    sink = make(**KINDS[kind], properties={"table.log.ttl": "100d"})
    failpoints.arm("sink.send.after", f"error@{turn}")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    forget(cluster, clock, monkeypatch)
    sink.run(0, six_tasks())
    complete(sink, 60)


def test_a_sink_that_was_idle_for_long_goes_on(make, cluster, clock, monkeypatch):
    sink = make(bucket_key=["id"], properties={"table.log.ttl": "100d"})
    sink.run(0, six_tasks())
    forget(cluster, clock, monkeypatch)
    sink.run(1, six_tasks(60))
    complete(sink, 120)
    sink.run(2, [[rows(120)]])
    complete(sink, 121)


def test_when_nobody_can_tell_what_arrived_nothing_is_sent(make, cluster, clock, monkeypatch):
    sink = make(buckets=1)
    failpoints.arm("sink.send.after", "error@3")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    with cluster.connection.append_writer(sink.path) as writer:
        for _ in range(4):
            writer.append([{"id": 1000, "month": "m", "v": "x" * 2_000}]).result()
    forget(cluster, clock, monkeypatch)
    admin = cluster.connection.admin()
    retain(sink.cluster, lambda: admin.buckets(sink.info)[0].start_offset > 20)
    with pytest.raises(CommitOutcomeUnknownError, match="forgotten"):
        sink.run(0, six_tasks())


def test_numbers_begin_again_after_the_largest():
    assert following(2**31 - 1) == 0
    assert following(0) == 1
    assert distance(2**31 - 2, 1) == 3
    assert distance(5, 4) == 2**31 - 1


# -- partitions ---------------------------------------------------------------------------------------------------------------


def test_rows_of_a_partition_that_was_dropped_meanwhile_go_with_it(make, cluster):
    sink = make(partitioned_by=["month"])
    failpoints.arm("sink.intent.after", "error")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    cluster.connection.admin().drop_partition(sink.path, {"month": "m0"})
    sink.run(0, six_tasks())
    assert sorted(row[1] for row in sink.rows()) == [i for i in range(60) if i // 10 % 2]
    sink.run(1, six_tasks(60))
    assert len(sink.rows()) == 30 + 60


def test_deletes_make_no_partitions(make, cluster):
    sink = make(**KINDS["partitioned keyed"], schema=CHANGES)
    sink.run(0, [[changes(("-D", 1, "a"), ("-U", 2, "b"))]])
    assert cluster.connection.admin().partitions(sink.path) == []
    sink.run(1, [[changes(("-D", 1, "a"), ("+U", 1, "b"))]])
    assert sink.rows() == [("+I", 1, "b")]


def test_partitions_are_made_only_if_they_may(make):
    sink = make(partitioned_by=["month"])
    sink.options["client.writer.dynamic-create-partition.enabled"] = "false"
    with pytest.raises(PartitionNotFoundError):
        sink.run(0, six_tasks())


# -- rows ---------------------------------------------------------------------------------------------------------------------


def test_change_types_say_what_is_done_with_a_row(make):
    sink = make(**KINDS["keyed"], schema=CHANGES, buckets=1)
    sink.run(
        0, [[changes(("+I", 1, "a"), ("+A", 2, "b"), ("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, None), ("+I", 3, "d"))]]
    )
    sink.run(1, [[changes(("-D", 3, "x"), ("+I", 3, "e"), ("-D", 1, "x"), ("+I", 1, "f"), ("-D", 1, "f"))]])
    live = {row["id"]: row["v"] for row in _lookup(sink, [1, 2, 3])}
    assert live == {3: "e"}


def _lookup(sink, ids):
    with sink.cluster.connection.lookuper(sink.path) as lookuper:
        return [row for row in lookuper.lookup([{"id": number} for number in ids]).to_pylist() if row["v"] is not None]


def test_a_log_table_takes_no_deletes_and_only_known_change_types(make):
    sink = make(schema=CHANGES)
    sink.run(0, [[changes(("+A", 0, "a"), ("+I", 1, "b"), ("+U", 2, "c"))]])
    complete(sink, 3)
    for wrong in ("-D", "-U"):
        with pytest.raises(UnsupportedError, match="grows"):
            sink.run(1, [[changes(("+A", 3, "a"), (wrong, 1, "b"))]])
    for wrong in ("I", None):
        with pytest.raises(InvalidRecordError, match="_change_type"):
            sink.run(1, [[changes((wrong, 1, "b"))]])


def test_another_column_may_be_that_of_changes(make):
    schema = T.StructType([T.StructField("op", T.StringType()), *SCHEMA.fields])
    sink = make(**KINDS["keyed"], schema=schema)
    sink.options["change.column"] = "op"
    batch = changes(("+I", 1, "a"), ("+I", 2, "b"), ("-D", 1, None)).rename_columns(["op", "id", "month", "v"])
    sink.run(0, [[batch]])
    assert [row["id"] for row in _lookup(sink, [1, 2])] == [2]
    sink.options["change.column"] = "nothing"
    with pytest.raises(InvalidSchemaError, match="nothing"):
        sink.writer()


def test_some_columns_may_be_updated_alone(make):
    sink = make(**KINDS["keyed"])
    sink.run(0, [[rows(1, 2)]])
    sink.schema = T.StructType([SCHEMA["v"], SCHEMA["id"]])
    sink.options["columns"] = "id,v"
    sink.run(1, [[pa.record_batch({"v": ["new"], "id": pa.array([2], pa.int32())})]])
    found = _lookup(sink, [1, 2])
    assert [(row["id"], row["month"], row["v"]) for row in found] == [(1, "m0", "v1"), (2, "m0", "new")]


def test_a_table_that_deletes_are_forbidden_in_takes_none(make):
    sink = make(**KINDS["keyed"], schema=CHANGES, properties={"table.delete.behavior": "disable"})
    with pytest.raises(UnsupportedError, match="delete"):
        sink.run(0, [[changes(("-D", 1, None))]])


def test_frames_that_do_not_fit_are_refused_before_anything_is_staged(make):
    sink = make(columns=COLUMNS | {"must": "int not null"})
    with pytest.raises(InvalidSchemaError, match="must"):
        sink.writer()
    sink = make()
    sink.schema = T.StructType([*SCHEMA.fields, T.StructField("more", T.StringType())])
    with pytest.raises(InvalidSchemaError, match="more"):
        sink.writer()
    # What a changelog has besides is left out.
    sink.schema = T.StructType([*SCHEMA.fields, T.StructField("_log_offset", T.LongType())])
    sink.run(0, [[rows(0).append_column("_log_offset", pa.array([5]))]])
    complete(sink, 1)


@pytest.mark.parametrize("when", ["staged", "written down"])
def test_a_table_may_get_columns_while_a_batch_is_on_its_way(make, cluster, when):
    sink = make(bucket_key=["id"])
    messages = sink.stage(six_tasks())
    admin = cluster.connection.admin()
    if when == "written down":
        failpoints.arm("sink.send.after", "error@2")
        with pytest.raises(FailpointError):
            sink.commit(0, messages)
        failpoints.disarm()
    admin.alter_table(sink.path, add_columns={"note": "string"})
    sink.writer().commit(messages, 0)
    complete(sink, 60)
    sink.run(1, [[rows(60)]])
    complete(sink, 61)


# -- options ------------------------------------------------------------------------------------------------------------------


def test_options_that_a_sink_needs_or_does_not_have(make, cluster, tmp_path):
    sink = make()

    def writer(overwrite=False, **given):
        options = parse_options({"table": str(sink.path)} | given | place_options(cluster.address))
        return FlussStreamWriter(options, SCHEMA, overwrite)

    with pytest.raises(InvalidPropertyError, match="checkpointLocation"):
        writer()
    with pytest.raises(InvalidPropertyError, match="start"):
        writer(checkpointLocation=str(tmp_path), start="earliest")
    with pytest.raises(InvalidPropertyError, match="staging"):
        writer(checkpointLocation="s3://bucket/checkpoint")
    with pytest.raises(UnsupportedError, match="output mode complete: expected a table with a primary key"):
        writer(overwrite=True, checkpointLocation=str(tmp_path))
    writer(checkpointLocation="s3://bucket/checkpoint", staging=str(tmp_path / "here"))
    assert (tmp_path / "here" / "staged").is_dir()
    writer(checkpointLocation=f"file:{tmp_path}/there", queryName="flights")
    assert (tmp_path / "there" / "_fluss_sink" / "staged").is_dir()


def test_an_executor_that_does_not_see_the_folder_says_so(make, tmp_path):
    sink = make()
    writer = sink.writer()
    (sink.folder / "_fluss_sink" / "staged").rmdir()
    with pytest.raises(InvalidRequestError, match="staging"):
        writer.write(iter([rows(1)]))


def test_tasks_get_no_token(make, cluster):
    writer = make().writer()
    state = writer.__getstate__()
    assert state["_options"] is None
    assert cluster.address.token not in repr(state)


def test_a_single_write_is_whole_and_leaves_nothing(make, cluster, tmp_path):
    sink = make(bucket_key=["id"])
    options = parse_options({"table": str(sink.path), "staging": str(tmp_path)} | place_options(cluster.address))
    before = sorted(tmp_path.iterdir())
    for first in (0, 60):
        writer = FlussBatchWriter(options, SCHEMA, False)
        writer.commit([writer.write(iter(task)) for task in six_tasks(first)])
    complete(sink, 120)
    writer = FlussBatchWriter(options, SCHEMA, False)
    writer.abort([writer.write(iter([rows(1000)])), None])
    complete(sink, 120)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(UnsupportedError, match="append"):
        FlussBatchWriter(options, SCHEMA, True)
