"""What is known of buckets: what a server of an older version does not say is not known, and why is said."""

import pytest

from fluss_lab.client.cluster import bucket_status
from fluss_lab.model import TableBucket, TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb

PATH = TablePath("db", "t")


def described(**known):
    """Return the status that a client makes of a server's description."""
    given = {
        "start_offset": 0, "log_start_offset": 4, "log_end_offset": 9, "high_watermark": 9, "durable_offset": 9,
        "size_in_bytes": 10, "segments": 1, "max_timestamp": 1,
    }  # fmt: skip
    message = pb.PbKnownBucket(**{**given, **known})
    entry = pb.PbBucketDescription(table_bucket=pb.PbTableBucket(table_id=1, bucket_id=0), known=message)
    # As it travels.
    entry = pb.PbBucketDescription.FromString(entry.SerializeToString())
    return bucket_status._status(entry, {None: None}, 0, PATH)


def test_what_lake_and_remote_storage_hold_is_said():
    found = described(
        lake_snapshot_id=7, lake_log_start_offset=2, lake_log_end_offset=6, remote_log_start_offset=1, remote_log_end_offset=5
    )  # fmt: skip
    assert found.bucket == TableBucket(1, None, 0)
    assert (found.local_start_offset, found.remote_start_offset, found.remote_end_offset) == (4, 1, 5)
    assert (found.lake_start_offset, found.lake_end_offset, found.warning) == (2, 6, None)
    assert not found.has_unsaid_lake_start


def test_a_bucket_that_was_never_tiered_has_no_lake_start_and_nothing_is_wrong():
    found = described()
    assert (found.lake_start_offset, found.lake_end_offset, found.warning) == (None, None, None)
    assert not found.has_unsaid_lake_start


@pytest.mark.parametrize("warning", [None, "the disk is full"])
def test_a_server_that_does_not_say_where_the_lake_begins_leaves_it_unknown(warning):
    said = {} if warning is None else {"warning": warning}
    found = described(lake_snapshot_id=7, lake_log_end_offset=6, **said)
    assert (found.lake_start_offset, found.lake_end_offset) == (None, 6)
    assert found.has_unsaid_lake_start
    assert found.warning == warning


def test_an_older_client_reads_what_a_newer_server_says():
    """A field that a reader does not know is passed over."""
    known = pb.PbKnownBucket(
        start_offset=0, log_start_offset=0, log_end_offset=1, high_watermark=1, durable_offset=1, size_in_bytes=1, segments=1,
        max_timestamp=1, lake_log_start_offset=3,
    )  # fmt: skip
    unknown = known.SerializeToString() + bytes([0xF8, 0x3F, 0x05])  # field 1023, a varint
    assert pb.PbKnownBucket.FromString(unknown).lake_log_start_offset == 3
