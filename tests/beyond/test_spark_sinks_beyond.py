"""What sinks need of a checkpoint that is in an object store."""

import json
import uuid

import pytest
from pyarrow.fs import S3FileSystem

from fluss_lab.errors import InvalidRequestError
from fluss_lab.spark.sink.table_sink import query_id

pytestmark = [pytest.mark.beyond, pytest.mark.slow]


@pytest.fixture
def store(minio, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return S3FileSystem(endpoint_override=minio.endpoint, access_key=minio.access_key, secret_key=minio.secret_key)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_query_is_known_by_its_checkpoint_in_a_store(minio, store, scheme):
    bucket = minio.make_bucket(f"checkpoints{uuid.uuid4().hex[:8]}").removeprefix("s3://")
    with pytest.raises(InvalidRequestError, match="the query's id cannot be read"):
        query_id(f"{scheme}://{bucket}/q")
    with store.open_output_stream(f"{bucket}/q/metadata") as stream:
        stream.write(json.dumps({"id": "of-the-query"}).encode())
    assert query_id(f"{scheme}://{bucket}/q/") == "of-the-query"
