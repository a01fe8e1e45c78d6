"""Before the first round: a bucket that is not there, keys that may not do all of it, executors that have no keys at all."""

import uuid

import pytest

from fluss_lab.errors import AuthenticationError, StorageError, UnsupportedError
from fluss_lab.lake import lake_storage
from fluss_lab.spark.tiering.cluster_preflight import check_store
from tools.beyond.sts_keys import session_keys

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]

READING = ("s3:GetObject", "s3:ListBucket")
KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


@pytest.fixture
def warehouse(minio):
    return f"{minio.make_bucket('preflight' + uuid.uuid4().hex[:8])}/deep"


def checked(spark, lake):
    check_store(spark.sparkContext, spark.sparkContext.master, lake_storage("iceberg", lake), [])


@pytest.fixture
def lake(minio, warehouse, tmp_path):
    return {
        "name": "l", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": warehouse, **minio.lake_options(),
    }  # fmt: skip


def test_a_bucket_that_is_not_there(spark, lake, minio):
    with pytest.raises(
        StorageError, match=r"s3://none/.* cannot be written from .*the store has no such bucket"
    ) as caught:
        checked(spark, lake | {"warehouse": "s3://none/deep"})
    assert all(each in str(caught.value) for each in (minio.endpoint, "make the bucket"))


@pytest.mark.parametrize(
    ("allowed", "step"),
    [(READING, "written"), (("s3:PutObject", "s3:DeleteObject"), "read"), ((*READING, "s3:PutObject"), "deleted")],
)
def test_keys_that_may_not_do_all_of_it(spark, lake, minio, allowed, step):
    keys = session_keys(minio, allowed)
    with pytest.raises(AuthenticationError, match=f"cannot be {step} from") as caught:
        checked(spark, lake | keys)
    assert all(each in str(caught.value) for each in (minio.endpoint, lake["warehouse"], "written, read and deleted"))
    assert not any(keys[each] in str(caught.value) for each in KEYS[1:])


def test_keys_that_may_do_all_of_it_leave_nothing(spark, lake, minio):
    checked(spark, lake | session_keys(minio, (*READING, "s3:PutObject", "s3:DeleteObject")))
    assert not list((minio.objects / lake["warehouse"].removeprefix("s3://")).glob("*"))


def test_keys_that_only_the_drivers_environment_has(spark, lake, minio, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio.secret_key)
    found = {key: value for key, value in lake.items() if key not in KEYS}
    with pytest.raises(
        UnsupportedError, match=r"executors do not reach the lake as this machine does: .*cannot be written"
    ) as caught:
        checked(spark, found)
    assert all(each in str(caught.value) for each in (minio.endpoint, "refused access"))
    assert minio.secret_key not in str(caught.value)
