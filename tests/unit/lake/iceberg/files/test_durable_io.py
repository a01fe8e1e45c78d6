"""What writing the lake's files asks of a store: one request a small file, and nothing there that was not completed."""

import pickle

import pyarrow as pa
import pytest
from pyarrow.fs import S3FileSystem
from pyiceberg.io import load_file_io

from fluss_lab.errors import AuthenticationError, ServerUnavailableError, StorageError
from fluss_lab.lake.iceberg.files.file_locations import arrow_place
from fluss_lab.lake.iceberg.files.store_probe import try_store
from fluss_lab.lake.iceberg.table.catalog_access import DURABLE_IO
from tests.unit.lake.conftest import Lake, records
from tests.unit.storage.s3_server import BUCKET, s3_server

PLACE = f"s3://{BUCKET}/wh/file"
#: A part of an upload in Arrow.
PART_BYTES = 10 * 1024 * 1024


@pytest.fixture
def store():
    with s3_server() as found:
        yield found


def properties(store, **more: str) -> dict[str, str]:
    return {
        "s3.endpoint": store.endpoint, "s3.access-key-id": "lab", "s3.secret-access-key": "hidden-secret",
        "s3.region": "us-east-1", "py-io-impl": DURABLE_IO, **more,
    }  # fmt: skip


def written(io, size: int) -> None:
    with io.new_output(PLACE).create(overwrite=True) as stream:
        stream.write(b"x" * size)


@pytest.mark.parametrize("size", [0, 1, 3_000_000, PART_BYTES - 1])
def test_a_small_file_is_one_request(store, size):
    written(load_file_io(properties(store)), size)
    assert store.requests == [("PUT", "wh/file")]
    assert store.objects == {"wh/file": b"x" * size}


def test_a_large_file_is_uploaded_in_parts(store):
    written(load_file_io(properties(store)), PART_BYTES + 7)
    assert store.objects == {"wh/file": b"x" * (PART_BYTES + 7)}
    assert {store.count(method) for method in ("PUT", "POST")} == {2}


def test_access_that_was_sent_to_a_task_writes_as_here(store):
    written(pickle.loads(pickle.dumps(load_file_io(properties(store)))), 10)
    assert store.requests == [("PUT", "wh/file")]


def test_all_that_describes_a_store_is_kept(store):
    chosen = {
        "s3.endpoint": "http://127.0.0.1:1", "s3.session-token": "t", "s3.region": "eu-west-3", "s3.connect-timeout": "2.5",
        "s3.request-timeout": "7.0", "s3.proxy-uri": "http://127.0.0.1:3", "s3.force-virtual-addressing": "true",
    }  # fmt: skip
    plain = properties(store, **chosen, **{"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})
    before, after = (
        arrow_place(load_file_io(each), PLACE)[0].__reduce__()[1][0]
        for each in (plain, {**plain, "py-io-impl": DURABLE_IO})
    )
    assert after == {**before, "allow_delayed_open": True}
    assert (after["session_token"], after["region"], after["connect_timeout"]) == ("t", "eu-west-3", 2.5)


def test_a_strategy_of_retries_is_kept(store):
    io = load_file_io(properties(store, **{"s3.retry-strategy-impl": "pyarrow.fs.AwsDefaultS3RetryStrategy"}))
    assert isinstance(arrow_place(io, PLACE)[0], S3FileSystem)
    written(io, 10)
    assert store.objects == {"wh/file": b"x" * 10}


@pytest.mark.parametrize("size", [10, PART_BYTES + 7])
def test_a_refused_file_is_an_error_as_it_is_closed(store, size):
    io = load_file_io(properties(store))
    with store.failing(403), pytest.raises(AuthenticationError, match="ACCESS_DENIED") as caught:
        written(io, size)
    assert f"{PLACE} at {store.endpoint}" in str(caught.value)
    assert store.objects == {}


def test_a_trial_asks_for_a_write_a_read_and_a_deletion(store):
    try_store(load_file_io(properties(store)), f"s3://{BUCKET}/wh")
    # Arrow keeps the folder of what it deletes.
    assert set(store.objects) <= {"wh/"}
    name = r"/\.fluss-lab-trial-"
    assert [store.count(method, name) for method in ("PUT", "POST", "DELETE")] == [1, 0, 1]


# -- a table ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(store, tmp_path):
    return Lake(tmp_path, **properties(store, warehouse=f"s3://{BUCKET}/wh"))


def test_a_commit_writes_each_file_by_one_request_and_asks_for_none(store, lake):
    table = lake.table({"id": "bigint"})
    lake.append(table, pa.record_batch({"id": [1, 2]}), 0)
    store.requests.clear()
    result = lake.write(table, records(pa.record_batch({"id": [3]}), 2))
    assert [method for method, _ in store.requests] == ["PUT"]
    store.requests.clear()
    snapshot_id = lake.commit(table, result)
    # A manifest, the list of manifests, and the table's metadata, which has no server here that writes it.
    assert (store.count("PUT", r"\.avro$"), store.count("PUT", r"\.json$"), store.count("POST")) == (2, 1, 0)
    assert store.count("HEAD", r"\.json$") == 0
    assert lake.rows(table, snapshot_id).column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("status", "kind", "pattern"),
    [
        (403, AuthenticationError, r"\.avro$"),
        (403, AuthenticationError, r"\.json$"),
        (507, StorageError, r"\.json$"),
        (502, ServerUnavailableError, r"\.json$"),
    ],
)
def test_metadata_that_the_store_does_not_take_was_certainly_not_committed(store, lake, status, kind, pattern):
    table = lake.table({"id": "bigint"})
    before = lake.append(table, pa.record_batch({"id": [1]}), 0)
    result = lake.write(table, records(pa.record_batch({"id": [2]}), 1))
    with store.failing(status, "PUT", pattern), pytest.raises(kind, match="nothing of it was committed") as caught:
        lake.commit(table, result)
    assert all(each in str(caught.value) for each in (store.endpoint, f"s3://{BUCKET}/wh/"))
    assert caught.value.retriable is (status == 502)
    assert lake.load(table).metadata.current_snapshot_id == before
    assert lake.rows(table, lake.commit(table, result)).column("id").to_pylist() == [1, 2]


def test_a_data_file_that_the_store_refuses_is_an_error_of_the_writer(store, lake):
    table = lake.table({"id": "bigint"})
    there = set(store.objects)
    with (
        store.failing(403, "PUT", r"\.parquet$"),
        pytest.raises(AuthenticationError, match="nothing of it was committed"),
    ):
        lake.write(table, records(pa.record_batch({"id": [1]}), 0))
    assert set(store.objects) == there


def test_a_writer_that_is_given_up_leaves_nothing(store, lake):
    table = lake.table({"id": "bigint"})
    there = set(store.objects)
    writer = lake.writer(table)
    writer.write(records(pa.record_batch({"id": [1]}), 0))
    writer.abort()
    assert set(store.objects) == there
