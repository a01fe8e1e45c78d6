"""Damaged previous offsets are rebuilt from the log: a primary-key table stays scannable, with and without a restart."""

import random

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster

PATH = TablePath("db", "keyed")
KEYS = 40


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


DAMAGES = {
    "deleted": None,
    "emptied": lambda _data, _rng: b"",
    "cut": lambda data, rng: data[: rng.randrange(len(data))],
    "flipped": flip,
}


def changelog(cluster: EmbeddedCluster) -> pa.Table:
    return TableReader(cluster.connection, PATH).changelog().to_arrow()


def rows(cluster: EmbeddedCluster, point: ReadPoint) -> list[dict]:
    return TableReader(cluster.connection, PATH).scan(read_point=point).to_arrow().sort_by("k").to_pylist()


@pytest.fixture
def cluster(tmp_path):
    """A primary-key bucket, empty."""
    with EmbeddedCluster(tmp_path / "lab", {"log.segment.file-size": "2kb"}, lake=False) as made:
        made.connection.admin().create_database("db")
        made.connection.admin().create_table(PATH, make_descriptor({"k": "int", "v": "int"}, primary_key=["k"]))
        yield made


def write(cluster: EmbeddedCluster, values: range) -> None:
    with cluster.connection.upsert_writer(PATH) as writer:
        for value in values:
            writer.upsert([{"k": key, "v": value} for key in range(value % 3, KEYS, 2)]).result()
        writer.delete([{"k": key} for key in range(values.start % 7, KEYS, 5)]).result()


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".prev", ".prevcrc"])
def test_previous_offsets_are_rebuilt_in_every_segment(cluster, suffix, damage, restarted):
    """A read at a past point takes rows back by the previous offsets of all that came since."""
    rng = random.Random(f"{suffix} {damage} {restarted}")
    reader = TableReader(cluster.connection, PATH)
    write(cluster, range(4))
    points = [reader.read_point()]
    write(cluster, range(4, 12))
    points.append(reader.read_point())
    expected = [rows(cluster, point) for point in points]
    changes = changelog(cluster)
    folder = next((cluster.folder / "tablet" / "data").glob("t*/b0"))
    damaged = [path for path in sorted(folder.glob(f"*{suffix}")) if path.stat().st_size]
    assert len(damaged) > 2
    for path in damaged:
        if (made := DAMAGES[damage]) is None:
            path.unlink()
        else:
            path.write_bytes(made(path.read_bytes(), rng))
    if restarted:
        cluster.restart()
    assert [rows(cluster, point) for point in points] == expected
    assert changelog(cluster).equals(changes)
    write(cluster, range(12, 14))
    assert [rows(cluster, point) for point in points] == expected


def test_where_the_log_does_not_reach_back_the_error_names_the_file_and_what_to_do(cluster):
    reader = TableReader(cluster.connection, PATH)
    write(cluster, range(6))
    (bucket,) = cluster.tablet()._store.all()
    held = bucket.log
    assert held.drop_before(2**62, held.segments.rolled[0].end_offset) == 1
    for path in next((cluster.folder / "tablet" / "data").glob("t*/b0")).glob("*.prev"):
        path.write_bytes(b"")
    with pytest.raises(
        CorruptDataError, match=r"(?s)\.prev.*rebuilt neither from the log, which begins at \d+.*restore the file"
    ):
        bucket.kv.previous(held.start, held.high_watermark)
    # The table itself goes on.
    write(cluster, range(6, 8))
    assert reader.scan().count() > 0


def test_what_is_copied_to_remote_storage_is_rebuilt_first(tmp_path):
    options = {"log.segment.file-size": "2kb", "remote.log.task-interval-duration": "0s"}
    with EmbeddedCluster(tmp_path / "lab", options, lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        cluster.connection.admin().create_table(PATH, make_descriptor({"k": "int", "v": "int"}, primary_key=["k"]))
        write(cluster, range(6))
        (bucket,) = cluster.tablet()._store.all()
        bucket.log.sync()
        values = bucket.log.reader.previous(bucket.log.start, bucket.log.high_watermark)
        rolled = len(bucket.log.segments.rolled)
        for path in next((cluster.folder / "tablet" / "data").glob("t*/b0")).glob("*.prev"):
            path.write_bytes(b"x" * path.stat().st_size)
        assert cluster.tablet()._remote_task.run() >= rolled
        assert bucket.remote.manifest.end == bucket.log.segments.rolled[-1].end_offset
        assert bucket.log.reader.previous(bucket.log.start, bucket.log.high_watermark) == values
