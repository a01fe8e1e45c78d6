"""A sink in the hand, and rows for it."""

import json
import shutil

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.sink.table_sink import FlussStreamWriter
from fluss_lab.spark.source.source_options import parse_options, place_options

COLUMNS = {"id": "int", "month": "string", "v": "string"}

SCHEMA = T.StructType(
    [T.StructField("id", T.IntegerType()), T.StructField("month", T.StringType()), T.StructField("v", T.StringType())]
)

CHANGES = T.StructType([T.StructField("_change_type", T.StringType()), *SCHEMA.fields])
#: Small requests, so that rows come to be too large for one.
OPTIONS = {"server.request-size-max": "256kb", "log.retention.check-interval": "1d", "log.segment.file-size": "2kb"}

KINDS = {
    "log": {},
    "log by key": {"bucket_key": ["id"]},
    "partitioned log": {"partitioned_by": ["month"]},
    "keyed": {"primary_key": ["id"]},
    "partitioned keyed": {"primary_key": ["id", "month"], "partitioned_by": ["month"], "bucket_key": ["id"]},
}


class Sink:
    """The sink of one query, as Spark would use it: tasks stage, then somebody commits; all of it in new objects."""

    def __init__(
        self, cluster, folder, *, schema=SCHEMA, query="q", columns=COLUMNS, path="db.t", whole=False, **options
    ):
        self.whole = whole
        self.cluster = cluster
        self.folder = folder
        self.schema = schema
        self.path = TablePath.parse(path)
        self.options = {"client.request-timeout": "20s"}
        admin = cluster.connection.admin()
        admin.drop_table(self.path, if_exists=True)
        self.info = admin.create_table(self.path, make_descriptor(columns, **{"buckets": 2} | options))
        self.name(query)

    def name(self, query):
        self.folder.mkdir(exist_ok=True)
        (self.folder / "metadata").write_text(json.dumps({"id": query}))

    def plan(self, batch_id, end):
        """Note how far a batch goes, as Spark does before it runs one."""
        (self.folder / "offsets").mkdir(exist_ok=True)
        (self.folder / "offsets" / str(batch_id)).write_text(f"v1\n{end}")

    def restore(self, backup):
        """Have a copy of the checkpoint in its place."""
        shutil.rmtree(self.folder)
        shutil.copytree(backup, self.folder)

    def writer(self):
        given = {"table": str(self.path), "checkpointLocation": str(self.folder), **self.options}
        return FlussStreamWriter(parse_options(given | place_options(self.cluster.address)), self.schema, self.whole)

    def stage(self, tasks):
        return [self.writer().write(iter(batches)) for batches in tasks]

    def run(self, batch_id, tasks):
        self.commit(batch_id, self.stage(tasks))

    def commit(self, batch_id, messages):
        """Commit as Spark does: what fails is aborted."""
        try:
            self.writer().commit(messages, batch_id)
        except Exception:
            self.writer().abort(messages, batch_id)
            raise

    def rows(self):
        """Return what the table's log holds: change type, and the row."""
        found = TableReader(self.cluster.connection, self.path).changelog().to_arrow().to_pylist()
        return [(row["_change_type"], row["id"], row["v"]) for row in found]

    def files(self):
        return sorted(path.name for path in (self.folder / "_fluss_sink" / "staged").iterdir())


def rows(*ids, month="m0", text="v"):
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int32()),
            "month": pa.array([month] * len(ids)),
            "v": pa.array([f"{text}{i}" for i in ids]),
        }
    )


def changes(*given):
    kinds, ids, texts = zip(*given, strict=True)
    return pa.record_batch(
        {
            "_change_type": pa.array(kinds, pa.string()),
            "id": pa.array(ids, pa.int32()),
            "month": pa.array(["m0"] * len(ids)),
            "v": pa.array(texts, pa.string()),
        }
    )


def six_tasks(first=0):
    """Return tasks with ten rows each, of two partitions: so many runs of each bucket that notes are made in between."""
    return [[rows(*range(at, at + 10), month=f"m{at // 10 % 2}")] for at in range(first, first + 60, 10)]


def complete(sink, count):
    found = sink.rows()
    assert sorted(row[1] for row in found) == list(range(count))
    assert {row[0] for row in found} == ({"+A"} if sink.info.is_log_table else {"+I"})
