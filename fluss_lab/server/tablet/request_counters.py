"""The counters of a tablet server's requests: number, size, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_lab.rpc.message_codec import Frame

#: Methods that are counted by table -> as Fluss calls their requests.
_KINDS: Final = {
    "produce_log": "ProduceLog", "fetch_log": "FetchLog", "put_kv": "PutKv", "lookup": "Lookup",
    "prefix_lookup": "PrefixLookup", "limit_scan": "LimitScan",
}  # fmt: skip
#: Bytes of a prefix's count of rows in an answer.
_COUNT_BYTES: Final = 4


@dataclass(slots=True)
class BucketCounters:
    """What was read from one bucket's log since it was opened. What was written is known to the log itself.

    Attributes:
        first_end: The log's end when it was opened.
        bytes_out: Bytes of records in answers to fetches.
    """

    first_end: int
    bytes_out: int = 0


@dataclass(slots=True)
class RequestCounters:
    """Requests about a table, one for each bucket, and those of them that failed."""

    total: int = 0
    failed: int = 0


@dataclass(slots=True)
class TableCounters:
    """The requests about one table.

    Attributes:
        requests: By kind, as Fluss calls it: ``ProduceLog``.
        keys: Keys and prefixes that were looked up.
    """

    requests: dict[str, RequestCounters] = field(default_factory=dict)
    keys: int = 0


class RequestTally:
    """Counts requests by table.

    Args:
        is_table: Returns whether a table has buckets here; others are not counted, so that requests cannot fill the
            memory.
    """

    def __init__(self, is_table: Callable[[int], bool]) -> None:
        self._is_table = is_table
        self._tables: dict[int, TableCounters] = {}

    @property
    def tables(self) -> Mapping[int, TableCounters]:
        """Return the counters by table id."""
        return self._tables

    def note_answer(self, method: str, request: Any, response: Any) -> None:
        """Note a request and its answer.

        Args:
            method: As the gateway calls it.
            request: Its message, or a frame with it.
            response: Likewise.
        """
        if (kind := _KINDS.get(method)) is None:
            return
        asked = request.message if isinstance(request, Frame) else request
        answer = response.message if isinstance(response, Frame) else response
        if method == "fetch_log":
            for table in answer.tables_resp:
                self._count(table.table_id, kind, table.buckets_resp)
        else:
            self._count(asked.table_id, kind, [answer] if method == "limit_scan" else answer.buckets_resp)

    def _count(self, table_id: int, kind: str, answers: Iterable[Any]) -> None:
        if not self._is_table(table_id):
            self._tables.pop(table_id, None)
            return
        counters = self._tables.get(table_id) or self._tables.setdefault(table_id, TableCounters())
        requests = counters.requests.get(kind) or counters.requests.setdefault(kind, RequestCounters())
        for answer in answers:
            requests.total += 1
            if answer.HasField("error_code"):
                requests.failed += 1
            elif kind == "Lookup":
                counters.keys += len(answer.found)
            elif kind == "PrefixLookup":
                counters.keys += len(answer.counts) // _COUNT_BYTES
