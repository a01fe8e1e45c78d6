"""Options that must fit the table: merge engines, automatic partitions; limits; columns added."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from fluss_lab.errors import (
    FlussError,
    InvalidNameError,
    InvalidPartitionError,
    InvalidPropertyError,
    InvalidSchemaError,
)
from fluss_lab.model import DataType, make_descriptor
from fluss_lab.model.auto_partition import PRECREATE_MAX, AutoPartition
from fluss_lab.model.schema import COLUMNS_MAX, make_schema, with_columns

COLUMNS = {"id": "bigint", "v": "int", "t": "timestamp(3)", "l": "timestamp_ltz", "s": "string", "d": "double"}
ENGINE, VERSION, DELETES = "table.merge-engine", "table.merge-engine.versioned.ver-column", "table.delete.behavior"
AUTO = "table.auto-partition."


def keyed(**properties):
    return make_descriptor(COLUMNS, primary_key=["id"], properties=properties)


# -- merge engines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["v", "id", "t", "l"])
def test_a_version_may_be_a_number_or_a_timestamp(column):
    assert keyed(**{ENGINE: "versioned", VERSION: column}).properties[VERSION] == column


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({ENGINE: "versioned"}, "expected a column with"),
        ({ENGINE: "versioned", VERSION: "x"}, "expected one of the columns id, v"),
        ({ENGINE: "versioned", VERSION: "s"}, "'s' of type STRING"),
        ({ENGINE: "versioned", VERSION: "d"}, "'d' of type DOUBLE"),
        ({VERSION: "v"}, "it is for table.merge-engine=versioned, found default"),
        ({ENGINE: "first_row", VERSION: "v"}, "found first_row"),
        ({ENGINE: "aggregation"}, "expected one of default, first_row, versioned"),
        ({ENGINE: "first_row", DELETES: "allow"}, "expected ignore or disable"),
        ({ENGINE: "versioned", VERSION: "v", DELETES: "allow"}, "expected ignore or disable"),
        ({DELETES: "perhaps"}, "expected one of"),
    ],
)
def test_merge_options_that_do_not_fit(properties, text):
    with pytest.raises(InvalidPropertyError, match=text):
        keyed(**properties)


@pytest.mark.parametrize("engine", ["default", "first_row", "versioned"])
@pytest.mark.parametrize("deletes", ["ignore", "disable"])
def test_deletes_may_be_ignored_or_refused_with_any_engine(engine, deletes):
    version = {VERSION: "v"} if engine == "versioned" else {}
    keyed(**{ENGINE: engine, DELETES: deletes}, **version)
    keyed(**{DELETES: "allow"})


@pytest.mark.parametrize("properties", [{ENGINE: "default"}, {VERSION: "v"}, {DELETES: "ignore"}])
def test_merge_options_are_for_primary_key_tables(properties):
    with pytest.raises(InvalidPropertyError, match="for primary-key tables"):
        make_descriptor(COLUMNS, properties=properties)


# -- automatic partitions ------------------------------------------------------------------------------------------------


def automatic(partitioned_by=("p",), **options):
    properties = {AUTO + "enabled": True, **{AUTO + key.replace("_", "-"): value for key, value in options.items()}}
    descriptor = make_descriptor(
        {"a": "bigint", "p": "string", "q": "string"}, partitioned_by=partitioned_by, properties=properties
    )
    return AutoPartition.of(descriptor.partitioned_by, descriptor.properties)


def ms(text, zone="UTC"):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("hour", ["2024123123", "2025010100", "2025010101"]),
        ("day", ["20241231", "20250101", "20250102"]),
        ("month", ["202412", "202501", "202502"]),
        ("quarter", ["20244", "20251", "20252"]),
        ("year", ["2024", "2025", "2026"]),
    ],
)
def test_partitions_are_called_after_their_time(unit, names):
    auto = automatic(time_unit=unit, num_precreate=3, num_retention=2)
    now = ms("2024-12-31T23:59:59.999")
    assert auto.wanted_partitions(now) == names
    assert [auto.value_at(now, ahead) for ahead in (1, 2)] == names[1:]
    assert auto.earliest(ms("2025-01-01T00:00")) == auto.value_at(ms("2025-01-01T00:00"), -2)
    assert all(auto.is_time(name) for name in names)


def test_a_day_is_the_zones_day():
    now = ms("2025-03-01T05:30")
    assert automatic(time_zone="America/New_York").wanted_partitions(now) == ["20250301", "20250302"]
    assert automatic(time_zone="Pacific/Honolulu").wanted_partitions(now) == ["20250228", "20250301"]
    assert automatic(time_zone="Asia/Kolkata", time_unit="hour", num_precreate=1).wanted_partitions(now) == [
        "2025030111"
    ]


def test_hours_when_the_clocks_change():
    auto = automatic(time_zone="Europe/Berlin", time_unit="hour", num_precreate=4)
    # 01:30 on the last Sunday of March: the hour from 2 to 3 does not exist.
    assert auto.wanted_partitions(ms("2025-03-30T01:30", "Europe/Berlin")) == [
        "2025033001",
        "2025033003",
        "2025033004",
        "2025033005",
    ]
    # 01:30 on the last Sunday of October: the hour from 2 to 3 comes twice, and is one partition.
    assert auto.wanted_partitions(ms("2025-10-26T01:30", "Europe/Berlin")) == ["2025102601", "2025102602", "2025102603"]


def test_names_sort_by_time_and_none_is_left_out(seed):
    """From one partition on, each next one is greater, and the one just before it is the present one a moment earlier."""
    rng = random.Random(seed)
    for _ in range(200):
        unit = rng.choice(["hour", "day", "month", "quarter", "year"])
        zone = rng.choice(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe"])
        auto = automatic(time_unit=unit, time_zone=zone, num_precreate=30)
        moment = datetime(1990, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(60 * 365 * 86_400))
        names = auto.wanted_partitions(int(moment.timestamp() * 1000))
        assert names == sorted(set(names)), (unit, zone, moment)
        assert all(auto.is_time(name) for name in names)


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        ("hour", ["20250101", "2025010124", "2025023000", "202501010", "abcdefghij", ""]),
        ("day", ["2025013", "20250229", "20251301", "2025-1-1", "٢٠٢٥٠١٠١", "00000101", "20250100"]),
        ("month", ["202513", "202500", "2025", "2025 1"]),
        ("quarter", ["20250", "20255", "2025", "0000 1", "00001"]),
        ("year", ["0000", "25", "+025", "20255"]),
    ],
)
def test_values_that_are_no_time(unit, values):
    auto = automatic(time_unit=unit, num_retention=-1)
    for value in values:
        assert not auto.is_time(value)
        with pytest.raises(InvalidPartitionError, match=f"expected a {unit}"):
            auto.check(value, ms("2025-05-05T00:00"))


def test_what_is_past_keeping_is_refused_and_dropped():
    auto, now = automatic(num_retention=2), ms("2025-05-08T12:00")
    assert auto.earliest(now) == "20250506"
    assert [name for name in ("20250505", "20250506", "20250507", "20250601", "other") if auto.is_past(name, now)] == [
        "20250505"
    ]
    auto.check("20250506", now)
    with pytest.raises(InvalidPartitionError, match=r"'20250505' is out of date: .* from '20250506' on"):
        auto.check("20250505", now)
    everything = automatic(num_retention=-1)
    assert everything.earliest(now) is None
    everything.check("19700101", now)
    assert automatic(num_retention=0).earliest(now) == "20250508"
    assert automatic(num_retention=10**9).earliest(now) is None


def test_with_several_columns_one_holds_the_time():
    auto, now = automatic(("p", "q"), key="q"), ms("2025-05-08T12:00")
    assert auto.wanted_partitions(now) == []
    assert auto.is_past("x$20250101", now)
    assert not auto.is_past("20250101$20250508", now)
    auto.check("anything$20250508", now)
    with pytest.raises(InvalidPartitionError):
        auto.check("20250508$anything", now)


def test_the_end_of_time_is_no_error():
    auto = automatic(time_unit="year", num_precreate=5)
    assert auto.wanted_partitions(ms("9998-06-01T00:00")) == ["9998", "9999"]


@pytest.mark.parametrize(
    ("partitioned_by", "options", "text"),
    [
        ([], {}, "the table is not partitioned"),
        (["p"], {"key": "q"}, r"expected one of the partition columns \['p'\], found 'q'"),
        (["p"], {"time_zone": "Mars/Olympus"}, "expected a time zone"),
        (["p"], {"time_zone": "../../etc/passwd"}, "expected a time zone"),
        (["p"], {"time_zone": "America"}, "expected a time zone"),
        (["p"], {"time_zone": ""}, "expected a time zone"),
        (["p"], {"time_unit": "week"}, "expected one of hour"),
        (["p"], {"num_precreate": -1}, "expected at least 0"),
        (["p"], {"num_precreate": PRECREATE_MAX + 1}, "expected at most"),
        (["p"], {"num_retention": -2}, "expected at least -1"),
        (["p", "q"], {}, "must be said"),
        (["p", "q"], {"key": "p", "num_precreate": 1}, "expected 0 or none"),
    ],
)
def test_automatic_partitions_that_do_not_fit(partitioned_by, options, text):
    with pytest.raises(InvalidPropertyError, match=text):
        automatic(partitioned_by, **options)


def test_a_table_follows_the_clock_only_if_it_is_to():
    assert AutoPartition.of(("p",), {}) is None
    assert AutoPartition.of((), {AUTO + "enabled": "true"}) is None


# -- limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        {"schema": {f"c{n}": "int" for n in range(COLUMNS_MAX + 1)}},
        {"schema": {"a": "array<" * 20 + "int" + ">" * 20}},
        {"schema": {f"p{n}": "string" for n in range(18)}, "partitioned_by": [f"p{n}" for n in range(17)]},
        {"schema": {"a" * 129: "int"}},
        {"schema": {"a": "int"}, "comment": "x" * 5000},
        {"schema": {"a": "int"}, "properties": {f"custom.{n}": "x" * 4000 for n in range(300)}},
        {"schema": {"a": "row<" + ", ".join(f"{'f' * 100}{n} int" for n in range(10_000)) + ">"}},
    ],
    ids=["columns", "nesting", "partition columns", "name", "comment", "properties", "fields"],
)
def test_definitions_beyond_the_limits_are_refused(definition):
    with pytest.raises(FlussError):
        make_descriptor(definition.pop("schema"), **definition)


def test_the_widest_table_is_allowed():
    assert (
        len(make_descriptor({f"{'c' * 100}{n}": "decimal(38, 10)" for n in range(COLUMNS_MAX)}).schema.columns) == 2000
    )


@pytest.mark.parametrize(
    "value",
    [
        {
            "type": "ARRAY",
            "element_type": {"type": "ROW", "fields": [{"name": "a b", "field_type": {"type": "INTEGER"}}]},
        },
        {"type": "ROW", "fields": [{"name": 3, "field_type": {"type": "INTEGER"}}]},
        {"type": "DECIMAL", "precision": "ten"},
        {"type": "INTEGER", "length": None},
        {},
        [],
    ],
)
def test_types_in_json_that_are_none(value):
    with pytest.raises(FlussError):
        DataType.from_json(value)


def test_a_type_in_json_that_nests_too_deeply():
    value = {"type": "INTEGER"}
    for _ in range(5000):
        value = {"type": "ARRAY", "element_type": value}
    with pytest.raises(InvalidSchemaError, match="deeper than 16"):
        DataType.from_json(value)


# -- columns added -------------------------------------------------------------------------------------------------------

BASE = make_schema({"id": "bigint", "name": "string"}, ["id"])


def test_columns_are_added_at_the_end_under_new_ids():
    wider = with_columns(
        BASE, [("note", DataType.parse("string"), "what"), ("tags", DataType.parse("array<int>"), None)]
    )
    assert [(c.name, str(c.type), c.column_id, c.comment) for c in wider.columns] == [
        ("id", "BIGINT NOT NULL", 1, None), ("name", "STRING", 2, None), ("note", "STRING", 3, "what"),
        ("tags", "ARRAY<INT>", 4, None),
    ]  # fmt: skip
    assert wider.primary_key == ("id",)
    assert with_columns(BASE, []) == BASE


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        (("NAME", "int", None), InvalidSchemaError, "appears twice"),
        (("x", "int not null", None), InvalidSchemaError, "expected a nullable type"),
        (("__offset", "bigint", None), InvalidNameError, "reserved"),
        (("_r12", "bigint", None), InvalidNameError, "reserved"),
        (("a b", "bigint", None), InvalidNameError, "a b"),
        (("", "bigint", None), InvalidNameError, "column name"),
        (("x", "bigint", "c" * 5000), InvalidSchemaError, "comment of column 'x'"),
        (("x", "bigint", 7), InvalidSchemaError, "comment of column 'x'"),
    ],
)
def test_columns_that_cannot_be_added(column, kind, text):
    name, dtype, comment = column
    with pytest.raises(kind, match=text):
        with_columns(BASE, [(name, DataType.parse(dtype), comment)])


def test_no_more_columns_than_a_table_may_have():
    text = DataType.parse("string")
    full = with_columns(BASE, [(f"c{n}", text, None) for n in range(COLUMNS_MAX - 2)])
    with pytest.raises(InvalidSchemaError, match="found 2001 with the new ones"):
        with_columns(full, [("more", text, None)])
    with pytest.raises(InvalidSchemaError, match="appears twice"):
        with_columns(BASE, [("x", text, None), ("X", text, None)])
