"""Locations of the lake's files: here or in a store, the same file in every spelling, and what lies in a folder."""

import os
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.lake.iceberg.files.file_locations import arrow_place, file_key, files_below, local_path


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:///a/b c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("/a/b", "/a/b"),
        ("file:///a%20b", "/a%20b"),
        ("s3://bucket/a", None),
        ("s3a://bucket/a", None),
        ("gs://bucket/a", None),
        ("abfss://box@account.dfs.core.windows.net/a", None),
        ("hdfs://host:1/a", None),
    ],
)
def test_where_a_location_is(location, path):
    found = local_path(location)
    assert found == (None if path is None else Path(path))
    # As the warehouse of a lake.
    storage = IcebergLakeStorage({"type": "sql", "uri": "sqlite:////c.db", "warehouse": location})
    assert storage.local_folder == found


def test_a_file_is_the_same_however_it_is_spelled():
    assert len({file_key(each, {}) for each in ("file:/x/y", "file:///x/y", "/x/y", "/x/y/")}) == 1
    assert file_key("s3://b/x", {}) == file_key("s3a://b/x", {}) != file_key("s3://c/x", {})


def test_what_lies_in_a_folder(tmp_path):
    io = load_file_io({}, f"file://{tmp_path}/a b")
    assert list(files_below(io, f"file://{tmp_path}/a b")) == []
    for name in ("a b/x.parquet", "a b/deep/er/y.avro", "elsewhere/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (1000, 1000))
    found = sorted(files_below(io, f"file://{tmp_path}/a b"), key=lambda each: each.location)
    assert [each.location for each in found] == [
        f"file://{tmp_path}/a b/deep/er/y.avro",
        f"file://{tmp_path}/a b/x.parquet",
    ]
    assert {each.modified_ms for each in found} == {1_000_000}


def test_only_arrows_own_access_has_a_place(tmp_path):
    assert arrow_place(object(), "s3://b/x") is None
    place = arrow_place(load_file_io({}, "file:///x"), f"file://{tmp_path}/x")
    assert place is not None
    assert place[1] == f"{tmp_path}/x"
