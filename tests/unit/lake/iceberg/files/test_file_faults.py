"""What is said of the lake's files in a store that refuses them, is away, or has lost them: endpoint, bucket, key, no secret."""

import pyarrow as pa
import pytest

from fluss_lab.errors import AuthenticationError, CorruptDataError, FlussError, ServerUnavailableError, StorageError
from fluss_lab.lake.iceberg.files.file_faults import file_title, reading_fault
from fluss_lab.lake.iceberg.table.catalog_access import DURABLE_IO
from tests.unit.lake.conftest import Lake
from tests.unit.storage.s3_server import BUCKET, s3_server

LOCATION = f"s3://{BUCKET}/wh/file.parquet"


@pytest.fixture
def store():
    with s3_server() as found:
        yield found


@pytest.fixture
def lake(store, tmp_path):
    return Lake(
        tmp_path, warehouse=f"s3://{BUCKET}/wh", **{
            "s3.endpoint": store.endpoint, "s3.access-key-id": "lab", "s3.secret-access-key": "hidden-secret",
            "s3.region": "us-east-1", "py-io-impl": DURABLE_IO,
        },
    )  # fmt: skip


@pytest.fixture
def table(lake):
    found = lake.table({"id": "bigint"})
    lake.append(found, pa.record_batch({"id": [1, 2]}), 0)
    return found


def reading(lake, table):
    """Read a table as one who knows nothing of it yet."""
    again = Lake(lake.folder, **lake.properties)
    return again.rows(table, again.load(table).metadata.current_snapshot_id)


def test_files_of_a_bucket_that_is_gone_are_not_damaged(store, lake, table):
    store.bucket = "another"
    with pytest.raises(StorageError, match=rf"the store has no such bucket: '{BUCKET}'; make it") as caught:
        reading(lake, table)
    assert not isinstance(caught.value, CorruptDataError)
    assert store.endpoint in str(caught.value)
    store.bucket = BUCKET
    assert len(reading(lake, table)) == 2


@pytest.mark.parametrize(
    ("status", "kind", "pattern"),
    [
        (403, AuthenticationError, r"\.json$"),
        (403, AuthenticationError, r"\.avro$"),
        (403, AuthenticationError, r"\.parquet$"),
        (502, ServerUnavailableError, r"\.parquet$"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_endpoint(store, lake, table, status, kind, pattern):
    with store.failing(status, "", pattern), pytest.raises(kind) as caught:
        reading(lake, table)
    assert all(each in str(caught.value) for each in (store.endpoint, f"s3://{BUCKET}/wh/"))
    assert "hidden-secret" not in str(caught.value)
    assert len(reading(lake, table)) == 2


def test_a_file_that_another_removed_is_missing_as_before(store, lake, table):
    del store.objects[next(key for key in store.objects if key.endswith(".parquet"))]
    with pytest.raises(CorruptDataError, match=r"another program removed it.*restore it from a copy"):
        reading(lake, table)


def test_a_file_that_went_while_it_was_read_is_missing_too(store, lake, table):
    with store.failing(404, "GET", r"\.parquet$"), pytest.raises(CorruptDataError, match="a file is missing"):
        reading(lake, table)


def test_whose_bucket_is_not_known_is_missing(store, lake, table):
    del store.objects[next(key for key in store.objects if key.endswith(".parquet"))]
    with store.failing(403, "HEAD", "^$"), pytest.raises(CorruptDataError, match="a file is missing"):
        reading(lake, table)


def test_a_title_has_the_endpoint_but_no_password_of_it(lake):
    lake.properties["s3.endpoint"] = "http://me:hidden@host:9000"
    io = Lake(lake.folder, **lake.properties).storage.access.file_io(LOCATION)
    assert file_title(io, LOCATION) == f"lake file {LOCATION} at http://me:********@host:9000"
    assert file_title(io, "/local/file") == "lake file /local/file"
    found = reading_fault(io, LOCATION, "Parquet file", OSError("AWS Error NETWORK_CONNECTION during GetObject"))
    assert isinstance(found, FlussError)
    assert "hidden" not in str(found)
