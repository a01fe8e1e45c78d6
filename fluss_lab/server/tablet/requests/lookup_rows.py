"""One Lookup or PrefixLookup call: the rows of keys, or of prefixes of keys, in several buckets of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import (
    CorruptDataError,
    InvalidRecordError,
    InvalidRequestError,
    RecordTooLargeError,
    UnsupportedError,
)
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.records.batch import Buffer, decode_rows
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of, partition_id_of
from fluss_lab.rpc.serving.grpc_server import put_error
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket, key_schema
from fluss_lab.server.tablet.log.payload_validation import check_body
from fluss_lab.server.tablet.requests.column_projection import check_projection

#: Keys looked up at once, whatever their rows' size.
_FIRST_KEYS: Final = 64
#: Prefixes looked up first: one may have all rows of a bucket.
_FIRST_PREFIXES: Final = 16


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """What one call may cost.

    Attributes:
        keys_max: Keys, over all buckets.
        bytes_max: Bytes of the rows of its answer.
    """

    keys_max: int
    bytes_max: int


def lookup(store: BucketStore, request: Frame[pb.LookupRequest], limits: LookupLimits) -> Frame[pb.LookupResponse]:
    """Return the row of each key that has one; one bucket's error is in its own answer.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    response: Frame[pb.LookupResponse] = Frame(pb.LookupResponse())
    call = _Call(store, request.message, limits)

    def look(each: Any, payload: Sequence[Buffer], answer: Any) -> Buffer:
        kv, columns = call.bucket(each)
        if kv.single_key is not None and (bits := kv.single_key.decode(payload)) is not None:
            call.count(1)
            row = kv.lookup_one(bits, columns)
            _settle(kv)
            answer.found = b"\1" if row.num_rows else b"\0"
            return call.check_size(row.serialize(), 1)
        keys = call.keys(payload, kv.key_schema)
        found, rows = call.rows(kv.lookup, keys, columns, call.first_step(kv, keys))
        _settle(kv)
        answer.found = np.asarray(found, dtype=np.uint8).tobytes()
        return rows

    call.answer(request.payloads, response, look)
    return response


def prefix_lookup(
    store: BucketStore, request: Frame[pb.PrefixLookupRequest], limits: LookupLimits
) -> Frame[pb.PrefixLookupResponse]:
    """Return all rows whose key begins with each prefix; one bucket's error is in its own answer.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    response: Frame[pb.PrefixLookupResponse] = Frame(pb.PrefixLookupResponse())
    call = _Call(store, request.message, limits)

    def look(each: Any, payload: Sequence[Buffer], answer: Any) -> Buffer:
        kv, columns = call.bucket(each)
        prefixes = call.keys(payload, prefix_schema(kv.table.descriptor))
        counts, rows = call.rows(kv.prefix_lookup, prefixes, columns, _FIRST_PREFIXES)
        _settle(kv)
        answer.counts = np.asarray(counts, dtype="<i4").tobytes()
        return rows

    call.answer(request.payloads, response, look)
    return response


def prefix_schema(descriptor: TableDescriptor) -> pa.Schema:
    """Return the Arrow schema of prefixes of keys: the bucket key's columns, which the key must begin with.

    Raises:
        UnsupportedError: It does not: rows of one prefix would lie in many buckets, or the prefix is the whole key.
    """
    free = tuple(name for name in descriptor.schema.primary_key if name not in descriptor.partitioned_by)
    prefix = descriptor.bucket_key
    if free[: len(prefix)] != prefix or len(prefix) >= len(free):
        raise UnsupportedError(
            f"prefix lookup: expected a bucket key that the primary key {list(free)} begins with and is longer than, found "
            f"{list(prefix)}"
        )
    return key_schema(descriptor, prefix)


class _Call:
    """What the buckets of one call share: the limits, and what was used up of them."""

    def __init__(
        self, store: BucketStore, message: pb.LookupRequest | pb.PrefixLookupRequest, limits: LookupLimits
    ) -> None:
        self._store, self._message, self._limits = store, message, limits
        self._keys = self._bytes = 0
        #: Of the rows that were looked up last.
        self.schema_id = -1

    def answer(
        self,
        payloads: Sequence[Sequence[Buffer]],
        response: Frame[Any],
        look: Callable[[Any, Sequence[Buffer], Any], Buffer],
    ) -> None:
        """Answer for each bucket: `look` takes the request, its keys and the answer to fill, and returns the rows.

        Raises:
            InvalidRequestError: There are not as many payloads as buckets.
        """
        asked = self._message.buckets_req
        if len(payloads) != len(asked):
            raise InvalidRequestError(f"expected {len(asked)} payloads, found {len(payloads)}")
        for each, payload in zip(asked, payloads, strict=True):
            answer = response.message.buckets_resp.add(bucket_id=each.bucket_id, partition_id=partition_id_of(each))
            try:
                rows = look(each, payload, answer)
            except Exception as error:
                put_error(answer, error, f"look up in bucket {answer.bucket_id}")
                continue
            answer.schema_id, answer.records = self.schema_id, b""
            response.payloads.append([rows])

    def bucket(self, request: Any) -> tuple[KvBucket, tuple[int, ...]]:
        """Return the rows' bucket, and the indexes of the columns wanted, checked."""
        bucket = self._store.get(bucket_of(request, self._message.table_id))
        kv = look_up_bucket(bucket)
        self.schema_id = kv.schema_id
        return kv, check_columns(self._message.projected_fields, bucket, self.schema_id)

    def keys(self, payload: Sequence[Buffer], schema: pa.Schema) -> pa.RecordBatch:
        """Return the keys, checked and counted."""
        keys = _decode(payload, schema)
        self.count(keys.num_rows)
        return keys

    def count(self, keys: int) -> None:
        """Count keys.

        Raises:
            RecordTooLargeError: They are too many, with those of the buckets before.
        """
        self._keys += keys
        if self._keys > self._limits.keys_max:
            # On this error a client splits its request.
            raise RecordTooLargeError(
                f"expected at most {self._limits.keys_max} keys in a call (server.lookup-keys-max), found "
                f"{self._keys}; ask for fewer at once"
            )

    def first_step(self, kv: KvBucket, keys: pa.RecordBatch) -> int:
        """Return how many keys to look up first: all, if rows of the usual size fill no more than a quarter."""
        if keys.num_rows <= _FIRST_KEYS:
            return _FIRST_KEYS
        row_bytes = (kv.store.memory_bytes + kv.store.mapped_bytes) // max(kv.store.row_count, 1) + 1
        return max(_FIRST_KEYS, self._limits.bytes_max // (4 * row_bytes))

    def rows(
        self,
        look: Callable[[pa.RecordBatch, Sequence[int]], tuple[Any, pa.RecordBatch]],
        keys: pa.RecordBatch,
        columns: tuple[int, ...],
        step: int,
    ) -> tuple[Any, pa.Buffer]:
        """Look keys up in steps, so that an answer that is too large is noticed before it is made.

        Returns:
            The answer for each key, and the rows as Arrow bytes.

        Raises:
            RecordTooLargeError: The rows are more than the answer may have.
        """
        said: list[Any] = []
        found: list[pa.RecordBatch] = []
        at = 0
        while at < keys.num_rows or not found:
            some = keys.slice(at, step)
            description, rows = look(some, columns)
            said.append(description)
            found.append(rows)
            at += some.num_rows
            self._count_bytes(pa.ipc.get_record_batch_size(rows), at)
            # As many as should fill half of what is left.
            step = max(step, (self._limits.bytes_max - self._bytes) * at // (2 * max(self._bytes, 1)))
        if len(found) == 1:
            return said[0], found[0].serialize()
        return np.concatenate(said), pa.concat_batches(found).serialize()

    def check_size(self, rows: pa.Buffer, keys: int) -> pa.Buffer:
        """Return the rows of some keys, counted.

        Raises:
            RecordTooLargeError: They are more than the answer may have, with those of the buckets before.
        """
        self._count_bytes(rows.size, keys)
        return rows

    def _count_bytes(self, size: int, keys: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.bytes_max:
            raise RecordTooLargeError(
                f"the rows of {keys} keys have {self._bytes} bytes, expected at most {self._limits.bytes_max} in an "
                "answer (server.request-size-max); ask for fewer keys or columns at once"
            )


def look_up_bucket(bucket: Bucket) -> KvBucket:
    """Return the rows of a bucket.

    Raises:
        UnsupportedError: Its table has no primary key.
    """
    if bucket.kv is None:
        raise UnsupportedError(f"{bucket.table.path} has no primary key: nothing can be looked up in a log table")
    return bucket.kv


def check_columns(fields: Sequence[int], bucket: Bucket, schema_id: int) -> tuple[int, ...]:
    """Return the indexes of the columns wanted, all of a schema when none are named.

    Raises:
        InvalidRequestError: They do not ascend, or are out of range.
    """
    schema = bucket.table.schemas[schema_id]
    return check_projection(fields, schema) or tuple(range(len(schema)))


def _decode(payload: Sequence[Buffer], schema: pa.Schema) -> pa.RecordBatch:
    whole = memoryview(payload[0] if len(payload) == 1 else b"".join(payload)).cast("B")
    check_body(whole)
    try:
        return decode_rows(whole, schema, "keys", range(len(schema)))
    except CorruptDataError as error:
        raise InvalidRecordError(f"{error}; expected the columns {schema.names}, none of them null") from error


def _settle(kv: KvBucket) -> None:
    """Wait until what was looked up is durable, if the log promises that: a row that was seen must stay."""
    kv.log.settle()
