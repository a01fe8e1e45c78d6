"""The client in the words of Fluss's own: connection, admin, writers and scanners."""

from fluss_lab.client.admin import Admin
from fluss_lab.client.cluster.address import ServerAddress
from fluss_lab.client.cluster.bucket_status import BucketStatus, KnownBucket, UnknownBucket
from fluss_lab.client.cluster.offsets import BucketOffset
from fluss_lab.client.connection import Connection
from fluss_lab.client.kv.kv_scan import KvRecords, KvScan
from fluss_lab.client.kv.lookup import Lookuper
from fluss_lab.client.log.ranges import read_range
from fluss_lab.client.log.scanned import ScanBatch, ScanRecords
from fluss_lab.client.log.scanner import LogScanner
from fluss_lab.client.write.append import AppendWriter
from fluss_lab.client.write.results import AppendResult, UpsertResult, WriteResult
from fluss_lab.client.write.upsert import UpsertWriter

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
    "UnknownBucket",
    "UpsertResult",
    "UpsertWriter",
    "WriteResult",
    "read_range",
]
