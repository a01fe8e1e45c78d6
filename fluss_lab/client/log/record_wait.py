"""The wait for new records without reading them: the server answers when there are some."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from fluss_lab.client.cluster.cluster_client import ClusterClient
from fluss_lab.client.log.fetch_codec import FetchLimits, Projection, fetch_request, fetched_buckets
from fluss_lab.errors import FlussError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records.batch import split_headers

#: Where a server cannot be waited at, for all of the time: several hold the buckets, or it answers at once.
_PAUSE_S: Final = 0.1


def wait_for_records(
    connection: ClusterClient, info: TableInfo, ends: Mapping[TableBucket, int], timeout_s: float
) -> None:
    """Return when a bucket may have records behind its end, or the time is up; earlier also when that cannot be told.

    Args:
        connection: To the cluster.
        info: The table.
        ends: Offset in each bucket behind which records are new.
        timeout_s: Longest wait.

    Cost: one call to the server; of several servers none, and then it returns after a tenth of a second.
    """
    deadline = time.monotonic() + timeout_s
    if not (ends and _has_come(connection, info, ends, timeout_s)):
        threading.Event().wait(max(0.0, min(_PAUSE_S, deadline - time.monotonic())))


def _has_come(connection: ClusterClient, info: TableInfo, ends: Mapping[TableBucket, int], timeout_s: float) -> bool:
    """Wait at the server; return whether it has records behind the ends. Whatever is wrong the next look will tell."""
    # One column, and no more bytes than the first batch has: nobody reads them.
    limits = FetchLimits(1, int(timeout_s * 1000), enable_lake=False)
    request = fetch_request(info.table_id, list(ends.items()), Projection(info, [0]), limits)
    try:
        servers = set(connection.leaders(ends).values())
        if len(servers) != 1:
            return False
        answered = list(fetched_buckets(connection.gateway(servers.pop()).fetch_log(request)))
        # A batch without records lies at the end itself, and is no news.
        return any(
            header.next_offset > ends[each.bucket]
            for each in answered
            if each.error is None and each.bucket in ends
            for header, _ in split_headers(each.data)
        )
    except FlussError:
        return False
