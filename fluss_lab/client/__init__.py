"""The client in the words of Fluss's own: connection, admin, writers and scanners."""

from fluss_lab.client.address import ServerAddress
from fluss_lab.client.admin import Admin
from fluss_lab.client.append import AppendWriter
from fluss_lab.client.bucket_status import BucketStatus, KnownBucket, UnknownBucket
from fluss_lab.client.connection import Connection
from fluss_lab.client.kv_scan import KvRecords, KvScan
from fluss_lab.client.lookup import Lookuper
from fluss_lab.client.offsets import BucketOffset
from fluss_lab.client.ranges import read_range
from fluss_lab.client.results import AppendResult, UpsertResult, WriteResult
from fluss_lab.client.scanned import ScanBatch, ScanRecords
from fluss_lab.client.scanner import LogScanner
from fluss_lab.client.upsert import UpsertWriter

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
