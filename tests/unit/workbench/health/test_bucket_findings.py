"""What is said of buckets: each that is not available, each warning, and once what a server of an older version does not say."""

from dataclasses import replace

import pytest

from fluss_lab.cli.status_text import _table_row
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.health.bucket_findings import bucket_troubles, table_statuses

LAKE = {"table.datalake.enabled": True}


@pytest.fixture(scope="module")
def statuses():
    """What is known of two tiered tables of two buckets each."""
    with EmbeddedCluster() as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        for name in ("db.one", "db.two"):
            descriptor = make_descriptor({"id": "int"}, buckets=2, bucket_key=["id"], properties=LAKE)
            info = admin.create_table(TablePath.parse(name), descriptor)
            with cluster.connection.append_writer(info.path) as writer:
                writer.append([{"id": n} for n in range(20)])
            run_round(
                cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id
            )
        return table_statuses(cluster.connection)


def of_older_server(statuses):
    """Return what a server of the release before says: it does not know where the lake's parts begin."""
    return [(info, [replace(each, lake_start_offset=None) for each in buckets]) for info, buckets in statuses]


def test_a_server_of_an_older_version_is_one_warning_and_no_table_has_failed(statuses):
    assert bucket_troubles(statuses) == []
    older = of_older_server(statuses)
    (trouble,) = bucket_troubles(older)
    assert trouble.error_class is None
    assert trouble.text.startswith(
        "4 tiered buckets of 2 tables: where the lake's part begins is not known: the server is of an older"
    )
    assert [_table_row(info, buckets, {}) for info, buckets in older] == [
        _table_row(info, buckets, {}) for info, buckets in statuses
    ]
    assert [_table_row(info, buckets, {})[-1] for info, buckets in older] == [None, None]


def test_a_warning_of_a_bucket_names_it_and_stays_beside_what_is_not_said(statuses):
    older = of_older_server(statuses)
    info, buckets = older[0]
    full = [(info, [replace(buckets[0], warning="the disk is full"), buckets[1]]), older[1]]
    assert [each.text.partition(":")[0] for each in bucket_troubles(full)] == [
        "table db.one, bucket 0",
        "4 tiered buckets of 2 tables",
    ]
