"""Reads of a table whose columns grow: lake, log and both, with filters, read points, changelogs and subscriptions."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import InvalidFilterError, InvalidSchemaError, OffsetOutOfRangeError
from fluss_lab.model import OffsetSpec, TableBucket
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from tests.unit.read.kit import retain, rows_of, same

pytestmark = pytest.mark.slow

MONTHS = ["2013-01", "2013-02"]


def value_of(name: str, kind: pa.DataType, number: int) -> object:
    if pa.types.is_struct(kind):
        return {"x": number, "y": [name, None]}
    return number if kind == pa.int32() else f"{name}{number}"


class Growing:
    """A model table whose rows have the columns that there were when they were appended."""

    def __init__(self, table, rng) -> None:
        self.table, self.rng = table, rng
        self.rows: dict[int, dict[str, object]] = {}
        self.kinds = {field.name: field.type for field in table.info.schema.arrow_schema}

    def append(self, count: int) -> None:
        first = len(self.rows)
        rows = []
        for number in range(first, first + count):
            row = {"id": number, "month": self.rng.choice(MONTHS), "delay": number % 100, "ratio": None, "dest": "A"}
            row |= {name: value_of(name, kind, number) for name, kind in self.added.items()}
            rows.append(row)
            self.rows[number] = row
        with self.table.connection.append_writer(self.table.path) as writer:
            writer.append(rows).result()

    @property
    def added(self) -> dict[str, pa.DataType]:
        return {name: kind for name, kind in self.kinds.items() if name not in self.table.info.schema.names}

    def alter(self, **columns: str) -> None:
        info = self.table.connection.admin().alter_table(self.table.path, add_columns=columns)
        self.kinds = {field.name: field.type for field in info.schema.arrow_schema}

    def reader(self) -> TableReader:
        return TableReader(self.table.connection, self.table.path)

    def expected(self, names=None, where=lambda row: True, below=None) -> list[dict[str, object]]:
        return [
            {name: row.get(name) for name in names or self.kinds}
            for number, row in sorted(self.rows.items())
            if (below is None or number < below) and where({name: row.get(name) for name in self.kinds})
        ]

    def check(self, names=None, where=None, condition=lambda row: True) -> None:
        names = list(names or self.kinds)
        scan = self.reader().scan(columns=list(dict.fromkeys([*names, "id"])), where=where)
        found = sorted(rows_of(scan.to_arrow()), key=lambda row: row["id"])
        same([{name: row[name] for name in names} for row in found], self.expected(names, condition))
        assert scan.count() == len(found)


@pytest.fixture
def growing(make_table, seed):
    return Growing(make_table(), random.Random(seed))


STEPS = {
    "log": lambda g: None,
    "lake": lambda g: g.table.tier(),
    "lake only": lambda g: (g.table.tier(), g.table.expire()),
}


@pytest.mark.parametrize("before", STEPS)
@pytest.mark.parametrize("after", STEPS)
def test_every_part_reads_in_the_present_schema(growing, before, after):
    growing.append(40)
    STEPS[before](growing)
    growing.alter(note="string", number="int")
    growing.append(40)
    STEPS[after](growing)
    growing.check()
    growing.check(["note", "id"])
    growing.check(["number"])
    growing.check(["id"], "number >= 60", lambda row: row["number"] is not None and row["number"] >= 60)
    growing.check(["note"], "note is null", lambda row: row["note"] is None)
    growing.check(["id"], "note is not null and delay < 60", lambda row: row["note"] is not None and row["delay"] < 60)
    growing.check(["id"], "note = 'note44'", lambda row: row["note"] == "note44")
    growing.check(["id"], pc.field("number") < 50, lambda row: row["number"] is not None and row["number"] < 50)
    growing.check(["id"], "number = 7", lambda row: False)


def test_columns_come_again_and_again(make_table, seed):
    growing = Growing(make_table(partitioned=False), random.Random(seed))
    for turn in range(5):
        growing.append(20)
        if turn % 2:
            growing.table.tier()
        if turn == 2:
            growing.table.expire()
        growing.alter(**{f"c{turn}": "int" if turn % 2 else "string"})
        growing.check()
    growing.append(20)
    growing.table.tier()
    growing.check()
    growing.check(["c4", "c0"])


def test_the_same_words_are_read_anew_after_each_change(growing):
    growing.append(40)
    growing.table.tier()
    for _ in range(2):
        with pytest.raises(InvalidFilterError, match="late"):
            growing.reader().scan(where="late > 30")
        growing.check(["id"], "delay > 30", lambda row: row["delay"] > 30)
    growing.alter(late="int")
    growing.append(20)
    for _ in range(2):
        growing.check(["id"], "late > 50", lambda row: row["late"] is not None and row["late"] > 50)
        growing.check(None, "delay > 30", lambda row: row["delay"] > 30)
        assert growing.reader().changelog().schema.names[-1] == "late"


@pytest.mark.parametrize("step", STEPS)
def test_a_read_point_keeps_its_columns(growing, step):
    growing.append(30)
    point = growing.reader().read_point()
    old_names = list(growing.kinds)
    growing.alter(note="string")
    growing.append(30)
    STEPS[step](growing)
    for kept in (point, ReadPoint.from_json(point.to_json())):
        scan = growing.reader().scan(read_point=kept)
        assert scan.schema.names == old_names
        found = sorted(rows_of(scan.to_arrow()), key=lambda row: row["id"])
        same(found, growing.expected(old_names, below=30))
        with pytest.raises((InvalidSchemaError, InvalidFilterError)):
            growing.reader().scan(columns=["note"], read_point=kept)
        with pytest.raises((InvalidSchemaError, InvalidFilterError)):
            growing.reader().scan(where="note is null", read_point=kept)
    # The other way round: a reader that was made before reads at a point of now.
    old = growing.reader()
    growing.alter(more="int")
    now = growing.reader().read_point()
    assert old.scan(read_point=now).schema.names == [*old_names, "note", "more"]
    assert old.scan(read_point=now).count() == 60


def test_altered_between_the_scan_and_its_rows(growing):
    growing.append(30)
    scan = growing.reader().scan()
    assert scan.read_point.records == 30
    names = list(growing.kinds)
    growing.alter(note="string")
    growing.append(30)
    growing.table.tier()
    growing.table.expire()
    found = sorted(rows_of(scan.to_arrow()), key=lambda row: row["id"])
    same(found, growing.expected(names, below=30))


@pytest.mark.parametrize("step", STEPS)
def test_the_changelog_has_the_present_columns(growing, step):
    growing.append(30)
    growing.table.clock.advance(10)
    moment = growing.table.clock.now_ms()
    growing.alter(note="string")
    growing.append(30)
    STEPS[step](growing)
    log = growing.reader().changelog()
    found = sorted(rows_of(log.to_arrow()), key=lambda row: row["id"])
    names = list(growing.kinds)
    same([{name: row[name] for name in names} for row in found], growing.expected())
    later = growing.reader().changelog(start=growing.reader().seek(moment), columns=["note", "id"]).to_arrow()
    assert sorted(later["id"].to_pylist()) == list(range(30, 60))
    assert sorted(later["note"].to_pylist()) == sorted(f"note{n}" for n in range(30, 60))


@pytest.mark.parametrize("step", STEPS)
def test_a_log_is_read_on_with_the_columns_that_its_reader_knows(growing, step):
    growing.append(10)
    old = growing.table.connection.table_info(growing.table.path)
    growing.alter(note="string")
    growing.append(10)
    new = growing.table.connection.table_info(growing.table.path)
    STEPS[step](growing)
    for info in (old, new):
        assert all_rows(growing, info) == [
            {name: row.get(name) for name in info.schema.names} for _, row in sorted(growing.rows.items())
        ]


def all_rows(growing, info):
    """Return all rows as a reader with that knowledge of the table gets them, from log or lake."""
    connection, found = growing.table.connection, []
    partitions = connection.admin().partitions(info.path) if info.descriptor.partitioned_by else [None]
    for partition in partitions:
        ends = connection.admin().list_offsets(info, OffsetSpec.latest(), partition=partition)
        for bucket, end in ends.items():
            place = TableBucket(info.table_id, None if partition is None else partition.partition_id, bucket)
            name = None if partition is None else partition.name
            for records in read_range(connection, info, place, 0, end.offset, partition=name):
                found += records.rows.to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_a_lake_that_was_off_too_long_says_so(growing):
    """While the lake is off records leave by their ttl alone; what the lake lacks then cannot be tiered any more."""
    table, admin = growing.table, growing.table.connection.admin()
    growing.append(30)
    table.tier()
    admin.alter_table(table.path, set={"table.datalake.enabled": False})
    growing.append(30)
    growing.check()
    table.clock.advance(1_000)
    admin.alter_table(table.path, set={"table.log.ttl": "1ms"})
    retain(table.cluster, lambda: all(each.start_offset == each.end_offset for each in admin.buckets(table.info)))
    admin.alter_table(table.path, set={"table.log.ttl": "7d", "table.datalake.enabled": True})
    with pytest.raises(OffsetOutOfRangeError, match="left the cluster before they were tiered"):
        table.tier()


def test_retention_of_a_lake_that_was_switched_on_again(growing):
    """Records leave only when the lake has them, however often it is switched; and none is lost or doubled."""
    table, admin = growing.table, growing.table.connection.admin()
    for _ in range(3):
        growing.append(20)
        admin.alter_table(table.path, set={"table.datalake.enabled": False})
        growing.append(20)
        growing.check()
        admin.alter_table(table.path, set={"table.datalake.enabled": True})
        table.tier()
        table.expire()
        growing.check()
