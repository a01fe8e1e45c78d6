"""A lab's Spark: one session, a pool for each executor, started again when it has died."""

import gc

import pytest

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import UnsupportedError
from fluss_lab.lake import lake_storage
from fluss_lab.workbench.compute import Compute

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(tmp_path):
    return lake_storage("iceberg", {"type": "sql", "uri": "sqlite://", "warehouse": str(tmp_path)})


@pytest.fixture
def connection():
    # Never called: where all of Spark runs here, nothing is asked.
    with Connection(lambda: ServerAddress("127.0.0.1", 1, "token"), {}) as made:
        yield made


def test_executors_beside_each_other_have_pools_of_their_own(spark, storage, connection):
    make = Compute(connection).executors(storage)
    held = [make() for _ in range(3)]
    pools = [each._pool for each in held]
    assert len(set(pools)) == 3
    del held[1]
    gc.collect()
    assert make()._pool == pools[1]


def test_the_session_is_the_process_s(spark, connection):
    compute = Compute(connection)
    assert compute.session() is spark
    assert compute.session() is spark


def test_a_master_that_is_not_the_active_session_s_is_refused(spark):
    with (
        Connection(lambda: ServerAddress("127.0.0.1", 1, "t"), {"client.spark.master": "local[7]"}) as connection,
        pytest.raises(UnsupportedError, match=r"asked for local\[7\]"),
    ):
        Compute(connection).session()
    with Connection(lambda: ServerAddress("127.0.0.1", 1, "t"), {}) as connection:
        compute = Compute(connection)
        with pytest.raises(UnsupportedError, match=r"asked for local\[8\]"):
            compute.start("local[8]", None)
