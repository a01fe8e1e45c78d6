"""The two kinds of writing, in what they differ: which request carries the batches, and what its answer must say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Final, Protocol, TypeAlias, TypeVar

from fluss_lab.client.write.bucket_queue import Batch
from fluss_lab.model import TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

#: Answer when the leader has the batch in its log (the cluster's own `log.durability` says what that means).
ACKS: Final = 1
#: An upsert makes at most a record for the row before and one for the row after.
CHANGES_PER_ROW_MAX: Final = 2

Request: TypeAlias = pb.ProduceLogRequest | pb.PutKvRequest
Answers: TypeAlias = Sequence[pb.PbProduceLogRespForBucket] | Sequence[pb.PbPutKvRespForBucket]


R = TypeVar("R", pb.ProduceLogRequest, pb.PutKvRequest)


class WriteKind(Protocol):
    """How batches of one table travel."""

    @property
    def verb(self) -> str:
        """Return what is done to the table, for messages: ``append to``."""
        ...

    def request(self, timeout_ms: int) -> Request:
        """Return a request, still without buckets."""
        ...

    def send(self, gateway: TabletServerGateway, request: Request, batches: Sequence[Batch]) -> Answers:
        """Send a request with the batches of its buckets, in their order; return the answer for each bucket.

        Raises:
            FlussError: The server did not answer, or refused the whole.
        """
        ...

    def change_types(self, batch: Batch) -> bytes | None:
        """Return a change type for each row of a batch; None for rows that are appended."""
        ...

    def ranges(self, batch: Batch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return the offsets of each piece of a batch whose records are at ``[base, end)``; None when that cannot be."""
        ...


class Appends:
    """Rows appended to a log table: each becomes one record."""

    verb: Final = "append to"

    def __init__(self, info: TableInfo) -> None:
        self._table_id = info.table_id

    def request(self, timeout_ms: int) -> pb.ProduceLogRequest:
        """Return a ProduceLog."""
        return pb.ProduceLogRequest(acks=ACKS, table_id=self._table_id, timeout_ms=timeout_ms)

    def send(self, gateway: TabletServerGateway, request: Request, batches: Sequence[Batch]) -> Answers:
        """Send a ProduceLog."""
        assert isinstance(request, pb.ProduceLogRequest)
        response: pb.ProduceLogResponse = gateway.produce_log(_frame(request, batches))
        return list(response.buckets_resp)

    def change_types(self, batch: Batch) -> None:
        """Return None."""

    def ranges(self, batch: Batch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return one offset a row, piece after piece."""
        edges = list(accumulate((piece.rows.num_rows for piece in batch.pieces), initial=base))
        return list(pairwise(edges)) if edges[-1] == end else None


class Upserts:
    """Rows upserted into, and keys deleted from a primary-key table: the server makes the changelog of them.

    Args:
        info: The table.
        target_columns: Indexes of the columns that the rows have, ascending; empty for all.
    """

    verb: Final = "upsert into"

    def __init__(self, info: TableInfo, target_columns: Sequence[int]) -> None:
        self._table_id = info.table_id
        self._target_columns = list(target_columns)

    def request(self, timeout_ms: int) -> pb.PutKvRequest:
        """Return a PutKv."""
        return pb.PutKvRequest(
            acks=ACKS, table_id=self._table_id, timeout_ms=timeout_ms, target_columns=self._target_columns
        )

    def send(self, gateway: TabletServerGateway, request: Request, batches: Sequence[Batch]) -> Answers:
        """Send a PutKv."""
        assert isinstance(request, pb.PutKvRequest)
        response: pb.PutKvResponse = gateway.put_kv(_frame(request, batches))
        return list(response.buckets_resp)

    def change_types(self, batch: Batch) -> bytes:
        """Return upsert or delete for each row."""
        return bytes(chain.from_iterable([piece.change] * piece.rows.num_rows for piece in batch.pieces))

    def ranges(self, batch: Batch, base: int, end: int) -> list[tuple[int, int]] | None:
        """Return the batch's whole changelog for each piece: rows of one key may have come together in it."""
        if not base <= end <= base + CHANGES_PER_ROW_MAX * batch.rows:
            return None
        return [(base, end)] * len(batch.pieces)


def _frame(request: R, batches: Sequence[Batch]) -> Frame[R]:
    return Frame(request, [batch.payload or [] for batch in batches])
