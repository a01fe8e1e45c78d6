"""Random statements over tables that are half in the lake and half in the log give what Spark gives of the same rows in Parquet."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source.lab_sql import sql
from fluss_lab.spark.source.table_frame import scan_to_spark
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.spark.random_rows import COLUMNS, ZONES, random_query, random_row

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KINDS = {
    "log": {"buckets": 2},
    "log_parts": {"partitioned_by": ["p"], "bucket_key": ["k"], "buckets": 2},
    "keyed": {"primary_key": ["k"], "buckets": 2},
    "keyed_parts": {"primary_key": ["k", "p"], "partitioned_by": ["p"], "buckets": 2},
}
ROWS = 60
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


class History:
    """A table whose rows come, and of one with a primary key change and go; and what is left of them."""

    def __init__(self, cluster, kind, rng):
        self.cluster, self.rng = cluster, rng
        admin = cluster.connection.admin()
        admin.create_database("db", if_not_exists=True)
        self.path = TablePath("db", f"random_{kind}")
        self.info = admin.create_table(self.path, make_descriptor(COLUMNS, properties=LAKE, **KINDS[kind]))
        self.key = self.info.schema.primary_key or ("k",)
        self.rows = {}
        self._write(range(ROWS))
        self._tier()
        for _ in range(2 if self.info.schema.primary_key else 0):
            self._write(rng.sample(range(ROWS), 12))
            self._delete(6)
            self._tier()
        self._write(range(ROWS, ROWS + 30))
        if self.info.schema.primary_key:
            self._write(rng.sample(range(ROWS + 30), 12))
            self._delete(6)

    def _write(self, numbers):
        rows = [random_row(self.rng, number) for number in numbers]
        self.rows |= {self._key(row): row for row in rows}
        table = pa.Table.from_pylist(rows, self.info.schema.arrow_schema)
        if self.info.schema.primary_key:
            with self.cluster.connection.upsert_writer(self.path) as writer:
                writer.upsert(table)
        else:
            with self.cluster.connection.append_writer(self.path) as writer:
                writer.append(table)

    def _delete(self, count):
        keys = self.rng.sample(sorted(self.rows), count)
        with self.cluster.connection.upsert_writer(self.path) as writer:
            writer.delete([dict(zip(self.key, key, strict=True)) for key in keys])
        for key in keys:
            del self.rows[key]

    def _key(self, row):
        return tuple(row[name] for name in self.key)

    def _tier(self):
        connection = self.cluster.connection
        run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=self.info.table_id)

    def frame(self, session):
        return scan_to_spark(session, TableReader(self.cluster.connection, self.path).scan())

    def plain_frame(self, session, folder):
        """Return the same rows as Spark reads them of a file without statistics and dictionaries, which mislead it."""
        file = folder / f"{self.path.table}.parquet"
        table = pa.Table.from_pylist(list(self.rows.values()), self.info.schema.arrow_schema)
        pq.write_table(table, file, write_statistics=False, use_dictionary=False, store_schema=False)
        return session.read.parquet(str(file))


@pytest.fixture(scope="module")
def session(spark):
    return spark.newSession()


def answer(session, text, frames):
    """Return types and rows, or how a statement is refused."""
    try:
        table = sql(session, text, lambda parts: frames.get(tuple(parts))).toArrow()
    except PySparkException as error:
        return error.getCondition()
    return [str(field.type) for field in table.schema], sorted(repr(tuple(row.values())) for row in table.to_pylist())


def compare(cluster, session, folder, seed, count):
    rng = random.Random(seed)
    histories = {kind: History(cluster, kind, rng) for kind in KINDS}
    frames = {("db", kind): history.frame(session) for kind, history in histories.items()}
    plain = {("db", kind): history.plain_frame(session, folder) for kind, history in histories.items()}
    for number in range(count):
        if number % 8 == 0:
            session.conf.set("spark.sql.session.timeZone", rng.choice(ZONES))
        tables = {"t": f"db.{rng.choice(list(KINDS))}", "u": f"db.{rng.choice(list(KINDS))}"}
        text = random_query(rng).format(**tables)
        found, expected = answer(session, text, frames), answer(session, text, plain)
        assert found == expected, (session.conf.get("spark.sql.session.timeZone"), text)


def test_random_statements_give_what_spark_gives_of_the_same_rows(cluster, session, tmp_path, seed):
    compare(cluster, session, tmp_path, seed, 24)


@pytest.mark.campaign
def test_many_random_statements_give_what_spark_gives(cluster, session, tmp_path, seed):
    compare(cluster, session, tmp_path, seed, 600)
