"""The two kinds of writing, in what they differ: which request carries the batches, and what its answer must say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Final, Protocol, TypeAlias, TypeVar

from fluss_lab.client.write.bucket_queue import UNACKED_MAX, WriteBatch
from fluss_lab.errors import FlussError, InternalError, error_from_code
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame, partition_id_of

#: Answer when the leader has the batch in its log (the cluster's own `log.durability` says what that means).
ACKS: Final = 1
#: An upsert makes at most a record for the row before and one for the row after.
CHANGES_PER_ROW_MAX: Final = 2

#: A bucket and the encoded bytes of a batch for it, or of several.
EncodedBatch: TypeAlias = tuple[TableBucket, Sequence[Buffer]]
#: What a server answers about one bucket.
WriteAnswer: TypeAlias = pb.PbProduceLogRespForBucket | pb.PbPutKvRespForBucket


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a bucket did not acknowledge a payload.

    Attributes:
        is_in_log: Whether its records are in the log all the same: they could not be made as durable as promised.
    """

    error: FlussError
    is_in_log: bool = False


R = TypeVar("R", pb.ProduceLogRequest, pb.PutKvRequest)


class WriteKind(Protocol):
    """How batches of one table travel."""

    @property
    def verb(self) -> str:
        """Return what is done to the table, for messages: ``append to``."""
        ...

    @property
    def batches_max(self) -> int:
        """Return how many batches of a bucket a request may carry; they are written all or none."""
        ...

    def send(
        self, gateway: TabletServerGateway, batches: Sequence[EncodedBatch], timeout_ms: int
    ) -> list[WriteAnswer | Refusal]:
        """Send payloads, one a bucket, in one request; return the answer or the refusal of each, in their order.

        Raises:
            FlussError: The server did not answer, or refused the whole.
        """
        ...

    def change_types(self, batch: WriteBatch) -> bytes | None:
        """Return a change type for each row of a batch; None for rows that are appended."""
        ...

    def ranges(self, batch: WriteBatch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return the offsets of each piece of a batch whose records are at ``[base, end)``; None when that cannot be."""
        ...


class Appends:
    """Rows appended to a log table: each becomes one record."""

    verb: Final = "append to"
    batches_max: Final = UNACKED_MAX

    def __init__(self, info: TableInfo) -> None:
        self._table_id = info.table_id

    def send(
        self, gateway: TabletServerGateway, batches: Sequence[EncodedBatch], timeout_ms: int
    ) -> list[WriteAnswer | Refusal]:
        """Send a ProduceLog."""
        request = pb.ProduceLogRequest(acks=ACKS, table_id=self._table_id, timeout_ms=timeout_ms)
        return _answers(batches, gateway.produce_log(_frame(request, batches)).buckets_resp)

    def change_types(self, batch: WriteBatch) -> None:
        """Return None."""

    def ranges(self, batch: WriteBatch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return one offset a row, piece after piece."""
        edges = list(accumulate((piece.rows.num_rows for piece in batch.pieces), initial=base))
        return list(pairwise(edges)) if edges[-1] == end else None


class Upserts:
    """Rows upserted into, and keys deleted from a primary-key table: the server makes the changelog of them.

    Args:
        target_columns: Indexes of the columns that the rows have, ascending; empty for all.
    """

    verb: Final = "upsert into"
    batches_max: Final = 1

    def __init__(self, info: TableInfo, target_columns: Sequence[int]) -> None:
        self._table_id = info.table_id
        self._target_columns = list(target_columns)

    def send(
        self, gateway: TabletServerGateway, batches: Sequence[EncodedBatch], timeout_ms: int
    ) -> list[WriteAnswer | Refusal]:
        """Send a PutKv."""
        request = pb.PutKvRequest(
            acks=ACKS, table_id=self._table_id, timeout_ms=timeout_ms, target_columns=self._target_columns
        )
        return _answers(batches, gateway.put_kv(_frame(request, batches)).buckets_resp)

    def change_types(self, batch: WriteBatch) -> bytes:
        """Return upsert or delete for each row."""
        return bytes(chain.from_iterable([piece.change] * piece.rows.num_rows for piece in batch.pieces))

    def ranges(self, batch: WriteBatch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return the batch's whole changelog for each piece: rows of one key may have come together in it."""
        if not base <= end <= base + CHANGES_PER_ROW_MAX * batch.rows:
            return None
        return [(base, end)] * len(batch.pieces)


def shares_of(
    kind: WriteKind, batches: Sequence[WriteBatch], base: int, end: int
) -> list[list[tuple[int, int]]] | None:
    """Return the offsets of each piece of each batch of one payload whose records are at ``[base, end)``.

    Several batches, of rows that are appended, lie behind one another, without anything between them.

    Returns:
        None when that cannot be.
    """
    edges = [base, end]
    if len(batches) > 1:
        edges = list(accumulate((batch.rows for batch in batches), initial=base))
        if edges[-1] != end:
            return None
    found = [kind.ranges(batch, *share) for batch, share in zip(batches, pairwise(edges), strict=True)]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _frame(request: R, batches: Sequence[EncodedBatch]) -> Frame[R]:
    for bucket, _ in batches:
        request.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=b"")
    return Frame(request, [payload for _, payload in batches])


def _answers(batches: Sequence[EncodedBatch], entries: Iterable[WriteAnswer]) -> list[WriteAnswer | Refusal]:
    by_bucket = {(partition_id_of(entry), entry.bucket_id): entry for entry in entries}
    return [_answer(bucket, by_bucket.get((bucket.partition_id, bucket.bucket))) for bucket, _ in batches]


def _answer(bucket: TableBucket, entry: WriteAnswer | None) -> WriteAnswer | Refusal:
    if entry is None:
        return Refusal(InternalError(f"the server's answer leaves out bucket {bucket}"))
    if not entry.error_code:
        return entry
    return Refusal(error_from_code(entry.error_code, entry.error_message), is_in_log=entry.HasField("base_offset"))
