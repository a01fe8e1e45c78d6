"""The requests and answers of lookups: keys and rows as Arrow, checked; single keys of plain values by a short way. No threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.errors import CorruptDataError, FlussError, InternalError, error_from_code
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.names import partition_name
from fluss_lab.records.batch import Buffer, decode_rows, not_null
from fluss_lab.records.single_key import SingleKey
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame, partition_id_of

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient
    from fluss_lab.client.write.row_routing import Router


#: So many numbers are looked at one by one.
_FEW: Final = 64
#: How many rows each prefix has, on the wire.
_COUNT: Final = np.dtype("<i4")

Entry: TypeAlias = pb.PbLookupRespForBucket | pb.PbPrefixLookupRespForBucket


@dataclass(frozen=True, slots=True, eq=False)
class BucketKeys:
    """Keys of one bucket.

    Attributes:
        keys: As they travel: Arrow's bytes of the key columns.
        positions: Of each key, among all keys of the lookup.
    """

    bucket: TableBucket
    keys: Buffer
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RowsFound:
    """What there is for the keys of a part.

    Attributes:
        marks: For each key the number of its rows.
        rows: The rows with the columns wanted, key by key; every column is nullable.
    """

    marks: npt.NDArray[np.integer]
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _SentRows:
    """Rows of a schema id, as the server sends them.

    Attributes:
        schema: All columns nullable.
        filled: Which columns must not be null.
        is_wanted: Whether these are the columns wanted, in the order wanted.
    """

    schema: pa.Schema
    filled: tuple[int, ...]
    is_wanted: bool


class LookupCall:
    """Lookups by whole keys.

    Args:
        projection: Which columns.
        schema: Of the rows found: these columns, all nullable.
    """

    def __init__(self, info: TableInfo, projection: Projection, schema: pa.Schema) -> None:
        self._info = info
        self._projection = projection
        self._what = f"lookup in {info.path} (id {info.table_id})"
        self._schema = schema
        #: By schema id.
        self._sent: dict[int, _SentRows] = {}
        #: Of the answers so far.
        self.newest_schema_id = info.schema_id
        #: The columns of a key, in the order in which they travel.
        self.key_columns: Sequence[str] = info.schema.primary_key

    def send(self, gateway: TabletServerGateway, parts: Sequence[BucketKeys]) -> list[RowsFound | FlussError]:
        """Ask a server for the keys of some buckets, each bucket once."""
        request = pb.LookupRequest(table_id=self._info.table_id, projected_fields=self._projection.indices or ())
        return self._call(request, gateway.lookup, parts)

    def _call(
        self, request: Any, call: Callable[[Frame[Any]], Frame[Any]], parts: Sequence[BucketKeys]
    ) -> list[RowsFound | FlussError]:
        for part in parts:
            request.buckets_req.add(
                partition_id=part.bucket.partition_id, bucket_id=part.bucket.bucket, key_records=b""
            )
        response = call(Frame(request, [[part.keys] for part in parts]))
        return self._answers(parts, response.message.buckets_resp, iter(response.payloads))

    def _answers(
        self, parts: Sequence[BucketKeys], entries: Sequence[Entry], payloads: Iterator[Sequence[Buffer]]
    ) -> list[RowsFound | FlussError]:
        answers: dict[tuple[int | None, int], RowsFound | FlussError] = {}
        wanted = {(part.bucket.partition_id, part.bucket.bucket): part for part in parts}
        for entry in entries:
            payload = next(payloads) if entry.HasField("records") else ()
            key = partition_id_of(entry), entry.bucket_id
            if entry.error_code:
                answers[key] = error_from_code(entry.error_code, entry.error_message)
            elif key in wanted:
                answers[key] = self._decode(wanted[key], entry, payload)
        return [
            answers.get((part.bucket.partition_id, part.bucket.bucket))
            or InternalError(f"the server's answer leaves out bucket {part.bucket}")
            for part in parts
        ]

    def _decode(self, part: BucketKeys, entry: Entry, payload: Sequence[Buffer]) -> RowsFound:
        what = f"{self._what}, bucket {part.bucket.bucket}"
        marks = self._marks(entry)
        schema_id = entry.schema_id if entry.HasField("schema_id") else self._info.schema_id
        self.newest_schema_id = max(self.newest_schema_id, schema_id)
        sent = self._sent.get(schema_id) or self._sent_rows(schema_id)
        rows = answer_rows(payload, sent.schema, what, sent.filled)
        if len(marks) != len(part.positions) or not _are_counts(marks, rows.num_rows):
            raise CorruptDataError(
                f"{what}: expected rows for {len(part.positions)} keys, found {rows.num_rows} for {len(marks)}"
            )
        if not sent.is_wanted:
            rows = pa.RecordBatch.from_arrays(self._projection.rows(rows).columns, schema=self._schema)
        return RowsFound(marks, rows)

    def _sent_rows(self, schema_id: int) -> _SentRows:
        wire = self._projection.wire_schema(schema_id)
        schema = nullable(wire)
        is_wanted = schema.equals(self._schema)
        found = self._sent[schema_id] = _SentRows(self._schema if is_wanted else schema, not_null(wire), is_wanted)
        return found

    def _marks(self, entry: Entry) -> npt.NDArray[np.integer]:
        assert isinstance(entry, pb.PbLookupRespForBucket)
        marks: npt.NDArray[np.integer] = np.frombuffer(entry.found, dtype=np.bool_).astype(np.int8)
        return marks


class PrefixCall(LookupCall):
    """Lookups by how keys begin: by the bucket key."""

    def __init__(self, info: TableInfo, projection: Projection, schema: pa.Schema) -> None:
        super().__init__(info, projection, schema)
        self.key_columns = info.descriptor.bucket_key

    def send(self, gateway: TabletServerGateway, parts: Sequence[BucketKeys]) -> list[RowsFound | FlussError]:
        """Ask a server for the prefixes of some buckets, each bucket once."""
        request = pb.PrefixLookupRequest(table_id=self._info.table_id, projected_fields=self._projection.indices or ())
        return self._call(request, gateway.prefix_lookup, parts)

    def _marks(self, entry: Entry) -> npt.NDArray[np.integer]:
        assert isinstance(entry, pb.PbPrefixLookupRespForBucket)
        if len(entry.counts) % _COUNT.itemsize:
            raise CorruptDataError(f"prefix lookup in {self._info.path}: the answer's counts are not whole numbers")
        return np.frombuffer(entry.counts, dtype=_COUNT)


def _are_counts(marks: npt.NDArray[np.integer], total: int) -> bool:
    """Return whether numbers of rows add up to a total, and none is negative."""
    if marks.size <= _FEW:  # reducing an array takes longer than adding up a few numbers
        counts = marks.tolist()
        return min(counts, default=0) >= 0 and sum(counts) == total
    return int(marks.min()) >= 0 and int(marks.sum(dtype=np.int64)) == total


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema with every column nullable: of rows that may not be there."""
    return pa.schema([field.with_nullable(True) for field in schema])


def answer_rows(
    payload: Sequence[Buffer], schema: pa.Schema, what: str, filled: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return the rows of an answer's payload, checked; none for an answer without rows.

    Raises:
        CorruptDataError: A check failed.
    """
    data = payload[0] if len(payload) == 1 else b"".join(payload)
    if not memoryview(data).nbytes:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return decode_rows(memoryview(data), schema, what, filled)


#: Values of exactly these Python types are taken as they are; of integers, those that the type holds.
_PLAIN: Final = {"TINYINT": int, "SMALLINT": int, "INT": int, "BIGINT": int, "STRING": str, "BYTES": bytes}
_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
#: Keys with longer values are not gathered: they are no plain ones.
_LENGTH_MAX: Final = 4096
_FIRST: Final = np.zeros(1, dtype=np.int64)


class PlainKey(NamedTuple):
    """One key: the values of its columns, and the partition that it is in."""

    values: Sequence[Any]
    partition_id: int | None


class PlainKeys:
    """Makes parts of lookups of single keys of one table, of exact Python types of integers, text and bytes only.

    All other keys, and all that are wrong, are left to `fluss_lab.model.values.row_input`, which takes more forms and says what
    is wrong. This way is ten times as fast, and half of what a lookup of a single key costs its client.

    Args:
        connection: To the cluster; it knows the partitions.
        router: Of the table.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, router: Router) -> None:
        self._connection, self._info, self._router = connection, info, router
        columns = [info.schema.column(name) for name in info.schema.primary_key]
        self._plain = all(column.type.name in _PLAIN for column in columns)
        self._columns = [(column.name, _PLAIN.get(column.type.name), _check_of(column.type.name)) for column in columns]
        self._schema = pa.schema([column.type.arrow_field(column.name) for column in columns])
        self._types = self._schema.types
        self._single = SingleKey.of(self._schema)
        self._has_one_bucket = info.descriptor.buckets == 1 and not info.descriptor.partitioned_by

    def key(self, keys: object) -> PlainKey | None:
        """Return the one key that was given; None when it is not a plain one, or not of a known partition.

        Args:
            keys: The argument of `Lookuper.lookup`.
        """
        key = keys[0] if type(keys) is list and len(keys) == 1 else keys
        if not self._plain or not (type(key) is dict or isinstance(key, Mapping)) or len(key) != len(self._columns):
            return None
        values: list[Any] = []
        for name, kind, is_fit in self._columns:
            value = key.get(name)
            if type(value) is not kind or not is_fit(value):
                return None
            values.append(value)
        partition_id = None
        if self._info.descriptor.partitioned_by and (partition_id := self._partition_id(key)) is None:
            return None
        return PlainKey(values, partition_id)

    def parts(self, keys: Sequence[PlainKey]) -> list[BucketKeys]:
        """Return the parts that look keys up; their positions are those of the keys."""
        table_id = self._info.table_id
        if len(keys) == 1 and self._single is not None and self._has_one_bucket:
            (value,) = keys[0].values
            return [BucketKeys(TableBucket(table_id, None, 0), self._single.encode(value), _FIRST)]
        columns = zip(*(key.values for key in keys), strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if len(keys) == 1:
            bucket = TableBucket(table_id, keys[0].partition_id, self._router.bucket_of_first(batch))
            return [BucketKeys(bucket, batch.serialize(), _FIRST)]
        if self._has_one_bucket:
            return [BucketKeys(TableBucket(table_id, None, 0), batch.serialize(), np.arange(len(keys)))]
        places: dict[tuple[int | None, int], list[int]] = {}
        for position, (key, number) in enumerate(zip(keys, self._router.buckets_of(batch), strict=True)):
            places.setdefault((key.partition_id, number), []).append(position)
        parts = []
        for place, some in places.items():
            chosen = batch if len(places) == 1 else batch.take(pa.array(some))
            parts.append(BucketKeys(TableBucket(table_id, *place), chosen.serialize(), np.array(some)))
        return parts

    def _partition_id(self, key: Mapping[str, str]) -> int | None:
        try:
            name = partition_name(tuple(key[column] for column in self._info.descriptor.partitioned_by))
        except FlussError:
            return None
        found = self._connection.partitions(self._info, refresh=False).get(name)
        return None if found is None else found.partition_id


def _check_of(type_name: str) -> Callable[[Any], bool]:
    """Return what tells whether a value of the right Python type is one of a type, and short."""
    if type_name not in _BITS:
        return _is_short
    half = 1 << _BITS[type_name] - 1
    return lambda value: -half <= value < half


def _is_short(value: str | bytes) -> bool:
    if len(value) > _LENGTH_MAX:
        return False
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeError:
            return False
    return True
