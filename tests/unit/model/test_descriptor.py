"""Table definitions: what may be, what is refused and how it says so."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab import errors
from fluss_lab.model import DataType, TableDescriptor, TablePath, make_descriptor
from fluss_lab.model.config.options import CLUSTER_OPTIONS, DATALAKE_FRESHNESS, LOG_TTL, check_options
from fluss_lab.model.descriptor import DefinitionCache, TableInfo
from fluss_lab.model.names import RESERVED_COLUMNS, partition_name, partition_values
from fluss_lab.model.schema import with_columns

SCHEMA = {"id": "bigint", "day": "string", "name": "string", "price": "double"}
LAKE = {"table.datalake.enabled": True}


def test_a_definition_survives_its_json_form():
    made = make_descriptor(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string()), ("tags", pa.list_(pa.string()))]),
        partitioned_by=["day"],
        buckets=4,
        bucket_key=["id"],
        properties=LAKE
        | {"iceberg.write.parquet.compression-codec": "zstd", "custom.owner": "me", "table.log.ttl": "1d"},
        comment="flights",
    )
    assert TableDescriptor.from_json(made.to_json()) == made
    assert made.properties["table.datalake.enabled"] == "true"
    assert LOG_TTL.of(made.properties) == 86_400_000
    assert DATALAKE_FRESHNESS.of(made.properties) == 180_000


def test_a_definition_shows_itself_in_a_line():
    wide = make_descriptor(
        {"id": "int", **{f"c{n}": "string" for n in range(200)}}, primary_key=["id"], properties=LAKE
    )
    assert repr(wide) == "<TableDescriptor: primary-key table (id), 201 columns, 1 buckets, in the lake>"
    info = TableInfo(TablePath("db", "t"), 7, 2, make_descriptor(SCHEMA, buckets=3), 0, 0)
    assert repr(info) == "<TableInfo db.t, table id 7, schema id 2: log table, 4 columns, 3 buckets>"


def test_definitions_that_are_kept_are_parsed_once_and_changed_by_nobody():
    made = [replace(make_descriptor(SCHEMA), comment=comment) for comment in ("a", "b", "c" * (1 << 17))]
    texts = [json.dumps(each.to_json()).encode() for each in made]
    kept = DefinitionCache()
    first = [kept.parse(text) for text in texts]
    for descriptor in first:
        descriptor.properties["table.log.ttl"] = "1d"  # as whoever was given it may
    again = [kept.parse(text) for text in texts]
    assert again == made
    assert [one.schema is other.schema for one, other in zip(first, again, strict=True)] == [True, True, False]
    with pytest.raises(errors.InvalidSchemaError):
        kept.parse("{}")


def test_key_and_partition_columns_become_not_null():
    made = make_descriptor(SCHEMA, partitioned_by=["day"], bucket_key=["id"])
    assert [field.nullable for field in made.schema.arrow_schema] == [False, False, True, True]


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "../x", "a" * 129, "ä", "a b", 'a"', "a\x00"])
def test_bad_names_are_refused_everywhere(name):
    with pytest.raises(errors.InvalidNameError):
        make_descriptor({name: "int"})
    with pytest.raises(errors.InvalidNameError):
        TablePath(name, "t")
    with pytest.raises(errors.InvalidNameError):
        TablePath("d", name)


@pytest.mark.parametrize("name", [*sorted(RESERVED_COLUMNS), "_r12", "__OFFSET", "_R1"])
def test_reserved_columns_are_refused(name):
    with pytest.raises(errors.InvalidNameError, match="reserved"):
        make_descriptor({"a": "int", name: "int"})


@pytest.mark.parametrize("name", ["row", "pos", "file_path", "_r", "_r1a", "bucket", "offset"])
def test_ordinary_names_are_not(name):
    assert make_descriptor({name: "int"}).schema.names == [name]


@pytest.mark.parametrize(
    "dtype", ["row<a int, a string>", "row<a int, A int>", "array<row<x int, r map<int, row<b int, B int>>>>"]
)
def test_fields_that_other_readers_take_for_one_are_refused(dtype):
    """Seen: of a table in the lake an error that called itself a defect; where only the case differs, Spark could not read it."""
    with pytest.raises(errors.InvalidSchemaError, match=r"column 's.*field .* appears twice"):
        make_descriptor({"s": dtype})
    with pytest.raises(errors.InvalidSchemaError, match="appears twice"):
        with_columns(make_descriptor({"id": "int"}).schema, [("s", DataType.parse(dtype), None)])
    assert make_descriptor({"s": "row<a int, r row<a int>>", "a": "row<s int>"})


@pytest.mark.parametrize("path", ["t", "a.b.c", "", ".", "a.", ".b", 3, None])
def test_a_path_has_two_names(path):
    with pytest.raises(errors.InvalidNameError):
        TablePath.parse(path)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"buckets": 0}, errors.InvalidBucketsError, "found 0"),
        ({"buckets": 1025}, errors.InvalidBucketsError, r"\[1, 1024\]"),
        ({"buckets": True}, errors.InvalidBucketsError, "whole number"),
        ({"buckets": "4"}, errors.InvalidBucketsError, "whole number"),
        ({"bucket_key": ["nope"]}, errors.InvalidSchemaError, "nope"),
        ({"bucket_key": "id"}, errors.InvalidSchemaError, "list of column names"),
        ({"bucket_key": ["id", "id"]}, errors.InvalidBucketsError, "twice"),
        ({"partitioned_by": ["day"], "bucket_key": ["day"]}, errors.InvalidBucketsError, "partition column"),
        ({"partitioned_by": ["id"]}, errors.InvalidSchemaError, "expected STRING, found BIGINT"),
        ({"partitioned_by": ["day", "day"]}, errors.InvalidSchemaError, "twice"),
        ({"primary_key": ["id"], "partitioned_by": ["day"]}, errors.InvalidSchemaError, "include partition column"),
        ({"primary_key": ["day"], "partitioned_by": ["day"]}, errors.InvalidSchemaError, "not a partition column"),
        ({"primary_key": ["id"], "bucket_key": ["name"]}, errors.InvalidBucketsError, "not in the primary key"),
        ({"properties": {"table.log.tll": "1d"}}, errors.InvalidPropertyError, "did you mean 'table.log.ttl'"),
        ({"properties": {"owner": "me"}}, errors.InvalidPropertyError, "custom."),
        ({"properties": {"table.datalake.enabled": "yes"}}, errors.InvalidPropertyError, "true or false, found 'yes'"),
        ({"properties": {"table.log.ttl": "soon"}}, errors.InvalidPropertyError, "duration"),
        ({"properties": {"table.log.ttl": -1}}, errors.InvalidPropertyError, "duration"),
        ({"properties": {"table.datalake.format": "paimon", "tin.x": "y"}}, errors.InvalidPropertyError, "tin.x"),
        ({"properties": {"table.datalake.format": "table", "table.x": "y"}}, errors.InvalidPropertyError, "table.x"),
        ({"properties": {"table.datalake.format": "tin", "tin.": "y"}}, errors.InvalidPropertyError, "'tin.'"),
        ({"properties": {"iceberg.": "x"}}, errors.InvalidPropertyError, "iceberg"),
        ({"properties": {"iceberg.x": None}}, errors.InvalidPropertyError, "None"),
        ({"properties": {"custom.x": "y" * 5000}}, errors.InvalidPropertyError, "4096"),
        ({"comment": 3}, errors.InvalidSchemaError, "comment"),
    ],
)
def test_bad_definitions_say_what_is_wrong(arguments, error, says):
    with pytest.raises(error, match=says):
        make_descriptor(SCHEMA, **arguments)


def test_a_lake_formats_own_properties_are_free_where_it_is_named():
    properties = {"table.datalake.format": "tin", "tin.x": 5, "iceberg.y": "z", "custom.w": "v"}
    assert make_descriptor(SCHEMA, properties=properties).properties["tin.x"] == "5"


def test_columns_must_be_unique_in_any_case():
    with pytest.raises(errors.InvalidSchemaError, match="twice"):
        make_descriptor({"Id": "int", "id": "int"})
    with pytest.raises(errors.InvalidSchemaError, match="twice"):
        make_descriptor(pa.schema([("a", pa.int32()), ("a", pa.int32())]))
    with pytest.raises(errors.InvalidSchemaError):
        make_descriptor({})


@pytest.mark.parametrize(
    ("key", "types", "bucketing"),
    [
        ([], SCHEMA, "none"),
        (["id"], SCHEMA, "iceberg"),
        (["name"], SCHEMA, "iceberg"),
        (["id", "name"], SCHEMA, "fluss"),
        (["price"], SCHEMA, "fluss"),
        (["flag"], {"flag": "boolean", "x": "int"}, "fluss"),
    ],
)
def test_the_key_alone_decides_the_hash(key, types, bucketing):
    """Cases 1 and 3 of the FIP; case 2 (lake-enabled with a key Iceberg cannot bucket by) is refused."""
    assert make_descriptor(types, bucket_key=key).bucketing == bucketing
    if bucketing == "fluss":
        with pytest.raises(errors.UnsupportedError, match="bucket"):
            make_descriptor(types, bucket_key=key, properties=LAKE)
    else:
        assert make_descriptor(types, bucket_key=key, properties=LAKE).lake_enabled


@pytest.mark.parametrize(
    "text", ["timestamp(9)", "time(9)", "timestamp_ltz(9)", "array<timestamp(9)>", "row<a time(7)>"]
)
def test_the_lake_holds_no_nanoseconds(text):
    make_descriptor({"t": text})
    with pytest.raises(errors.UnsupportedError, match="microseconds"):
        make_descriptor({"t": text}, properties=LAKE)


def test_partition_names_keep_values_apart():
    assert partition_values(partition_name(("2013", "a b/ä"))) == ("2013", "a b/ä")
    for bad in ("", "a$b", "x\ny", "y" * 256, None, 3):
        with pytest.raises(errors.InvalidPartitionError):
            partition_name((bad,))


def test_cluster_options_are_checked():
    check_options({"log.segment.file-size": "64mb"}, CLUSTER_OPTIONS, "option")
    with pytest.raises(errors.InvalidPropertyError, match="unknown option"):
        check_options({"log.segment.size": "64mb"}, CLUSTER_OPTIONS, "option")
    with pytest.raises(errors.InvalidPropertyError, match="at least 1024"):
        check_options({"log.segment.file-size": "1b"}, CLUSTER_OPTIONS, "option")
