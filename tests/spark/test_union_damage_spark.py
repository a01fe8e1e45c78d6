"""Damaged files of the lake are refused by Spark's reads, whatever the session is told to pass over."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

from fluss_lab import failpoints
from fluss_lab.errors import CorruptDataError
from fluss_lab.spark.source.parquet_frame import parquet_frame
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.testing import EmbeddedCluster
from tests.readers import foreign
from tests.readers.audit import load_table
from tests.unit.read.kit import BUCKETS, OPTIONS, ModelTable

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock):
    with EmbeddedCluster(tmp_path_factory.mktemp("damaged"), options=OPTIONS, clock=clock) as running:
        yield running


@pytest.fixture(scope="module")
def damageable(cluster, clock):
    """A table with all of its rows in the lake, and one of its files."""
    table = ModelTable(cluster, clock, "damageable", partitioned=False)
    table.append_random(random.Random(7), 60, ["2013-01"])
    table.tier()
    (split, *_) = table.reader().scan().plan().parts[0].splits
    return table, Path(split.path.removeprefix("file://"))


def _flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data + b"\0",
        lambda data: data[:4] + b"\0" + data[4:],
        lambda data: _flipped(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little") // 2),
        None,
        ...,
    ],
    ids=["emptied", "cut", "longer", "longer before its footer", "another footer", "gone", "another bucket's"],
)
def test_a_file_that_is_not_what_was_written_is_refused_before_spark_opens_it(spark, damageable, damage):
    """Spark itself leaves an empty file out, and believes a footer."""
    table, path = damageable
    data = path.read_bytes()
    if damage is None:
        path.unlink()
    elif damage is ...:
        other = table.reader().scan().plan().parts[1].splits[0].path.removeprefix("file://")
        assert Path(other).stat().st_size != len(data)
        path.write_bytes(Path(other).read_bytes())
    else:
        path.write_bytes(damage(data))
    try:
        with pytest.raises(CorruptDataError, match=path.name):
            scan_to_spark(spark, table.reader().scan())
        with pytest.raises(CorruptDataError, match=path.name):
            changelog_to_spark(spark, table.reader().changelog("earliest"))
    finally:
        path.write_bytes(data)


def test_a_file_of_which_a_part_is_read_is_looked_at_too(spark, damageable):
    table, path = damageable
    data = path.read_bytes()
    log = table.reader().changelog(dict.fromkeys(range(BUCKETS), 1))
    assert changelog_to_spark(spark, log).count() == 60 - BUCKETS
    path.write_bytes(b"")
    try:
        with pytest.raises(CorruptDataError, match=path.name):
            changelog_to_spark(spark, log)
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("damage", ["gone", "a folder"])
def test_a_file_that_goes_while_spark_looks_for_it_is_not_left_out(spark, damageable, damage):
    """Spark looks twice: what the first look found and the second did not is no file to it, as is a folder without any."""
    table, path = damageable
    scan = table.reader().scan()
    splits = [split for part in scan.plan().parts for split in part.splits]
    schema = spark.createDataFrame([], "id int").schema
    assert parquet_frame(spark, scan.source, splits, schema).count() == 60
    aside = path.with_suffix(".aside")
    path.rename(aside)
    if damage == "a folder":
        path.mkdir()
    try:
        with pytest.raises(CorruptDataError, match=path.name):
            parquet_frame(spark, scan.source, splits, schema)
    finally:
        if damage == "a folder":
            path.rmdir()
        aside.rename(path)


@pytest.mark.parametrize("read", ["scan", "changelog"])
def test_files_that_are_replaced_while_spark_looks_for_them_are_read_in_their_new_places(spark, cluster, clock, read):
    table = ModelTable(cluster, clock, f"moving_{read}", partitioned=False)
    for seed in (1, 2):
        table.append_random(random.Random(seed), 30, ["2013-01"])
        table.tier()
    reader = table.reader()
    files = [Path(split.path.removeprefix("file://")) for part in reader.scan().plan().parts for split in part.splits]

    def replace_files():
        foreign.compact(load_table(cluster.connection, table.path), random.Random(0))
        table.append_random(random.Random(3), 10, ["2013-01"])
        table.tier()
        lake = load_table(cluster.connection, table.path)
        old = [each.snapshot_id for each in lake.snapshots() if each.snapshot_id != lake.metadata.current_snapshot_id]
        lake.maintenance.expire_snapshots().by_ids(old).commit()
        for file in files:
            file.unlink()

    failpoints.arm("spark.files.before", replace_files)
    try:
        if read == "scan":
            frame = scan_to_spark(spark, reader.scan())
        else:
            frame = changelog_to_spark(spark, reader.changelog("earliest", "latest"))
    finally:
        failpoints.disarm("spark.files.before")
    assert not any(file.exists() for file in files)
    assert frame.count() == 60


def test_a_page_that_is_not_what_was_written_is_refused_by_spark_s_reader(spark, damageable):
    table, path = damageable
    data, frame = path.read_bytes(), scan_to_spark(spark, table.reader().scan())
    chunk = pq.read_metadata(path).row_group(0).column(0)
    path.write_bytes(_flipped(data, chunk.data_page_offset + chunk.total_compressed_size - 1))
    try:
        with pytest.raises(Py4JJavaError, match=rf"FAILED_READ_FILE.*{path.name}"):
            frame.select("id").collect()
    finally:
        path.write_bytes(data)
    assert frame.count() == 60


def test_a_session_that_passes_over_damage_does_not_do_so_here(spark, damageable):
    table, path = damageable
    data, settings = path.read_bytes(), ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for name in settings:
        spark.conf.set(name, "true")
    try:
        frame = scan_to_spark(spark, table.reader().scan())
        path.write_bytes(data[:100])
        with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
            frame.collect()
        path.unlink()
        with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
            frame.collect()
    finally:
        path.write_bytes(data)
        for name in settings:
            spark.conf.unset(name)
