"""The folders in which buckets are: made durably, and looked at."""

from __future__ import annotations

import os
from pathlib import Path

from fluss_lab import files
from fluss_lab.rpc import fluss_api_pb2 as pb


def partition_of(request: pb.PbNotifyLeaderAndIsrReqForBucket) -> str | None:
    """Return the name of the partition of the bucket that a request is about; None without partitions."""
    path = request.physical_table_path
    return path.partition_name if path.HasField("partition_name") else None


def durable_offset_of(request: pb.PbNotifyLeaderAndIsrReqForBucket) -> int | None:
    """Return up to where the log of the bucket that a request is about was on the device; None of a new bucket."""
    return request.durable_offset if request.HasField("durable_offset") else None


def has_folders(folder: Path) -> bool:
    """Tell whether there is any folder in one that need not exist."""
    try:
        with os.scandir(folder) as entries:
            return any(each.is_dir() for each in entries)
    except FileNotFoundError:
        return False


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    files.fsync_folder(folder.parent)
