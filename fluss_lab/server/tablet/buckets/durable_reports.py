"""Reports of how far the logs held here are on the device, so that the coordinator knows what must be found again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from fluss_lab.errors import FlussError
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.server.tablet.buckets.bucket import Bucket

log = logging.getLogger(__name__)

#: Buckets of one report: 30 kB.
_BUCKETS_MAX: Final = 1_000


class DurableReporter:
    """Reports what changed since it was last reported. Safe for threads; one report at a time.

    Args:
        buckets: Returns the open buckets.
        coordinator: Returns the coordinator's gateway; None: there is nobody to report to.
        epoch: Returns the epoch of the coordinator that this server heard last.
    """

    def __init__(
        self,
        buckets: Callable[[], Iterable[Bucket]],
        coordinator: Callable[[], CoordinatorGateway] | None,
        epoch: Callable[[], int],
    ) -> None:
        self._buckets, self._coordinator, self._epoch = buckets, coordinator, epoch
        self._lock = threading.Lock()
        self._reported: dict[TableBucket, int] = {}

    def report(self) -> None:
        """Report the durable offsets that changed. A failure is logged; the next report makes up for it."""
        if self._coordinator is None:
            return
        with self._lock:
            found = {each.id: each.log.durable_offset for each in self._buckets() if each.log.stopped is None}
            self._reported = {bucket: offset for bucket, offset in self._reported.items() if bucket in found}
            changed = [bucket for bucket, offset in found.items() if self._reported.get(bucket) != offset]
            try:
                for at in range(0, len(changed), _BUCKETS_MAX):
                    some = {bucket: found[bucket] for bucket in changed[at : at + _BUCKETS_MAX]}
                    self._coordinator().report_buckets(_request(self._epoch(), some))
                    self._reported.update(some)
            except FlussError as error:
                log.info("event=not_reported buckets=%d error=%s", len(changed), error)


def _request(epoch: int, offsets: dict[TableBucket, int]) -> pb.ReportBucketsRequest:
    request = pb.ReportBucketsRequest(coordinator_epoch=epoch)
    for bucket, offset in offsets.items():
        request.buckets.add(
            table_bucket=pb.PbTableBucket(
                table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket
            ),
            durable_offset=offset,
        )
    return request
