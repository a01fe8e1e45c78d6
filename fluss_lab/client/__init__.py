"""The client in the words of Fluss's own: connection, admin, writers and scanners."""

from fluss_lab.client.address import ServerAddress
from fluss_lab.client.admin import Admin, BucketStatus
from fluss_lab.client.append import AppendWriter
from fluss_lab.client.connection import Connection
from fluss_lab.client.offsets import BucketOffset
from fluss_lab.client.ranges import read_range
from fluss_lab.client.results import AppendResult, WriteResult
from fluss_lab.client.scanned import ScanBatch, ScanRecords
from fluss_lab.client.scanner import LogScanner

__all__ = [
    "Admin",
    "AppendResult",
    "AppendWriter",
    "BucketOffset",
    "BucketStatus",
    "Connection",
    "LogScanner",
    "ScanBatch",
    "ScanRecords",
    "ServerAddress",
    "WriteResult",
    "read_range",
]
