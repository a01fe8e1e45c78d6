"""A sink's notes, damaged: what they say is as it was written, or refused; no batch is taken for one that was written."""

import dataclasses

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.model import TableBucket
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.sink.sink_journal import Intent, IntentBucket, SendPosition, SinkFolder, SinkState
from fluss_lab.testing import EmbeddedCluster
from tests.damage.damages import flipped_bits
from tests.unit.spark.sink.sink_kit import Sink

BUCKETS = (TableBucket(3, None, 0), TableBucket(3, 7, 1))
STATE = SinkState(3, "a query", 41, {each: (12, 40 + each.bucket) for each in BUCKETS}, 1_000, "ab12", 11)
INTENT = Intent(
    42,
    1,
    None,
    (("42-0", 800),),
    tuple(IntentBucket(each, None, 12, 41, 900, ((0, 0, 10), (0, 1, 5))) for each in BUCKETS),
    3,
    1_000,
    "cd34",
)
POSITIONS = [SendPosition(1, 3, 0, 12, 44, 910), SendPosition(0, 0, 0, 12, 41, 900)]
SCHEMA = T.StructType([T.StructField("id", T.IntegerType())])


def _written(tmp_path):
    folder = SinkFolder(tmp_path / "sink")
    folder.make()
    folder.write_state(STATE)
    folder.write_intent(INTENT)
    folder.write_positions(INTENT, POSITIONS)
    reads = {
        "sink.json": folder.state, "intent.json": lambda: folder.intent(3), "progress.json": lambda: folder.positions(INTENT),
    }  # fmt: skip
    return folder, reads


def _read(read):
    """Return what is read; None when it is refused."""
    try:
        return read()
    except FlussError:
        return None


@pytest.mark.parametrize("name", ["sink.json", "intent.json", "progress.json"])
def test_a_flipped_bit_in_a_sink_s_notes_is_refused_or_means_nothing(tmp_path, name):
    folder, reads = _written(tmp_path)
    path, read = folder.path / name, reads[name]
    data, truth = path.read_bytes(), read()
    refused = 0
    for changed in flipped_bits(data):
        path.write_bytes(changed)
        if (found := _read(read)) is None:
            refused += 1
        else:
            assert found == truth, changed
    assert refused > 4 * len(data)


@pytest.mark.parametrize("name", ["sink.json", "intent.json", "progress.json"])
@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 1}', '{"version": 1, "buckets": 3, "writers": [1], "table_id": 1}']
)
def test_what_no_sink_wrote_is_named(tmp_path, name, text):
    folder, reads = _written(tmp_path)
    (folder.path / name).write_text(text)
    with pytest.raises(CorruptDataError, match=rf"{name}: .*not what a sink wrote.*restore the folder"):
        reads[name]()


def test_notes_of_before_checksums_are_read(tmp_path):
    folder, reads = _written(tmp_path)
    text = (folder.path / "sink.json").read_text()
    start = text.index(',\n "crc"')
    (folder.path / "sink.json").write_text(text[:start] + "\n}\n")
    assert reads["sink.json"]() == dataclasses.replace(STATE)


def test_without_notes_of_the_batches_before_none_is_written(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        sink = Sink(cluster, tmp_path / "checkpoint", schema=SCHEMA, columns={"id": "int"})
        for batch_id in range(3):
            if batch_id == 2:
                (tmp_path / "checkpoint" / "_fluss_sink" / "sink.json").unlink()
                with pytest.raises(CorruptDataError, match="notes of the batches before batch 2"):
                    sink.run(batch_id, [[pa.record_batch({"id": pa.array([batch_id], pa.int32())})]])
            else:
                sink.run(batch_id, [[pa.record_batch({"id": pa.array([batch_id], pa.int32())})]])
        assert sorted(row["id"] for row in _rows(cluster, sink)) == [0, 1]


def _rows(cluster, sink):
    return TableReader(cluster.connection, sink.path).scan().to_arrow().to_pylist()
