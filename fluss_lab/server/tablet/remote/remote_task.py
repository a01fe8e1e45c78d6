"""The task that copies rolled segments to remote storage and drops the local ones that are there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from fluss_lab.clock import Clock
from fluss_lab.errors import CorruptDataError, FlussError, NotLeaderError
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.segment_retention import drop_copied

log = logging.getLogger(__name__)

Buckets: TypeAlias = Callable[[], Iterable[Bucket]]


class RemoteLogTask:
    """Copies what was rolled, bucket by bucket, one segment at a turn, so that none waits for another's backlog.

    For one thread at a time.

    Args:
        buckets: Returns the open buckets.
        clock: Gives the time of a copy.
        is_stopping: Returns whether the pass under way should end.
    """

    def __init__(self, buckets: Buckets, clock: Clock, is_stopping: Callable[[], bool]) -> None:
        self._buckets, self._clock, self._is_stopping = buckets, clock, is_stopping

    def run(self) -> int:
        """Copy all segments that are rolled and durable; then drop those here that tables need not keep.

        Returns:
            How many were copied. One bucket's failure is logged, and tried again with the next pass.
        """
        waiting = [bucket for bucket in self._buckets() if bucket.remote is not None]
        copied = 0
        while waiting and not self._is_stopping():
            going_on = []
            for bucket in waiting:
                if self._is_stopping():
                    break
                if self._turn(bucket):
                    copied += 1
                    going_on.append(bucket)
            waiting = going_on
        return copied

    def _turn(self, bucket: Bucket) -> bool:
        """Do one bucket's next piece of work; return whether there may be more."""
        remote = bucket.remote
        assert remote is not None
        try:
            remote.tidy()
            held = bucket.log
            if held.stopped is not None:
                return False  # a hole in it would become one in remote storage
            found = remote.copy_next(
                held.segments.rolled, bucket.table.schemas, held.durable_offset, self._clock.now_ms()
            )
            drop_copied(bucket)
            return found is not None
        except NotLeaderError:
            return False  # closed meanwhile
        except CorruptDataError as error:
            log.error("event=remote_copy_failed error=%s", error, extra=bucket.log_fields)
            return _is_mended(bucket, error)
        except FlussError as error:
            log.error("event=remote_copy_failed error=%s", error, extra=bucket.log_fields)
            return False
        except Exception:
            log.exception("event=remote_copy_failed bucket=%s", bucket.id, extra=bucket.log_fields)
            return False


def _is_mended(bucket: Bucket, error: CorruptDataError) -> bool:
    """Return whether what could not be copied were previous offsets, which now are rebuilt from the log."""
    if bucket.kv is None:
        return False
    try:
        return bucket.kv.rebuild_previous(bucket.log.start, bucket.log.high_watermark, error)
    except FlussError as failure:
        log.error("event=previous_offsets_not_rebuilt error=%s", failure, extra=bucket.log_fields)
        return False
