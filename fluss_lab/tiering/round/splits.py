"""Splits: the pieces of a tiering round, one task each, and how they travel.

Names after the source document "Tiering Service Deep Dive".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from fluss_lab.model import TableBucket, TablePath


class _Split(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """What every split has.

    Attributes:
        table_path: The table.
        table_bucket: Which bucket of it, by ids.
        partition_name: Name of the bucket's partition; None without partitions.
        number_of_splits: Splits of the round that this one belongs to.
        split_index: Its position among them.
    """

    table_path: TablePath
    table_bucket: TableBucket
    partition_name: str | None
    number_of_splits: int
    split_index: int

    def __str__(self) -> str:
        partition = "" if self.partition_name is None else f" partition {self.partition_name}"
        return f"{self.table_path}{partition} bucket {self.table_bucket.bucket} {self._what()}"

    def _what(self) -> str:
        raise NotImplementedError


class TieringLogSplit(_Split, frozen=True, tag="log"):
    """Records ``[starting_offset, stopping_offset)`` of one bucket's log.

    Of a primary-key table, a ``-U`` and its ``+U`` are never in two lake snapshots: where a split ends between them, the
    ``+U`` belongs to it as well, and not to the split that follows it.

    Attributes:
        starting_offset: First offset.
        stopping_offset: Offset after the last.
        follows: Whether another split of the round ends where this one begins.
    """

    starting_offset: int
    stopping_offset: int
    follows: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.starting_offset < self.stopping_offset:
            raise ValueError(
                f"split of {self.table_bucket}: expected 0 <= start < stop, "
                f"found [{self.starting_offset}, {self.stopping_offset})"
            )

    def _what(self) -> str:
        return f"[{self.starting_offset}, {self.stopping_offset})"

    @property
    def start(self) -> int:
        """Return the first offset."""
        return self.starting_offset

    @property
    def end(self) -> int:
        """Return the offset after the last."""
        return self.stopping_offset

    @property
    def replay_start(self) -> int:
        """Return the first offset."""
        return self.starting_offset

    @property
    def records(self) -> int:
        """Return how many offsets the split covers."""
        return self.stopping_offset - self.starting_offset


class TieringSnapshotSplit(_Split, frozen=True, tag="snapshot"):
    """The rows that one bucket of a primary-key table had at a key-value snapshot: all changes below its log offset.

    Attributes:
        snapshot_id: Of the key-value snapshot.
        log_offset: Its log offset: the log from there on has the other changes, and replay begins there.
    """

    snapshot_id: int
    log_offset: int

    def __post_init__(self) -> None:
        if self.snapshot_id < 0 or self.log_offset < 1:
            raise ValueError(
                f"split of {self.table_bucket}: expected a snapshot id and a log offset behind the log's begin, found "
                f"snapshot {self.snapshot_id} at {self.log_offset}"
            )

    def _what(self) -> str:
        return f"snapshot {self.snapshot_id} at log offset {self.log_offset}"

    @property
    def start(self) -> int:
        """Return 0: the rows are what all changes from the first on came to."""
        return 0

    @property
    def end(self) -> int:
        """Return the snapshot's log offset."""
        return self.log_offset

    @property
    def replay_start(self) -> int:
        """Return the snapshot's log offset."""
        return self.log_offset


#: Each says where it begins (`start`: the lake holds the bucket up to here before it, by this round or an earlier one), how
#: far the lake holds the bucket with it (`end`, exclusive), and from which offset on the bucket's log could be replayed were
#: it the bucket's first (`replay_start`).
TieringSplit: TypeAlias = TieringLogSplit | TieringSnapshotSplit


def number_splits(splits: Sequence[TieringSplit]) -> list[TieringSplit]:
    """Return the splits with their positions and their number filled in."""
    count = len(splits)
    return [
        msgspec.structs.replace(split, number_of_splits=count, split_index=index) for index, split in enumerate(splits)
    ]
