"""Partitions past their retention that stay."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_lab.model import TablePath


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """A partition past its retention that stays, because the lake does not hold all of it.

    Attributes:
        table_id: Whose it is.
        path: The table.
        name: The partition's.
        since_ms: When its retention ended.
        reason: Why it stays.
    """

    table_id: int
    path: TablePath
    name: str
    since_ms: int
    reason: str
