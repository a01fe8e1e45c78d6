"""The location of one record: the segments that hold it, on this disk and in remote storage."""

from __future__ import annotations

from fluss_lab.errors import FlussError, OffsetOutOfRangeError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.log.log_reader import RecordLocation


def locate_record(bucket: Bucket, offset: int) -> pb.LocateRecordResponse:
    """Return where the record at an offset lies; neither place when the cluster does not hold it any more.

    Raises:
        OffsetOutOfRangeError: There is no such record yet.
        CorruptDataError, StorageError: It may lie in what is damaged, or in remote storage, which cannot be read; of a
            record that is on this disk only the former; ``remote_error`` says the latter then.

    Cost: an index, and the headers between two of its entries; a block of remote storage, if it is there too.
    """
    if not 0 <= offset < bucket.log.high_watermark:
        bucket.log.reader.check_end(offset)
        raise OffsetOutOfRangeError(
            f"{bucket.table.path} bucket {bucket.id.bucket}: expected the offset of a record, in "
            f"[{bucket.log.start}, {bucket.log.high_watermark}), found {offset}"
        )
    response = pb.LocateRecordResponse()
    # Here first: what leaves this disk is in remote storage before.
    local = _local(bucket, offset)
    try:
        remote = None if bucket.remote is None else bucket.remote.locate(offset)
    except FlussError as error:
        if local is None:
            raise
        remote, response.remote_error = None, str(error)
    if local is None and remote is None:
        bucket.log.reader.check_start()
    for found, place in ((local, response.local), (remote, response.remote)):
        if found is not None:
            _put(found, place)
    return response


def _local(bucket: Bucket, offset: int) -> RecordLocation | None:
    try:
        return bucket.log.reader.locate(offset)
    except OffsetOutOfRangeError:
        return None  # it has left the disk


def _put(found: RecordLocation, place: pb.PbSegmentPlace) -> None:
    place.file = str(found.path)
    place.segment_base_offset, place.segment_end_offset = found.base_offset, found.end_offset
    place.position = found.position
    place.batch_base_offset, place.batch_end_offset = found.header.base_offset, found.header.next_offset
    place.batch_size_in_bytes = found.header.size
    place.timestamp = found.header.timestamp_ms
    if found.segment_id is not None:
        place.remote_log_segment_id = found.segment_id
