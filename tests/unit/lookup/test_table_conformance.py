"""Tables pass the conformance suite of lookup sources, however they are keyed and however their rows are looked up."""

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.lookup.table_lookup import FlussLookupSource
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.conformance.lookups import LookupConformance, LookupKit
from tests.unit.lookup.test_lookup_conformance import rows_of

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint not null", "shop": "string not null", "price": "decimal(9,2)", "tags": "array<string>"}
BY_ID = {"primary_key": ["id"], "buckets": 3}
BY_PREFIX = {"primary_key": ["id", "shop"], "bucket_key": ["id"], "buckets": 4}
IN_PARTITIONS = {"primary_key": ["id", "shop"], "partitioned_by": ["shop"], "buckets": 3}


@pytest.fixture(scope="module")
def shops():
    """A cluster of tables of shops."""
    with EmbeddedCluster() as running:
        running.connection.admin().create_database("db")
        yield running.connection


def shop_rows(numbers, cents=0):
    """Return rows, one in eleven of a shop that has only such, and of each third number another one."""
    rows = rows_of(numbers, 3, cents)
    again = rows.filter(pa.array([number % 3 == 0 for number in numbers]))
    again = again.set_column(1, "shop", pa.array(["again"] * again.num_rows))
    rows = pa.concat_tables([rows, again])
    return rows.set_column(1, "shop", pc.fill_null(rows.column("shop"), "eleven"))


class TableConformance(LookupConformance):
    """A table some of whose rows were changed and deleted before."""

    definition: dict
    mode: str

    @pytest.fixture(autouse=True)
    def connected(self, shops):
        self.connection = shops

    def make_kit(self, folder):
        descriptor = make_descriptor(COLUMNS, **self.definition)
        info = self.connection.admin().create_table(TablePath("db", f"t{uuid.uuid4().hex}"), descriptor)
        rows, older = self.held(range(40)), self.held(range(50), cents=99)
        with self.connection.upsert_writer(info.path) as writer:
            writer.upsert(older).result()
            writer.upsert(rows).result()
            gone = pa.compute.greater_equal(older.column("id"), 40)
            writer.delete(older.filter(gone).select(info.schema.primary_key)).result()
        absent = rows_of(range(100, 110)).set_column(1, "shop", pa.array(["nobody's"] * 10))
        source = FlussLookupSource(self.connection, info, mode=self.mode)
        return LookupKit(source, self.typed(info, rows), self.typed(info, absent))

    def change(self, kit):
        info = self.connection.table_info(TablePath.parse(kit.source.name))
        rows = self.held(range(20, 60), cents=50)
        with self.connection.upsert_writer(info.path) as writer:
            writer.upsert(rows).result()
            gone = self.held(range(20))
            writer.delete(gone.select(info.schema.primary_key)).result()
        return self.typed(info, rows)

    def held(self, numbers, cents=0):
        """Return rows of which no two have the primary key."""
        rows = shop_rows(numbers, cents)
        return rows if "shop" in self.definition["primary_key"] else rows.slice(0, len(numbers))

    @staticmethod
    def typed(info, rows):
        return rows.cast(info.schema.arrow_schema)


class TestRemoteLookups(TableConformance):
    """By the primary key, asked of the servers."""

    definition, mode = BY_ID, "remote"
    join_keys = (["id"],)


class TestFullLookups(TableConformance):
    """By any columns, in rows that a task has loaded."""

    definition, mode = BY_ID, "full"
    join_keys = (["id"], ["shop"], ["id", "price"])


class TestRemoteLookupsByPrefix(TableConformance):
    """By the bucket key, of which several rows are, or all of the primary key."""

    definition, mode = BY_PREFIX, "remote"
    join_keys = (["id"], ["id", "shop"])


class TestRemoteLookupsOverPartitions(TableConformance):
    """In all partitions, or in that of the key."""

    definition, mode = IN_PARTITIONS, "remote"
    join_keys = (["id"], ["id", "shop"])


class TestFullLookupsOverPartitions(TableConformance):
    """The same in rows that a task has loaded."""

    definition, mode = IN_PARTITIONS, "full"
    join_keys = (["id"], ["id", "shop"], ["shop"])
