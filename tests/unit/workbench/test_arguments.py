"""Every public callable, given what it cannot take: an answer or a `FlussError`, at once, and nothing else.

The callables and their arguments are found by looking at the classes. One that is new fails the test until `PLANS` says
how it is called; the values and the checks are the same for all.
"""

import contextlib
import inspect
import itertools
import signal
import threading

import duckdb
import numpy as np
import pandas as pd
import pytest

from fluss_lab.client import Admin, AppendWriter, Connection, KvScan, LogScanner, Lookuper, UpsertWriter
from fluss_lab.client.write.table_writer import TableWriter
from fluss_lab.client.write.write_result import AppendResult, UpsertResult
from fluss_lab.errors import FlussError
from fluss_lab.jobs import Jobs
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.changelog.net_changes import NetChangelog
from fluss_lab.read.changelog.table_diff import Diff
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.time_seek import Seek
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.row_pages import RowPages
from fluss_lab.read.union.scan import Scan
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.tiering.service.tiering_service import TieringService
from fluss_lab.workbench import Lab, Table
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.table_plot import TablePlot
from tests.unit.jobs.job_kit import write_notebook
from tests.unit.jobs.test_job_store import make_run

#: So long one call may take; most take microseconds.
_PATIENCE_S = 10
#: No table here has so many rows.
_BATCHES_MAX = 50
VALUES = [
    None, "", "nowhere.nothing", "a\0b", -1, 0, 1, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), True, b"x",
    object(), [], [None], ["nope"], [-1], [10**30], [object()], {}, {"nope": object()}, {1: 2}, (), np.int64(3), np.float64(0.5),
    np.array([1, 2]), pd.NA, pd.NaT, pd.DataFrame({"x": [1]}), pd.Series(["k"]), len,
    "\ud800", "~nobody-of-this-name/x", "/nowhere" * 700, ["\ud800"], {"\ud800": "\ud800"}, [{"k": "\ud800"}], {"p": "\ud800"}, np.str_("a"),
]  # fmt: skip
CLASSES = [
    Lab, Table, TableReader, Scan, Changelog, NetChangelog, Seek, Diff, ReadPoint, Listing, Connection, Admin, AppendWriter,
    UpsertWriter, Lookuper, KvScan, LogScanner, TieringService, Jobs, RowPages, TablePlot,
]  # fmt: skip
#: Needs Spark, a lake's rounds, or a server of its own: only what is refused before anything is begun is tried.
REFUSED_ONLY = {
    ("Lab", "open"), ("Lab", "connect"), ("Lab", "sql"), ("Lab", "lookup_join"), ("Lab", "start_spark"), ("Table", "stream"),
    ("Table", "tier"), ("Lab", "tier"), ("Table", "remove_orphan_files"), ("Table", "expire_snapshots"), ("Jobs", "run"),
    ("Jobs", "run_again"), ("Jobs", "start"),
    # Any text is a path that a file may be written to.
    ("Scan", "to_parquet"), ("Changelog", "to_parquet"), ("NetChangelog", "to_parquet"),
}  # fmt: skip
#: What this lab, which has no folder, and these tables are not made for: none is in the lake, no key has a prefix, and values of partitions are not named.
REFUSED_HERE = {
    ("Lab", "iceberg"), ("Lab", "iceberg_storage"), ("Lab", "run_notebook"), ("Table", "files"), ("Table", "lag_history"), ("Table", "prefix_lookup"), ("TablePlot", "files"),
    ("Lookuper", "prefix_lookup"), ("Admin", "lake_snapshot"), ("Admin", "kv_snapshot_metadata"), ("ReadPoint", "from_json"),
    ("Admin", "give_up_range"),
    ("Table", "add_partition"), ("Table", "drop_partition"), ("Listing", "column"),
}  # fmt: skip
#: Of the house: what Python's own sequences and mappings say is theirs.
_PYTHONS = {
    ("Listing", "index"),
    ("Listing", "count"),
    ("Seek", "get"),
    ("Seek", "keys"),
    ("Seek", "items"),
    ("Seek", "values"),
}
#: By class and method: arguments that are right, of those that must be given.
PLANS = {
    ("Lab", "open"): {}, ("Lab", "explore"): {}, ("Lab", "connect"): {"address": "127.0.0.1:1", "token_file": "/nowhere/token"},
    ("Lab", "create_database"): {"name": "made", "if_not_exists": True},
    ("Lab", "drop_database"): {"name": "gone", "if_exists": True}, ("Lab", "tables"): {},
    ("Lab", "load"): {"source": [{"a": 1}], "table": "db.loaded", "if_exists": "append"},
    ("Lab", "table"): {"path": "db.log"},
    ("Lab", "create_table"): {"path": "db.made", "schema": {"a": "int"}, "if_not_exists": True},
    ("Lab", "drop_table"): {"path": "db.gone", "if_exists": True}, ("Lab", "iceberg"): {"path": "db.log"},
    ("Lab", "iceberg_storage"): {"descriptor": "descriptor", "path": TablePath("db", "log")},
    ("Lab", "sql"): {"text": "select 1"}, ("Lab", "lookup_join"): {"frame": "no frame", "table": "db.pk", "on": "k"}, ("Lab", "start_spark"): {}, ("Lab", "tiering_service"): {},
    ("Table", "add_partition"): {}, ("Table", "drop_partition"): {}, ("Table", "alter"): {}, ("Table", "append"): {"rows": []},
    ("Table", "upsert"): {"rows": []}, ("Table", "delete"): {"keys": []}, ("Table", "writer"): {}, ("Table", "buckets"): {},
    ("Table", "lookup"): {"keys": []}, ("Table", "prefix_lookup"): {"prefix": []}, ("Table", "read_point"): {},
    ("Table", "head"): {}, ("Table", "scan"): {}, ("Table", "seek"): {"moment": "now"}, ("Table", "changelog"): {}, ("Table", "diff"): {"before": "now"},
    ("Table", "locate"): {"partition": None, "bucket": 0, "offset": 0}, ("Table", "history"): {"key": [{"k": "k"}]},
    ("Table", "subscribe"): {}, ("Table", "stream"): {}, ("Table", "files"): {}, ("TablePlot", "files"): {}, ("Table", "expire_snapshots"): {},
    ("Table", "remove_orphan_files"): {}, ("Table", "lag_history"): {}, ("Table", "tier"): {}, ("Lab", "tier"): {},
    ("TableReader", "read_point"): {}, ("TableReader", "scan"): {}, ("TableReader", "seek"): {"moment": "now"},
    ("TableReader", "changelog"): {}, ("TableReader", "diff"): {"before": "now"},
    ("TableReader", "counted_diff"): {"before": "now", "after": None, "rows_max": 10},
    ("TableReader", "locate"): {"partition": None, "bucket": 0, "offset": 0},
    ("TableReader", "history"): {"key": [{"k": "k"}]},
    ("Scan", "to_batches"): {}, ("Changelog", "to_batches"): {}, ("NetChangelog", "to_batches"): {},
    **{(kind, "to_parquet"): {"path": "/nowhere/x.parquet"} for kind in ("Scan", "Changelog", "NetChangelog")},
    **{(kind, "to_duckdb"): {} for kind in ("Scan", "Changelog", "NetChangelog")},
    ("Scan", "pages"): {}, ("RowPages", "page"): {"first_row": 0, "count": 1},
    ("RowPages", "steps"): {"first_row": 0, "count": 1}, ("RowPages", "select"): {"columns": ["x"]},
    ("Changelog", "read"): {"part": "part"}, ("NetChangelog", "read"): {"part": "part"},
    ("ReadPoint", "from_json"): {"text": "{}"}, ("Listing", "column"): {"name": "x"},
    ("Connection", "append_writer"): {"path": "db.log"}, ("Connection", "upsert_writer"): {"path": "db.pk"},
    ("Connection", "lookuper"): {"path": "db.pk"}, ("Connection", "scan_kv"): {"info": "pk", "bucket": "bucket"},
    ("Connection", "limit_scan"): {"path": "db.log", "limit": 1}, ("Connection", "log_scanner"): {"path": "db.log"},
    ("Connection", "table_info"): {"path": "db.log"}, ("Connection", "remember"): {"info": "pk"},
    ("Connection", "partitions"): {"info": "pk"}, ("Connection", "forget_partitions"): {"info": "pk"},
    ("Connection", "schema"): {"info": "pk", "schema_id": 1}, ("Connection", "log_source"): {"info": "pk"},
    ("Connection", "lake_of"): {"info": "pk"},
    ("Connection", "check_open"): {"what": "x"}, ("Connection", "coordinator"): {}, ("Connection", "tablet_server"): {"bucket": "bucket"},
    ("Connection", "leader"): {"bucket": "bucket"}, ("Connection", "leaders"): {"buckets": "buckets"},
    ("Connection", "present_leaders"): {"buckets": "buckets"},
    ("Connection", "gateway"): {"server_id": 0}, ("Connection", "forget_leaders_of"): {"buckets": "buckets"},
    ("Admin", "create_database"): {"name": "made", "if_not_exists": True},
    ("Admin", "drop_database"): {"name": "gone", "if_exists": True},
    ("Admin", "create_table"): {"path": "db.made", "descriptor": "descriptor", "if_not_exists": True},
    ("Admin", "table_info"): {"path": "db.log"}, ("Admin", "tables"): {"database": "db"},
    ("Admin", "drop_table"): {"path": "db.gone", "if_exists": True}, ("Admin", "alter_table"): {"path": "db.log"},
    ("Admin", "create_partition"): {"path": "db.parts", "values": {"p": "a"}, "if_not_exists": True},
    ("Admin", "drop_partition"): {"path": "db.parts", "values": {"p": "z"}, "if_exists": True},
    ("Admin", "create_partitions"): {"path": "db.parts", "specs": [{"p": "b"}], "if_not_exists": True},
    ("Admin", "lost_partitions"): {"path": "db.parts", "time_ms": 1_767_225_600_000},
    ("Admin", "partitions"): {"path": "db.parts"}, ("Admin", "list_offsets"): {"info": "log", "spec": OffsetSpec.latest()},
    ("Admin", "tiering_rounds"): {"path": "db.log"}, ("Admin", "lake_snapshot"): {"path": "db.log"}, ("Admin", "latest_kv_snapshots"): {"path": "db.pk"},
    ("Admin", "kv_snapshot_metadata"): {"info": "pk", "bucket": 0, "snapshot_id": 1}, ("Admin", "buckets"): {"info": "pk"},
    ("Admin", "damaged_buckets"): {"info": "pk"},
    ("Admin", "give_up_range"): {"info": "pk", "bucket": "bucket", "start": 0, "stop": 1},
    ("AppendWriter", "append"): {"rows": []}, ("UpsertWriter", "upsert"): {"rows": []}, ("UpsertWriter", "delete"): {"keys": []},
    ("Lookuper", "lookup"): {"keys": []}, ("Lookuper", "prefix_lookup"): {"prefix": []},
    ("LogScanner", "subscribe"): {"bucket": 0, "offset": 0}, ("LogScanner", "subscribe_all"): {"spec": OffsetSpec.latest()},
    ("LogScanner", "subscribe_from_beginning"): {"bucket": 0}, ("LogScanner", "unsubscribe"): {"bucket": 0},
    ("LogScanner", "subscribe_at"): {"offsets": {}}, ("TableReader", "starts"): {"start": "earliest"},
    ("TableReader", "subscribe"): {"start": "latest"},
    ("LogScanner", "poll"): {"timeout_s": 0}, ("TieringService", "status"): {}, ("TieringService", "stop"): {},
    ("Lab", "run_notebook"): {"notebook": "01_quickstart"}, ("Jobs", "run"): {"notebook": "notebook"},
    ("Jobs", "schedule"): {"name": "made", "notebook": "notebook", "cron": "@daily", "replace": True},
    ("Jobs", "pause"): {"name": "job"}, ("Jobs", "resume"): {"name": "job"}, ("Jobs", "remove"): {"name": "removed"},
    ("Jobs", "job"): {"name": "job"}, ("Jobs", "history"): {}, ("Jobs", "find_run"): {"run_id": "r1"},
    ("Jobs", "cancel"): {"run": "r1"}, ("Jobs", "run_again"): {"run": "record"},
    ("Jobs", "start"): {"name": "job"},
}  # fmt: skip
#: Between modules of the house: their callers are not people.
INNER = {("Connection", name) for name in ("call_coordinator", "attempts", "refresh_leader", "admin", "pin_lake")}


def callables():
    """Yield class, name and signature of every public callable that takes arguments."""
    for kind in CLASSES:
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            function = getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
            if parameters and (kind.__name__, name) not in _PYTHONS | INNER:
                yield kind, name, parameters


@pytest.fixture(scope="module")
def lab():
    with EmbeddedCluster(client={"client.request-timeout": "3s"}) as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        lab.create_database("db")
        lab.create_table("db.log", {"a": "int", "x": "bigint"}, rows=[{"a": 1}], buckets=2)
        lab.create_table("db.pk", {"k": "string", "x": "int"}, primary_key=["k"], rows=[{"k": "k", "x": 1}])
        lab.create_table("db.parts", {"p": "string", "x": "int"}, partitioned_by=["p"], rows=[{"p": "a", "x": 1}])
        yield lab


@pytest.fixture(scope="module")
def things(lab, tmp_path_factory):
    """Objects of every class, and arguments by their name in `PLANS`."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs, notebook, record = Jobs(folder / "lab"), write_notebook(folder / "x.ipynb"), make_run("r1", state="failed")
    for name in ("job", "removed"):
        jobs.schedule(name, notebook, cron="@daily")
    jobs.store.add_run(record)
    connection = lab.connection
    log, pk = lab.table("db.log"), lab.table("db.pk")
    info = pk.info
    bucket = TableBucket(info.table_id, None, 0)
    net, plain = pk.changelog(net=True), pk.changelog()
    objects = {
        "Lab": [lab], "Table": [log, pk, lab.table("db.parts")], "Scan": [log.scan()], "Changelog": [plain],
        "NetChangelog": [net], "Seek": [log.seek("now")], "Diff": [log.diff("now")], "ReadPoint": [log.read_point()],
        "TableReader": [TableReader(connection, log.path), TableReader(connection, pk.path)], "Listing": [log.buckets()],
        "Connection": [connection], "Admin": [connection.admin()], "AppendWriter": [connection.append_writer("db.log")],
        "UpsertWriter": [connection.upsert_writer("db.pk")], "Lookuper": [connection.lookuper("db.pk")],
        "KvScan": [connection.scan_kv(info, bucket)], "LogScanner": [connection.log_scanner("db.log")],
        "TieringService": [lab.tiering_service()], "Jobs": [jobs], "TablePlot": [log.plot], "RowPages": [log.scan().pages(), pk.scan().pages()],
    }  # fmt: skip
    named = {
        "descriptor": make_descriptor({"a": "int"}), "log": log.info, "pk": info, "bucket": bucket, "buckets": [bucket],
        "part": plain.plan()[0], "notebook": notebook, "record": record,
    }  # fmt: skip
    objects["LogScanner"][0].subscribe(0, 0)
    yield objects, named
    for kind in ("AppendWriter", "UpsertWriter", "Lookuper", "LogScanner"):
        objects[kind][0].close()


class _HangError(BaseException):
    pass


@contextlib.contextmanager
def patience(what):
    def ring(*_):
        raise _HangError(f"{what} did not return within {_PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def judged(what, odd):
    """Note what is odd about how a call ends; give the errors of ours by which it is refused."""
    refusals = []
    try:
        with patience(what):
            yield refusals
    except FlussError as error:
        refusals.append(error)
        if not str(error):
            odd.append(f"{what}: an error without a text")
    except UserWarning as warning:  # what is only warned of is an error here, as all warnings are
        if not str(warning).startswith("explore: mask: no table has a column"):
            odd.append(f"{what}: warning: {warning}"[:300])
    except BaseException as error:
        odd.append(f"{what}: {type(error).__module__}.{type(error).__name__}: {error}"[:300])


def use(result):
    """Ask an answer that is lazy for what it holds, and let it go."""
    with contextlib.ExitStack() as stack:
        if isinstance(result, TableWriter | Lookuper | LogScanner):
            stack.callback(result.close)
        if isinstance(result, Scan):
            return result.to_arrow()
        if isinstance(result, Changelog):
            return result.to_arrow()
        if isinstance(result, duckdb.DuckDBPyRelation):
            return result.fetchall()
        if inspect.isgenerator(result):
            batches = list(itertools.islice(result, _BATCHES_MAX))
            assert len(batches) < _BATCHES_MAX, "it never ends"
            return batches
        if isinstance(result, AppendResult | UpsertResult):
            return result.result(5)
        return result


def test_every_public_callable_has_a_plan():
    found = {(kind.__name__, name) for kind, name, _ in callables()}
    assert found - PLANS.keys() == set(), "say in PLANS how it is called"
    assert PLANS.keys() - found == set(), "there is none such any more"


def planned(kind, method, named):
    plan = PLANS[kind.__name__, method]
    return {name: named[value] if isinstance(value, str) and value in named else value for name, value in plan.items()}


def test_the_plans_are_right(things):
    objects, named = things
    wrong = []
    for kind, method, _ in callables():
        if (kind.__name__, method) in REFUSED_ONLY | REFUSED_HERE:
            continue
        failures = []
        for subject in objects[kind.__name__]:
            try:
                use(getattr(subject, method)(**planned(kind, method, named)))
            except FlussError as error:
                failures.append(f"{kind.__name__}.{method}: {type(error).__name__}: {error}")
        if len(failures) == len(objects[kind.__name__]):
            wrong += failures
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_wrong_arguments_get_an_answer_or_an_error_of_ours(lab, things):
    objects, named = things
    odd, tried, refused = [], 0, 0
    for kind, method, parameters in callables():
        plan = planned(kind, method, named)
        for subject in objects[kind.__name__]:
            for parameter in parameters:
                for value in VALUES:
                    name = "p" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
                    if _begins_something(kind, method, parameter, value):
                        continue
                    what = f"{kind.__name__}.{method}({name}={value!r})"[:120]
                    tried += 1
                    with judged(what, odd) as refusals:
                        use(getattr(subject, method)(**{**plan, name: value}))
                    refused += len(refusals)
    print(f"{tried} calls of {len(list(callables()))} callables, {refused} refused, {len(odd)} odd")
    assert not odd, "\n".join(odd)
    assert tried > 4000
    assert refused > tried // 2
    assert lab.table("db.log").scan().count() == 3  # the frame is rows of it, for the table and the writer
    assert lab.table("db.pk").lookup([{"k": "k"}])["x"].to_pylist() == [1]
    assert threading.active_count() < 200


def _begins_something(kind, method, parameter, value):
    """Return whether a call would begin what takes long: a server, Spark, a round."""
    if method == "poll":
        return isinstance(value, int | float) and value > 1  # it waits so long, as it is told
    if (kind.__name__, method) not in REFUSED_ONLY:
        return False
    text = str(parameter.annotation)
    if "None" in text and value is None:
        return True
    admitted = {"bool": bool, "int": (int, np.integer), "str": str, "Mapping": dict, "Moment": object, "Any": object,
                "Sequence": (list, tuple, np.ndarray, pd.Series), "Iterable": (list, tuple, np.ndarray, pd.Series),
                "Callable": type(len)}  # fmt: skip
    kinds = [classes for word, classes in admitted.items() if word in text]
    return any(isinstance(value, classes) and (classes is object or not isinstance(value, bool) or classes is bool)
               for classes in kinds)  # fmt: skip
