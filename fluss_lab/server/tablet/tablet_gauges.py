"""A tablet server's metrics: read from its open buckets at each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import StorageError
from fluss_lab.server.server_metrics import Family, Labels
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.request_counters import TableCounters

if TYPE_CHECKING:
    from fluss_lab.server.tablet.remote.remote_manifest import RemoteManifest


def _is_known(bucket: Bucket) -> bool:
    """Return whether the end of a bucket's log is known: how many records lie behind damage is not known."""
    return bucket.log.stopped is None or isinstance(bucket.log.stopped, StorageError)


def _messages_in(bucket: Bucket) -> float:
    return bucket.log.end - bucket.counters.first_end


def _end(bucket: Bucket, offset: int) -> float | None:
    """Return an offset at the end of a log; None where damage hides how far the log goes."""
    return None if bucket.log.reader.ended_by is not None else offset


def _pending(bucket: Bucket) -> float | None:
    if not bucket.table.lake_enabled or bucket.log.reader.ended_by is not None:
        return None
    return bucket.log.end - (0 if bucket.lake is None else bucket.lake.end)


def _lag_ms(bucket: Bucket) -> float | None:
    if not bucket.table.lake_enabled or bucket.lake is None or bucket.lake.max_timestamp_ms < 0:
        return None
    if not _is_known(bucket):
        return None
    return max(0, bucket.log.max_timestamp_ms - bucket.lake.max_timestamp_ms)


def _remote(bucket: Bucket, value: Callable[[RemoteManifest], float]) -> float | None:
    known = None if bucket.remote is None else bucket.remote.known
    return None if known is None else value(known)


def _snapshot(bucket: Bucket, attribute: str) -> float | None:
    if bucket.kv is None or (latest := bucket.kv.snapshots.latest) is None:
        return None
    return float(getattr(latest, attribute))


#: Metric, kind, meaning, value of a bucket (None: it has none). Fluss's names where Fluss has them.
_OF_BUCKET: Final[tuple[tuple[str, str, str, Callable[[Bucket], float | None]], ...]] = (
    ("messagesIn_total", "counter", "Records appended since the bucket was opened.", _messages_in),
    ("bytesIn_total", "counter", "Log bytes appended since the bucket was opened.", lambda b: b.log.written_bytes),
    ("bytesOut_total", "counter", "Bytes of records answered to fetches.", lambda b: b.counters.bytes_out),
    ("log_startOffset", "gauge", "First offset held locally.", lambda b: b.log.start),
    ("log_endOffset", "gauge", "Offset after the last record.", lambda b: _end(b, b.log.end)),
    ("log_highWatermark", "gauge", "Offset after the last readable record.", lambda b: _end(b, b.log.high_watermark)),
    ("log_durableOffset", "gauge", "Offset below which all is on the device.", lambda b: b.log.durable_offset),
    ("log_numSegments", "gauge", "Local segments.", lambda b: len(b.log.segments)),
    (
        "log_stopped",
        "gauge",
        "1: damage or a failing disk has ended writing.",
        lambda b: int(b.log.stopped is not None),
    ),
    ("physicalStorage_localLogSize", "gauge", "Bytes of the local segments.", lambda b: b.log.segments.size_bytes),
    ("lakeTiering_pendingRecords", "gauge", "Records that the lake does not hold yet.", _pending),
    ("lakeTiering_timestampLag", "gauge", "Milliseconds from the lake's last record to the log's.", _lag_ms),
    ("remoteLog_numSegments", "gauge", "Segments in remote storage.", lambda b: _remote(b, lambda m: len(m.segments))),
    ("remoteLog_startOffset", "gauge", "First offset in remote storage.", lambda b: _remote(b, lambda m: m.start)),
    ("remoteLog_endOffset", "gauge", "Offset after the last one there.", lambda b: _remote(b, lambda m: m.end)),
    ("remoteLog_size", "gauge", "Bytes in remote storage.", lambda b: _remote(b, lambda m: m.size_bytes)),
    ("kv_rowCount", "gauge", "Live rows.", lambda b: b.kv.store.row_count if b.kv is not None else None),
    ("kv_memory", "gauge", "Bytes of rows and index in memory.", lambda b: b.kv.store.memory_bytes if b.kv else None),
    ("kv_mapped", "gauge", "Bytes of rows in mapped files.", lambda b: b.kv.store.mapped_bytes if b.kv else None),
    ("kv_snapshotOffset", "gauge", "Log offset of the newest snapshot.", lambda b: _snapshot(b, "log_offset")),
    ("kv_snapshotTime", "gauge", "When it was taken, epoch milliseconds.", lambda b: _snapshot(b, "created_ms")),
    ("logicalStorage_kvSize", "gauge", "Bytes of the newest snapshot.", lambda b: _snapshot(b, "size_bytes")),
)
_SUMMED: Final = ("messagesIn_total", "bytesIn_total", "bytesOut_total")


def families(buckets: Iterable[Bucket], tables: Mapping[int, TableCounters], unopened: int = 0) -> Iterator[Family]:
    """Yield the metrics of open buckets, of their tables, and of the server.

    Args:
        buckets: The open ones.
        tables: Counters by table id; those of tables without an open bucket are left out.
        unopened: Buckets that could not be opened.
    """
    held = [(bucket, _labels(bucket)) for bucket in buckets]
    sums: dict[str, dict[int, float]] = {name: {} for name in _SUMMED}
    for name, kind, meaning, value in _OF_BUCKET:
        family = Family(f"tabletserver_table_bucket_{name}", kind, meaning)
        for bucket, labels in held:
            found = value(bucket)
            family.add(found, labels)
            if name in sums and found is not None:
                sums[name][bucket.id.table_id] = sums[name].get(bucket.id.table_id, 0) + found
        yield family
    names = {bucket.id.table_id: _table_labels(bucket) for bucket, _ in held}
    for name, by_table in sums.items():
        family = Family(f"tabletserver_table_{name}", "counter", "The sum over the table's buckets.")
        whole = Family(f"tabletserver_{name}", "counter", "The sum over all buckets.")
        for table_id, value_of_table in by_table.items():
            family.add(value_of_table, names[table_id])
        whole.add(sum(by_table.values()))
        yield from (family, whole)
    yield from _requests([(names[table_id], tables[table_id]) for table_id in names if table_id in tables])
    yield from _server([bucket for bucket, _ in held], unopened)


def _requests(tables: Sequence[tuple[Labels, TableCounters]]) -> Iterator[Family]:
    kinds = sorted({kind for _, counters in tables for kind in counters.requests})
    for kind in kinds:
        total = Family(f"tabletserver_table_total{kind}Requests_total", "counter", f"{kind} requests, by bucket asked.")
        failed = Family(f"tabletserver_table_failed{kind}Requests_total", "counter", "Those of them that failed.")
        for labels, counters in tables:
            if (found := counters.requests.get(kind)) is not None:
                total.add(found.total, labels)
                failed.add(found.failed, labels)
        yield from (total, failed)
    keys = Family("tabletserver_table_lookupKeys_total", "counter", "Keys and prefixes looked up.")
    for labels, counters in tables:
        if counters.keys:
            keys.add(counters.keys, labels)
    yield keys


def _server(buckets: list[Bucket], unopened: int) -> Iterator[Family]:
    leaders = Family("tabletserver_leaderCount", "gauge", "Buckets that this server holds.")
    leaders.add(len(buckets))
    replicas = Family("tabletserver_replicaCount", "gauge", "The same: nothing is replicated.")
    replicas.add(len(buckets))
    stored = Family("tabletserver_physicalStorage_localSize", "gauge", "Bytes of all local segments.")
    stored.add(sum(bucket.log.segments.size_bytes for bucket in buckets))
    unknown = Family(
        "tabletserver_unknownBuckets", "gauge", "Buckets that could not be opened, or whose log is damaged."
    )
    unknown.add(unopened + sum(not _is_known(bucket) for bucket in buckets))
    yield from (leaders, replicas, stored, unknown)


def _table_labels(bucket: Bucket) -> Labels:
    return {"database": bucket.table.path.database, "table": bucket.table.path.table}


def _labels(bucket: Bucket) -> Labels:
    return {**_table_labels(bucket), "partition": bucket.partition, "bucket": bucket.id.bucket}
