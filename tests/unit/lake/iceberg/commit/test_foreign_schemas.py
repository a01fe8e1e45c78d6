"""Columns that another engine changed through pyiceberg's own API: rows are read right, or refused with what to do."""

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.manifest import DataFile
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.table.layout import checked_layout
from tests.unit.lake.changelogs import Changelog, commit_files, state_of
from tests.unit.lake.conftest import records
from tests.unit.lake.rounds import KeyedLake
from tests.unit.lake.upkeep import Upkeep

pytestmark = pytest.mark.slow

SEVEN = pa.scalar(Decimal("7.00"), pa.decimal128(5, 2))
COLUMNS = {
    "id": "int not null",
    "name": "string",
    "n": "int",
    "f": "float",
    "d": "decimal(5,2)",
    "s": "row<a int, b string>",
}


def row_of(number: int) -> dict:
    some = None if number % 5 == 0 else number
    return {
        "id": number,
        "name": f"v{number}",
        "n": some,
        "f": None if some is None else number / 4,
        "d": None if some is None else number % 100,
        "s": None if some is None else {"a": number, "b": "x"},
    }


class Tables:
    """A log table and a primary-key table with the same columns, and what each must give."""

    def __init__(self, lake) -> None:
        self.lake = lake
        self.log = lake.table(COLUMNS, name="log")
        self.keyed = KeyedLake(lake, lake.table(COLUMNS, primary_key=["id"], buckets=1, name="keyed"))
        self.keyed.logs = {0: Changelog(self.keyed.info.schema.arrow_schema, ("id",))}
        self.appended = 0

    @property
    def infos(self):
        return (self.log, self.keyed.info)

    def write(self, rng: random.Random, count: int = 20) -> None:
        """Append rows; upsert and delete some keys."""
        rows = [row_of(number) for number in range(self.appended, self.appended + count)]
        batch = pa.RecordBatch.from_pylist(rows, schema=self.log.schema.arrow_schema)
        self.lake.commit(self.log, self.lake.write(self.log, records(batch, self.appended)))
        self.appended += count
        for _ in range(count):
            key = rng.randrange(15)
            if rng.random() < 0.3:
                self.keyed.logs[0].delete((key,))
            else:
                self.keyed.logs[0].upsert(row_of(key) | {"name": f"at {self.keyed.logs[0].end}"})
        self.keyed.round()

    def change(self, how) -> None:
        """Change the schemas as somebody else does."""
        for info in self.infos:
            with self.lake.load(info).update_schema(allow_incompatible_changes=True) as update:
                how(update)

    def compact(self) -> None:
        for info in self.infos:
            Upkeep(self.lake, info).compact()

    def expected(self, info, stop: int) -> list[tuple[int, dict]]:
        """Return offset and row of what was there before an offset."""
        if info is self.log:
            return [(number, row_of(number)) for number in range(min(stop, self.appended))]
        live: dict[int, dict] = {}
        for offset, record in enumerate(self.keyed.logs[0].log[:stop]):
            live.pop(record.previous, None)
            if record.kind.symbol in {"+I", "+U"}:
                live[offset] = record.row
        return sorted(live.items(), key=lambda each: each[0])

    def check(self, rng: random.Random) -> None:
        """Assert that both give their rows: whole, at a stop, filtered, projected, pruned."""
        for info in self.infos:
            end = self.appended if info is self.log else self.keyed.tiered[0]
            for stop in (end, rng.randint(1, end)):
                wanted = self.expected(info, stop)
                names = [*info.schema.names, "__offset"]
                found = self.read(info, names, stop)
                assert found.select(info.schema.names).schema.types == info.schema.arrow_schema.types
                as_read = pa.Table.from_pylist([row for _, row in wanted], schema=info.schema.arrow_schema)
                assert found["__offset"].to_pylist() == [offset for offset, _ in wanted]
                assert found.select(info.schema.names).to_pylist() == as_read.to_pylist()
                for name, where, hint in (
                    ("n", pc.field("n") > 7, GreaterThan("n", 7)),
                    ("f", pc.field("f") > 1.75, GreaterThan("f", 1.75)),
                    ("name", pc.field("name") == "v3", EqualTo("name", "v3")),
                    ("d", pc.field("d") > SEVEN, GreaterThan("d", Decimal("7.00"))),
                ):
                    ids = self.read(info, ["id"], stop, where, hint)["id"].to_pylist()
                    assert ids == as_read.filter(where)["id"].to_pylist(), name

    def read(self, info, names, stop, where=None, hint=None) -> pa.Table:
        source = self.lake.storage.create_lake_source(info)
        snapshot = self.lake.load(info).metadata.current_snapshot_id
        stops = {(None, 0): stop}
        splits = source.plan(snapshot, stops=stops, where=hint)
        known = {field.name: field for field in info.schema.arrow_schema} | {
            "__offset": pa.field("__offset", pa.int64())
        }
        batches = [batch for _, batch in source.read(splits, names, where=where, stops=stops)]
        schema = pa.schema([known[name] for name in names])
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in batches], schema
        )


@pytest.fixture
def tables(lake) -> Tables:
    return Tables(lake)


CHANGES = {
    "renamed": lambda update: update.rename_column("name", "title").rename_column("n", "name"),
    "names exchanged": lambda update: update.rename_column("f", "f0").rename_column("n", "f"),
    "moved": lambda update: update.move_first("d").move_after("name", "n"),
    "widened": lambda update: (
        update.update_column("n", LongType()).update_column("f", DoubleType()).update_column("d", DecimalType(9, 2))
    ),
    "made optional": lambda update: update.make_column_optional("__offset"),
    "added": lambda update: update.add_column("extra", StringType()),
    "renamed inside": lambda update: update.rename_column(("s", "a"), "inner"),
    "names exchanged inside": lambda update: update.rename_column(("s", "a"), "b0").rename_column(("s", "b"), "a"),
    "moved inside": lambda update: update.move_first(("s", "b")),
    "added inside": lambda update: update.add_column(("s", "extra"), StringType()),
    "widened and renamed inside": lambda update: update.update_column(("s", "a"), LongType()).rename_column(
        ("s", "b"), "title"
    ),
    "system columns renamed": lambda update: update.rename_column("__offset", "o").rename_column("__timestamp", "t"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_somebody_changed_is_read_right(tables, rng, change):
    tables.write(rng)
    tables.change(CHANGES[change])
    tables.check(rng)
    tables.write(rng)
    tables.check(rng)
    tables.compact()
    tables.check(rng)
    as_others = tables.lake.load(tables.log).scan().to_arrow()
    assert sorted(as_others["id"].to_pylist()) == list(range(tables.appended))


@pytest.mark.parametrize("change", ["renamed", "widened", "renamed inside", "moved inside"])
def test_files_rewritten_under_the_new_schema_are_read_right(tables, rng, change):
    """As others write them: by the lake's names, and in its types."""
    tables.write(rng)
    tables.change(CHANGES[change])
    for info in tables.infos:
        rewrite_as_the_lake_says(tables.lake, info)
    tables.check(rng)
    tables.write(rng)
    tables.check(rng)


def test_what_others_wrote_within_a_column_is_still_there_after_a_compaction(lake):
    info = lake.table({"id": "int not null", "s": "row<a int, b string>"})
    lake.commit(info, lake.write(info, records(pa.RecordBatch.from_pylist(
        [{"id": number, "s": {"a": number, "b": "x"}} for number in range(5)], schema=info.schema.arrow_schema
    ))))  # fmt: skip
    with lake.load(info).update_schema() as update:
        update.add_column(("s", "extra"), StringType()).rename_column(("s", "a"), "inner")
    table = lake.load(info)
    rows = [each | {"s": each["s"] | {"extra": f"e{each['id']}"}} for each in table.scan().to_arrow().to_pylist()]
    table.overwrite(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    lake.commit(info, lake.write(info, records(pa.RecordBatch.from_pylist(
        [{"id": number, "s": {"a": number, "b": "x"}} for number in range(5, 9)], schema=info.schema.arrow_schema
    ), 5)))  # fmt: skip
    Upkeep(lake, info).compact()
    (_,) = state_of(lake, info)[(None, 0)].data
    found = {row["id"]: row["s"] for row in lake.load(info).scan().to_arrow().to_pylist()}
    assert found == {
        number: {"inner": number, "b": "x", "extra": f"e{number}" if number < 5 else None} for number in range(9)
    }


def test_a_field_made_required_inside_a_column_is_refused(tables, rng):
    tables.write(rng)
    tables.change(lambda update: update.make_column_optional("__offset"))  # no harm
    for info in tables.infos:
        lake = tables.lake.load(info)
        with lake.update_schema(allow_incompatible_changes=True) as update:
            update._set_column_requirement(("s", "a"), required=True)
        with pytest.raises(UnsupportedError, match="its field 'a' was made required; make it optional"):
            checked_layout(info, tables.lake.load(info))


def rewrite_as_the_lake_says(lake, info) -> None:
    """Replace every data file by one that ours would not write: the lake's names and types, and no order promised."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace

    table = lake.load(info)
    schema = schema_to_pyarrow(table.schema())
    planned = table.metadata.current_snapshot()
    for number, file in enumerate(state_of(lake, info)[(None, 0)].data):
        rows = table.scan().to_arrow()
        path = lake.folder / f"rewritten-{info.path.table}-{number}.parquet"
        pq.write_table(rows.sort_by(table.schema().find_column_name(offset_id(lake, info))).cast(schema), path)
        new = DataFile.from_args(
            content=file.file.content, file_path=f"file://{path}", file_format=file.file.file_format,
            partition=file.file.partition, record_count=len(rows), file_size_in_bytes=path.stat().st_size,
            column_sizes={}, value_counts={}, null_value_counts={}, nan_value_counts={},
            lower_bounds={}, upper_bounds={}, sort_order_id=None,
        )  # fmt: skip
        new.spec_id = 0
        state = state_of(lake, info)[(None, 0)]
        removed = [each.file for each in (*state.data, *state.deletes)]
        staged = stage_replace(
            table, removed=removed, added=[(new, planned.sequence_number)], summary={},
            tags=[] if info.is_log_table else [replay_tag_of(planned)],
        )  # fmt: skip
        lake.storage.access.commit("rewrite", table, staged.requirements, staged.updates)


def replay_tag_of(snapshot):
    from fluss_lab.lake.iceberg.commit.replay_start_tags import replay_tag

    return replay_tag(snapshot.snapshot_id, 7 * 24 * 3_600_000)


def offset_id(lake, info) -> int:
    from fluss_lab.lake.iceberg.table.layout import known_layout

    return known_layout(info, lake.load(info)).system_ids[1]


def test_a_dropped_column_is_refused_with_what_to_do(tables, rng):
    tables.write(rng)
    tables.change(lambda update: update.delete_column("name"))
    for info in tables.infos:
        with pytest.raises(UnsupportedError, match=r"'name' .*is gone.*disable and enable the lake"):
            tables.read(info, ["id"], 1)


def test_a_field_dropped_inside_a_column_is_refused(tables, rng):
    tables.write(rng)
    tables.change(lambda update: update.delete_column(("s", "b")))
    with pytest.raises(UnsupportedError, match=r"'s' .*is gone"):
        tables.read(tables.log, ["id"], 1)


def test_values_beyond_the_tables_own_type_are_named(lake):
    """Somebody widened a column and wrote what does not fit."""
    info = lake.table({"id": "int not null", "n": "int"}, primary_key=["id"], buckets=1)
    keyed = KeyedLake(lake, info)
    keyed.logs = {0: Changelog(info.schema.arrow_schema, ("id",))}
    keyed.logs[0].upsert({"id": 1, "n": 1})
    keyed.round()
    with lake.load(info).update_schema() as update:
        update.update_column("n", LongType())
    (file,) = state_of(lake, info)[(None, 0)].data
    rows = lake.load(info).scan().to_arrow()
    path = file.file.file_path.removeprefix("file://")
    schema = pa.schema([field if field.name != "n" else field.with_type(pa.int64()) for field in pq.read_schema(path)])
    pq.write_table(rows.set_column(1, "n", pa.array([2**40])).cast(schema), path)
    source = lake.storage.create_lake_source(info)
    splits = source.plan(lake.load(info).metadata.current_snapshot_id)
    with pytest.raises(CorruptDataError, match=str(2**40)):
        list(source.read(splits, ["n"]))


def test_names_that_others_write_otherwise_are_not_pushed_to_them(lake):
    """A schema or a mapping tells of other names."""
    info = lake.table({"plain": "int", "other": "int"})
    with lake.load(info).update_schema() as update:
        update.rename_column("other", "another")
    columns = lake.storage.create_lake_source(info).file_columns()
    assert {name for name, found in columns.items() if not found.named} == {"other"}
    mapping = NameMapping([MappedField(field_id=columns["plain"].field_id, names=["plain", "PLAIN_1"])])
    with lake.load(info).transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})
    assert not lake.storage.create_lake_source(info).file_columns()["plain"].named


def test_fields_that_others_write_otherwise_are_not_found_by_name(lake):
    info = lake.table(
        {"s": "row<a int, b string>", "l": "array<row<a int>>", "m": "map<string, row<a int>>", "p": "row<a int>"}
    )

    def named() -> set[str]:
        columns = lake.storage.create_lake_source(info).file_columns()
        return {name for name, found in columns.items() if found.inner_named}

    with lake.load(info).update_schema() as update:
        update.add_column(("s", "extra"), StringType()).rename_column("p", "q")
    assert named() >= {"s", "l", "m", "p"}
    with lake.load(info).update_schema() as update:
        update.rename_column(("l", "element", "a"), "b")
        update.rename_column(("m", "value", "a"), "b")
        update.rename_column(("q", "a"), "b")
    assert named() & {"s", "l", "m", "p"} == {"s"}
    with lake.load(info).update_schema() as update:
        update.rename_column(("s", "extra"), "B")  # to Spark, that is `b`
    assert named() & {"s", "l", "m", "p"} == set()


def test_what_others_widened_is_not_for_readers_of_the_tables_own_types(lake):
    info = lake.table({"i": "int", "s": "row<a int, b float>", "l": "array<decimal(4,2)>", "n": "int", "t": "tinyint"})

    def widened() -> set[str]:
        columns = lake.storage.create_lake_source(info).file_columns()
        return {name for name, found in columns.items() if not found.own_typed}

    assert widened() == set()
    with lake.load(info).update_schema() as update:
        update.update_column("i", LongType()).update_column(("s", "b"), DoubleType())
    assert widened() == {"i", "s"}
    with lake.load(info).update_schema() as update:
        update.update_column(("l", "element"), DecimalType(9, 2)).rename_column("n", "m").update_column(
            "t", doc="short"
        )
    assert widened() == {"i", "s", "l"}


def test_an_equality_delete_with_keys_beyond_the_type_is_named(lake):
    from tests.unit.lake.foreign import equality_deletes

    info = lake.table({"id": "int not null", "n": "int"}, primary_key=["id"], buckets=1)
    keyed = KeyedLake(lake, info)
    keyed.logs = {0: Changelog(info.schema.arrow_schema, ("id",))}
    keyed.logs[0].upsert({"id": 1, "n": 1})
    keyed.round()
    with lake.load(info).update_schema() as update:
        update.update_column("id", LongType())
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"id": [2**40]})])
    source = lake.storage.create_lake_source(info)
    splits = source.plan(lake.load(info).metadata.current_snapshot_id)
    with pytest.raises(CorruptDataError, match=str(2**40)):
        list(source.read(splits, ["n"]))
