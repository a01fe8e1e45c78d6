"""A lab as a person uses it, over a server process of its own; Spark is in tests/spark."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluss_lab as fl
from fluss_lab import errors
from fluss_lab.interrupts import Held
from fluss_lab.server.cluster import is_alive, read_discovery
from fluss_lab.testing import wait_until
from fluss_lab.testing.executors import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

SCHEMA = {"id": "bigint", "month": "string", "price": "decimal(10, 2)"}
LAKE = {"table.datalake.enabled": True}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        yield lab


@pytest.fixture
def table(lab, request):
    path = f"shop.t{abs(hash(request.node.nodeid))}"
    return lab.create_table(path, SCHEMA, partitioned_by=["month"], buckets=2, properties=LAKE)


def tier(table):
    """Run a round as `Table.tier` does, in this process."""
    lab = table.lab
    return run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)


def rows(count, month="2013-01", start=0):
    return [{"id": start + i, "month": month} for i in range(count)]


# -- opening ---------------------------------------------------------------------------------------------------------


def test_a_lab_is_private_and_found_by_its_file(lab):
    path = lab.folder / "server.json"
    assert path.stat().st_mode & 0o777 == 0o600
    server = json.loads(path.read_text())["servers"][0]
    assert server["host"] == "127.0.0.1"
    assert (lab.folder / "token").stat().st_mode & 0o777 == 0o600
    secret = (lab.folder / "token").read_text().strip()
    assert secret not in repr(lab) + lab._repr_html_() + repr(lab.connection) + repr(lab.status())
    found = fl.Lab.connect(f"{server['host']}:{server['port']}", token_file=server["token_file"])
    assert found.databases() == lab.databases()
    found.close()


def test_a_second_process_attaches_to_the_same_server_and_leaves_it_running(lab):
    pid = read_discovery(lab.folder).servers[0].pid
    code = f"import fluss_lab as fl\nwith fl.Lab.open({str(lab.folder)!r}) as lab: print(lab.status().attached)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "2\n"
    wait_until(lambda: lab.status().attached == 1, 10)
    assert read_discovery(lab.folder).servers[0].pid == pid


def test_the_server_ends_with_the_last_lab_and_keeps_everything(tmp_path):
    config = {"server.grace": "100ms"}
    with fl.Lab.open(tmp_path / "lab", config=config) as lab:
        lab.create_database("d")
        table = lab.create_table("d.t", {"a": "int"}, properties=LAKE)
        table.append([{"a": 1}, {"a": 2}])
        tier(table)
        table.append([{"a": 3}])
        server = read_discovery(lab.folder).servers[0]
    wait_until(lambda: not is_alive(server), 30)
    assert not (tmp_path / "lab" / "server.json").exists()
    with fl.Lab.open(tmp_path / "lab", config=config) as lab:
        scan = lab.table("d.t").scan(with_source=True)
        assert scan.to_arrow().to_pydict() == {"a": [1, 2, 3], "_source": ["lake", "lake", "log"]}


def threads_of_ours():
    ours = ("scan-", "write-", "lookup-", "discover-", "fluss-")
    return {each for each in threading.enumerate() if each.name.startswith(ours)}


def test_a_lab_ends_what_it_began_and_leaves_a_quiet_folder(tmp_path):
    """The grace is ten seconds: none of it is waited for."""
    before, folder = threads_of_ours(), tmp_path / "lab"
    first, second = fl.Lab.open(folder), fl.Lab.open(folder)
    first.create_database("d")
    log = first.create_table("d.t", {"a": "int"}, buckets=2)
    writer = log.writer()
    writer.append([{"a": number} for number in range(10)])
    scanner, forgotten = log.subscribe("earliest"), log.subscribe("latest")
    forgotten.poll(0.01)
    del forgotten
    keyed = first.create_table("d.k", {"a": "int"}, primary_key=["a"], buckets=2)
    keyed.upsert([{"a": number} for number in range(20_000)])
    lookuper = first.connection.lookuper("d.k")
    lookuper.lookup([{"a": number} for number in range(20_000)])
    rows = iter(keyed.scan().to_batches(10))
    next(rows)
    server = read_discovery(folder).servers[0]
    first.close()
    assert is_alive(server)
    for closed in (lambda: writer.append([{"a": 1}]), lambda: scanner.poll(0.0)):
        with pytest.raises(errors.FlussError, match="closed"):
            closed()
    assert second.table("d.t").scan().count() == 10
    began = time.monotonic()
    second.close()
    assert not is_alive(server)
    assert time.monotonic() - began < 8
    wait_until(lambda: threads_of_ours() <= before)
    shutil.rmtree(folder)
    second.close()
    assert not folder.exists()


def test_a_scanner_that_nobody_holds_ends_its_threads(lab):
    table = lab.create_table("shop.forgotten", {"a": "int"})
    before = threads_of_ours()
    scanner = table.subscribe("latest")
    scanner.poll(0.01)
    assert threads_of_ours() - before
    del scanner
    wait_until(lambda: gc.collect() >= 0 and threads_of_ours() <= before)


def test_a_lab_that_nobody_holds_lets_go_of_its_server(lab):
    before = threads_of_ours()
    other = fl.Lab.open(lab.folder)
    scan = other.create_table("shop.held", {"a": "int"}).scan()
    del other
    gc.collect()
    assert scan.count() == 0
    assert threads_of_ours() - before
    del scan
    wait_until(lambda: gc.collect() >= 0 and threads_of_ours() <= before)


def test_labs_that_open_while_the_last_one_closes_find_a_server(tmp_path):
    folder, failures = tmp_path / "lab", []
    with fl.Lab.open(folder) as lab:
        lab.create_database("d")
        lab.create_table("d.t", {"a": "int"})

    def work(first):
        try:
            for number in range(first, first + 3):
                with fl.Lab.open(folder) as lab:
                    lab.table("d.t").append([{"a": number}])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    with fl.Lab.open(folder) as lab:
        assert sorted(lab.table("d.t").scan().to_arrow()["a"].to_pylist()) == [0, 1, 2, 10, 11, 12]
        server = read_discovery(folder).servers[0]
    assert not is_alive(server)


def test_a_poll_that_is_interrupted_loses_no_record(lab):
    table = lab.create_table("shop.polled", {"a": "int"})
    table.append([{"a": number} for number in range(5)])
    with table.subscribe("earliest") as scanner:
        wait_until(lambda: len(scanner._positions._queue) > 0)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with Held():
                signal.raise_signal(signal.SIGINT)
                with pytest.raises(KeyboardInterrupt):
                    scanner.poll(5.0)
        finally:
            signal.signal(signal.SIGINT, before)
        assert list(scanner.positions().values()) == [0]
        found = scanner.poll(30.0)
        assert [value for batch in found for value in batch.rows["a"].to_pylist()] == list(range(5))


def test_a_killed_server_comes_back_and_work_goes_on(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "100ms"}) as lab:
        lab.create_database("d")
        table = lab.create_table("d.t", {"a": "int"})
        for turn in range(3):
            table.append([{"a": turn}])
            os.kill(read_discovery(lab.folder).servers[0].pid, signal.SIGKILL)
        table.append([{"a": 3}])
        assert table.scan().to_arrow()["a"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"config": {"log.segment.size": "1mb"}}, errors.InvalidPropertyError, "log.segment"),
        ({"config": {"log.segment.file-size": "big"}}, errors.InvalidPropertyError, "64mb"),
        ({"durability": "maybe"}, errors.InvalidPropertyError, "ack, fsync"),
        ({"tablet_servers": 0}, errors.InvalidPropertyError, "server.tablet-servers"),
    ],
)
def test_bad_settings_start_nothing(tmp_path, arguments, error, says):
    with pytest.raises(error, match=says):
        fl.Lab.open(tmp_path / "lab", **arguments)
    assert not (tmp_path / "lab" / "server.json").exists()


def test_connecting_needs_the_right_token_and_a_server(lab, tmp_path):
    server = read_discovery(lab.folder).servers[0]
    wrong = tmp_path / "token"
    wrong.write_text("x" * 43)
    wrong.chmod(0o644)
    with pytest.raises(errors.AuthenticationError, match="others may read"):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=wrong)
    wrong.chmod(0o600)
    with pytest.raises(errors.AuthenticationError):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=wrong)
    with pytest.raises(errors.AuthenticationError, match="none"):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=tmp_path / "none")
    with pytest.raises(errors.ServerUnavailableError):
        fl.Lab.connect("127.0.0.1:1", token_file=server.token_file, config={"client.request-timeout": "300ms"})
    with pytest.raises(errors.InvalidRequestError, match="host:port"):
        fl.Lab.connect("localhost", token_file=server.token_file)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_databases_and_tables_come_and_go(lab):
    lab.create_database("temp")
    with pytest.raises(errors.DatabaseExistsError):
        lab.create_database("temp")
    lab.create_database("temp", if_not_exists=True)
    lab.create_table("temp.one", {"a": "int"})
    with pytest.raises(errors.TableExistsError):
        lab.create_table("temp.one", {"b": "int"})
    assert lab.create_table("temp.one", {"b": "int"}, if_not_exists=True).schema.names == ["a"]
    assert lab.tables("temp") == ["one"]
    with pytest.raises(errors.DatabaseNotEmptyError):
        lab.drop_database("temp")
    lab.drop_database("temp", cascade=True)
    assert "temp" not in lab.databases()
    with pytest.raises(errors.DatabaseNotFoundError):
        lab.drop_database("temp")
    lab.drop_database("temp", if_exists=True)


@pytest.mark.parametrize(
    ("path", "arguments", "error"),
    [
        ("nowhere.t", {}, errors.DatabaseNotFoundError),
        ("t", {}, errors.InvalidNameError),
        ("shop.1", {}, errors.InvalidNameError),
        ("shop.x", {"buckets": 0}, errors.InvalidBucketsError),
        ("shop.x", {"buckets": 5000}, errors.InvalidBucketsError),
        ("shop.x", {"properties": {"table.nope": "1"}}, errors.InvalidPropertyError),
        ("shop.x", {"primary_key": ["id", "price"], "properties": LAKE}, errors.UnsupportedError),
        ("shop.x", {"bucket_key": ["id", "price"], "properties": LAKE}, errors.UnsupportedError),
    ],
)
def test_a_table_that_cannot_be_is_not_made(lab, path, arguments, error):
    before = lab.tables("shop")
    with pytest.raises(error):
        lab.create_table(path, SCHEMA, **arguments)
    assert lab.tables("shop") == before


def test_what_is_not_there_is_said(lab):
    with pytest.raises(errors.TableNotFoundError, match=r"shop\.none"):
        lab.table("shop.none")
    with pytest.raises(errors.TableNotFoundError):
        lab.drop_table("shop.none")
    lab.drop_table("shop.none", if_exists=True)
    with pytest.raises(errors.DatabaseNotFoundError):
        lab.tables("none")


def test_a_table_describes_itself(table):
    assert table.schema.field("id").type == pa.int64()
    assert table.descriptor.partitioned_by == ("month",)
    assert "log table, 3 columns, 2 buckets, in the lake" in repr(table)
    assert "DECIMAL(10,2)" in table._repr_html_()
    table.add_partition(month="2013-05")
    with pytest.raises(errors.PartitionExistsError):
        table.add_partition(month="2013-05")
    with pytest.raises(errors.InvalidPartitionError):
        table.add_partition(day="2013-05")
    assert table.partitions() == ["2013-05"]
    table.alter(set={"table.log.ttl": "1d"})
    assert table.descriptor.properties["table.log.ttl"] == "1d"
    table.alter(reset=["table.log.ttl"])
    assert "table.log.ttl" not in table.descriptor.properties
    table.drop_partition(month="2013-05")
    assert table.partitions() == []


# -- writing and reading ---------------------------------------------------------------------------------------------


def test_rows_of_every_form_are_appended(table):
    given = [
        rows(2),
        pa.Table.from_pylist(rows(2, start=2)),
        pd.DataFrame(rows(2, start=4)),
        {"id": [6, 7], "month": ["2013-02"] * 2},
    ]
    results = [table.append(each) for each in given]
    assert [result.rows for result in results] == [2, 2, 2, 2]
    ends: dict = {}
    for result in results:
        for bucket, ranges in result.offsets.items():
            for base, end in ranges:
                assert base == ends.get(bucket, 0)
                ends[bucket] = end
    assert sum(ends.values()) == table.scan().count() == 8
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == list(range(8))
    assert sum(bucket["end"] for bucket in table.buckets()) == 8


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([{"id": "seven", "month": "2013-01"}], "'id'"),
        ([{"id": 1}], "'month'"),
        ([{"id": 1, "month": "2013-01", "colour": "red"}], "colour"),
        ([{"id": 1, "month": "2013-01"}, {"id": 2, "month": None}], "'month'"),
        ([{"id": 1, "month": "2013-01", "price": "1.234"}], "'price'"),
        (pa.table({"id": pa.array([2.5]), "month": ["2013-01"]}), "'id'"),
    ],
)
def test_bad_rows_name_the_column_and_append_nothing(table, bad, says):
    with pytest.raises(errors.InvalidRecordError, match=says):
        table.append(bad)
    with pytest.raises(errors.InvalidRecordError, match=says), table.writer() as writer:
        writer.append(bad)
    assert table.scan().count() == 0


def test_an_oversized_row_is_refused(lab):
    notes = lab.create_table("shop.notes", {"id": "int", "note": "string"})
    with pytest.raises(errors.RecordTooLargeError, match="at most 29,360,128 in a table without a primary key"):
        notes.append([{"id": 1, "note": "small"}, {"id": 2, "note": "x" * 29_360_000}])
    assert notes.scan().count() == 0
    notes.append([{"id": 3, "note": "x" * 29_000_000}])
    assert notes.scan().count() == 1


def test_reading_across(table):
    table.append(rows(10))
    first = table.read_point()
    assert tier(table).rows == 10
    table.append(rows(5, "2013-02", start=10))
    scan = table.scan(columns=["id"], where="id >= 8", with_source=True)
    assert sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": number, "_source": "lake" if number < 10 else "log"} for number in range(8, 15)
    ]
    assert table.scan(read_point=first).to_arrow().num_rows == table.scan(read_point=first).count() == 10
    assert table.scan(where=pc.field("id") > 12).count() == 2
    assert table.scan(limit=3).to_pandas().shape == (3, 3)
    assert table.scan(partitions=["2013-02"]).count() == 5
    assert "lake" in repr(scan.explain())
    assert len(table.snapshots()) == 1
    assert sum(row["rows"] for row in table.files()) == 10
    assert table.lake_schemas()[0]["columns"]["__offset"] == "long"
    assert table.lab.iceberg(str(table.path)).scan().to_arrow().num_rows == 10
    with pytest.raises(errors.InvalidFilterError):
        table.scan(where="nope > 1")


def test_seek_changelog_and_subscription_agree(table):
    table.append(rows(6))
    between = (
        max(row for row in table.changelog().to_arrow()["_commit_timestamp"].cast("int64").to_pylist()) // 1000 + 1
    )
    wait_until(lambda: _now_ms() > between + 1, 5)
    tier(table)
    table.append(rows(4, start=6))
    seek = table.seek(between)
    later = table.changelog(start=seek).to_arrow()
    assert sorted(later["id"].to_pylist()) == [6, 7, 8, 9]
    assert set(later["_change_type"].to_pylist()) == {"+A"}
    assert table.scan(as_of=between).count() == 6
    got: list[int] = []
    with table.subscribe(start="earliest") as scanner:
        wait_until(lambda: got.extend(_ids(scanner)) or len(got) >= 10, 20)
    assert sorted(got) == list(range(10))


def _ids(scanner):
    return [value for batch in scanner.poll(0.2) for value in batch.records.rows.column("id").to_pylist()]


def _now_ms():
    import time

    return time.time_ns() // 1_000_000


def test_status_counts(lab, table):
    table.append(rows(7))
    status = lab.status()
    row = next(row for row in status.tables if row["table"] == str(table.path))
    assert (row["end"], row["lag"], row["lake_end"]) == (7, 7, 0)
    tier(table)
    row = next(row for row in lab.status().tables if row["table"] == str(table.path))
    assert (row["end"], row["lag"], row["lake_end"]) == (7, 0, 7)
    assert str(table.path) in repr(status)
    assert str(table.path) in status._repr_html_()
    assert str(table.path) in lab._repr_html_()


def test_a_table_outside_the_lake_cannot_be_tiered(lab):
    plain = lab.create_table("shop.plain", {"a": "int"}, if_not_exists=True)
    for call in (plain.tier, plain.snapshots, lambda: lab.iceberg("shop.plain")):
        with pytest.raises(errors.LakeNotConfiguredError, match=r"shop\.plain"):
            call()


# -- tables of frames ------------------------------------------------------------------------------------------------


def test_a_table_is_made_and_filled_of_a_frame(lab):
    times = pd.to_datetime(["2026-01-01", None]).astype("datetime64[ns]")
    frame = pd.DataFrame({"id": [1, 2], "amount": [1.5, None], "note": ["a", None], "at": times})
    made = lab.create_table(
        "shop.of_frame", frame, primary_key=["id"], partitioned_by=None, bucket_key=None, properties=LAKE
    )
    assert [str(column.type) for column in made.descriptor.schema.columns] == [
        "BIGINT NOT NULL", "DOUBLE", "STRING", "TIMESTAMP(6)",
    ]  # fmt: skip
    made.upsert(frame)
    filled = lab.create_table("shop.filled", rows=frame, primary_key=None)
    assert filled.scan().to_arrow().num_rows == made.scan().count() == 2
    again = lab.create_table("shop.filled", rows=frame, if_not_exists=True)
    assert again.scan().count() == 2
    assert lab.create_table("shop.typed", {"id": "int", "amount": "double"}, rows=[{"id": 1}]).scan().count() == 1
    with pytest.raises(errors.TableExistsError):
        lab.create_table("shop.filled", rows=frame)


def test_a_table_is_not_made_when_its_rows_cannot_be(lab):
    with pytest.raises(errors.InvalidRecordError):
        lab.create_table("shop.unmade", {"id": "int"}, rows=[{"id": "x"}])
    with pytest.raises(errors.InvalidSchemaError):
        lab.create_table("shop.unmade")
    assert "unmade" not in lab.tables("shop")


# -- interrupts and what is shown ---------------------------------------------------------------------------------------


def test_no_lock_of_grpc_or_of_the_library_is_taken_where_an_interrupt_could_break_it(lab):
    """Every step of theirs on the main thread is watched: each must lie in a block that holds interrupts back."""
    watched = ("Condition", "Event", "Thread.start", "Semaphore")
    seen, open_steps = 0, []

    def is_import(frame):
        while frame is not None:
            if "importlib" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
        return False

    def watch(frame, event, _argument):
        nonlocal seen
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        theirs = "/grpc/" in path or "/concurrent/futures/" in path
        if event != "call" or not (theirs or (path.endswith("/threading.py") and name.startswith(watched))):
            return
        seen += 1
        if signal.getsignal(signal.SIGINT) is before and not name.endswith("__init__") and not is_import(frame):
            open_steps.append(f"{name} {path}:{frame.f_lineno}")

    before = signal.default_int_handler
    restored = signal.signal(signal.SIGINT, before)
    # What other tests have left is collected first, and not in between: its locks are nobody's.
    gc.collect()
    gc.disable()
    sys.setprofile(watch)
    try:
        with fl.Lab.open(lab.folder) as other:
            log = other.create_table("shop.watched_log", {"id": "bigint"}, buckets=2)
            keyed = other.create_table("shop.watched", {"id": "bigint"}, primary_key=["id"], buckets=2)
            log.append({"id": [*range(100)]})
            keyed.upsert({"id": [*range(100)]})
            with log.writer() as writer:
                writer.append({"id": [*range(5)]}).result()
                writer.flush()
            assert log.scan().count() == 105
            assert keyed.scan().to_arrow().num_rows == keyed.lookup({"id": [*range(100)]}).num_rows == 100
            assert keyed.lookup({"id": 7}).num_rows == 1
            with log.subscribe("earliest") as scanner:
                assert len(scanner.poll(10.0)) > 0
            assert log.changelog().to_arrow().num_rows == 105
            next(iter(keyed.scan().to_batches(5)))
            other.status()
            log.buckets()
    finally:
        sys.setprofile(None)
        gc.enable()
        signal.signal(signal.SIGINT, restored)
    assert seen > 1000
    assert open_steps == []


def test_what_is_dropped_or_closed_is_shown_all_the_same(lab):
    table = lab.create_table("shop.gone", {"id": "bigint"})
    other = fl.Lab.open(lab.folder)
    theirs = other.table("shop.gone")
    scan, writer, scanner = theirs.scan(), theirs.writer(), theirs.subscribe("latest")
    things = [table, theirs, scan, theirs.changelog(), writer, scanner]
    lab.drop_table("shop.gone")
    for thing in things:
        assert "shop.gone" in repr(thing)
        assert "shop.gone" in getattr(thing, "_repr_html_", thing.__repr__)()
    assert "does not exist" in repr(table)
    status = other.status()
    other.close()
    for thing in [*things, other, status, other.connection]:
        assert repr(thing)
        assert getattr(thing, "_repr_html_", thing.__repr__)()
    assert "closed" in other._repr_html_()
