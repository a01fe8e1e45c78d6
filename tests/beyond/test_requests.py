"""How many requests a round costs, of the catalog and of the object store."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.unit.tiering.kit import Tables

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

#: The table is loaded by the driver's planning and after the commit; of these one may be saved, and none added.
CATALOG_MAX = 3
#: A file is written by one request, and whether it is there is not asked.
STORE_FILE_MAX = 1
#: A manifest and the list of manifests.
METADATA_FILES = 2


@pytest.fixture(scope="module")
def tables(lake):
    with EmbeddedCluster(options=lake.options) as cluster:
        yield Tables(cluster)


@pytest.mark.parametrize("buckets", [1, 8])
def test_requests_of_a_round(lake, tables, buckets):
    info = tables.create(f"of_{buckets}", buckets=buckets, bucket_key=["id"])
    for _ in range(3):
        tables.append(info, 8 * buckets)
        tables.tier(info)
    tables.append(info, 1 if buckets == 1 else 64)
    with lake.counted() as counted:
        tables.tier(info)
    print(f"\nof a round over {buckets} bucket(s): catalog {dict(counted.catalog)}, store {dict(counted.store)}")
    assert counted.catalog.total() <= CATALOG_MAX
    assert counted.store.total() <= STORE_FILE_MAX * (buckets + METADATA_FILES)
    tables.check(info)
