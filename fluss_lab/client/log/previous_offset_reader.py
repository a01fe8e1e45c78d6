"""The offsets of the rows that a range of a changelog ends, fetched without its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fluss_lab.client.log.fetch_codec import FetchLimits, Projection, fetch_request
from fluss_lab.client.log.range_reader import fetch_bucket
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableBucket, TableInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.client.cluster.cluster_client import ClusterClient


def fetch_ended_offsets(
    connection: ClusterClient, info: TableInfo, bucket: TableBucket, start: int, stop: int
) -> NDArray[np.int64] | None:
    """Return the offsets, ascending, of the rows that records with offsets in ``[start, stop)`` end or replace.

    Returns:
        None where the bucket's server does not have all of them beside its log: it is of an older version, or the range lies
        in remote storage or in the lake.

    Raises:
        CorruptDataError: The server's answer is of other records.
        OffsetOutOfRangeError: The records are not held any more.
        ServerUnavailableError: No server answered in time.

    Cost: eight bytes a record, in one request per 4 MB (``client.scanner.log.fetch.max-bytes``).
    """
    connection.remember(info)
    limits = FetchLimits(
        connection.fetch_bytes_max, 0, enable_lake=False, previous_offsets=True, previous_offsets_only=True
    )
    projection = Projection(info, [])
    what = f"previous offsets of bucket {bucket} of {info.path}"
    found: list[NDArray[np.int64]] = []
    offset = start
    while offset < stop:
        request = fetch_request(info.table_id, [(bucket, offset)], projection, limits, stop)
        fetched = fetch_bucket(connection, bucket, request, what, connection.attempts(what))
        if (begin := fetched.previous_offsets_start) is None:
            return None
        values = np.frombuffer(fetched.previous_offsets or b"", "<i8")
        if not begin <= offset < begin + len(values):
            raise CorruptDataError(
                f"{what}: expected them from offset {offset}, found [{begin}, {begin + len(values)})"
            )
        found.append(_row_offsets(values[offset - begin : stop - begin]))
        offset = begin + len(values)
    ended = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    ended.sort()
    return ended


def _row_offsets(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of previous offsets that are a row's; an update's two records name the same one."""
    is_new = np.ones(len(values), dtype=np.bool_)
    is_new[1:] = values[1:] != values[:-1]
    ended: NDArray[np.int64] = values[is_new & (values >= 0)]
    return ended
