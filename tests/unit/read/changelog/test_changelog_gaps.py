"""A lake plug-in that leaves a record out or gives one twice: the changelog says so, and hands nothing wrong on."""

import random

import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import FlussLogSource
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.read.table_reader import TableReader


class FaultyLog(FlussLogSource):
    """Gives the records of another source, with one range of them in place of another."""

    def __init__(self, whole, cuts):
        self.whole, self.cuts = whole, cuts

    def lookup_log_offset_by_timestamp(self, context):
        return self.whole.lookup_log_offset_by_timestamp(context)

    def earliest_offset(self, partition, bucket, lake_snapshot_id):
        return self.whole.earliest_offset(partition, bucket, lake_snapshot_id)

    def fetch_log_records(self, context):
        for records in self.whole.fetch_log_records(context):
            for start, stop in self.cuts:
                if (some := records.clip(start, stop)) is not None:
                    yield some


@pytest.mark.parametrize(
    ("cuts", "found"),
    [
        ([(0, 1 << 40)], None),
        ([(0, 2), (3, 1 << 40)], "offsets from 2"),
        ([(0, 2), (1, 1 << 40)], "offsets from 2"),
        ([(1, 1 << 40)], "offsets from 0"),
        ([(0, 2)], "records "),
    ],
    ids=["whole", "one missing", "one twice", "the first missing", "the rest missing"],
)
def test_the_changelog_notices_what_a_plug_in_leaves_out_or_doubles(make_table, cuts, found):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 60, ["2013-01"])
    table.tier()
    table.expire()

    class Faulty(IcebergLakeStorage):
        def create_fluss_log_source(self, info):
            return FaultyLog(super().create_fluss_log_source(info), cuts)

    storage = Faulty(dict(table.connection.lake_storage().properties))
    log = TableReader(table.connection, table.path, storage).changelog(buckets=[0])
    if found is None:
        assert log.to_arrow()["_log_offset"].to_pylist() == list(range(table.ends[None, 0]))
        return
    with pytest.raises(CorruptDataError, match=f"expected {found}"):
        log.to_arrow()
