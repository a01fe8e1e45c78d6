"""The client in the words of Fluss's own: connection, admin, writers and scanners."""

from fluss_lab.client.admin import Admin
from fluss_lab.client.cluster.bucket_status import BucketStatus, KnownBucket, UnknownBucket
from fluss_lab.client.cluster.list_offsets import BucketOffset
from fluss_lab.client.cluster.server_address import ServerAddress
from fluss_lab.client.cluster.tiering_rounds import TieringRoundRecord
from fluss_lab.client.connection import Connection
from fluss_lab.client.kv.kv_scan import KvRecords, KvScan
from fluss_lab.client.kv.lookuper import Lookuper
from fluss_lab.client.log.log_scanner import LogScanner, ScanBatch, ScanRecords
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.client.write.table_writer import AppendWriter
from fluss_lab.client.write.upsert_writer import UpsertWriter
from fluss_lab.client.write.write_result import AppendResult, UpsertResult, WriteResult

__all__ = [
    "Admin",
    "AppendResult",
    "AppendWriter",
    "BucketOffset",
    "BucketStatus",
    "Connection",
    "KnownBucket",
    "KvRecords",
    "KvScan",
    "LogScanner",
    "Lookuper",
    "ScanBatch",
    "ScanRecords",
    "ServerAddress",
    "TieringRoundRecord",
    "UnknownBucket",
    "UpsertResult",
    "UpsertWriter",
    "WriteResult",
    "read_range",
]
