"""Splits: the pieces of a tiering round, one task each, and how they travel.

Names after the source document "Tiering Service Deep Dive".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fluss_lab.errors import CorruptDataError, InvalidNameError
from fluss_lab.model import TableBucket, TablePath

#: Version of the JSON form. Version 2 has snapshot splits, and log splits that follow another one.
SPLIT_VERSION: Final = 2
_LOG: Final = "log"
_SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True, slots=True)
class TieringSplit(ABC):
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

    @property
    @abstractmethod
    def start(self) -> int:
        """Return where the split begins: the lake holds the bucket up to here before it, by this round or an earlier one."""

    @property
    @abstractmethod
    def end(self) -> int:
        """Return how far the lake holds the bucket with it (exclusive)."""

    @property
    @abstractmethod
    def replay_start(self) -> int:
        """Return the first offset from which the bucket's log can be replayed, were this split its first."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the split as versioned JSON."""

    def __str__(self) -> str:
        partition = "" if self.partition_name is None else f" partition {self.partition_name}"
        return f"{self.table_path}{partition} bucket {self.table_bucket.bucket} {self._what()}"

    @abstractmethod
    def _what(self) -> str: ...

    def _common_json(self, kind: str) -> dict[str, Any]:
        return {
            "version": SPLIT_VERSION,
            "kind": kind,
            "table_path": str(self.table_path),
            "table_id": self.table_bucket.table_id,
            "partition_id": self.table_bucket.partition_id,
            "partition_name": self.partition_name,
            "bucket": self.table_bucket.bucket,
            "number_of_splits": self.number_of_splits,
            "split_index": self.split_index,
        }


@dataclass(frozen=True, slots=True)
class TieringLogSplit(TieringSplit):
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

    def to_json(self) -> dict[str, Any]:
        """Return the split as versioned JSON."""
        return self._common_json(_LOG) | {
            "starting_offset": self.starting_offset,
            "stopping_offset": self.stopping_offset,
            "follows": self.follows,
        }


@dataclass(frozen=True, slots=True)
class TieringSnapshotSplit(TieringSplit):
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

    def to_json(self) -> dict[str, Any]:
        """Return the split as versioned JSON."""
        return self._common_json(_SNAPSHOT) | {"snapshot_id": self.snapshot_id, "log_offset": self.log_offset}


def split_from_json(value: Mapping[str, Any]) -> TieringSplit:
    """Read the JSON form of a split.

    Raises:
        CorruptDataError: A version or kind that this release does not know, or not that form.
    """
    try:
        kind = value["kind"]
        if value["version"] != SPLIT_VERSION or kind not in (_LOG, _SNAPSHOT):
            raise CorruptDataError(
                f"tiering split: expected version {SPLIT_VERSION} of kind {_LOG!r} or {_SNAPSHOT!r}, found version "
                f"{value['version']!r} of kind {kind!r}; driver and workers run different releases of fluss_lab"
            )
        path, bucket, partition = TablePath.parse(value["table_path"]), _bucket(value), value["partition_name"]
        count, index = int(value["number_of_splits"]), int(value["split_index"])
        if kind == _SNAPSHOT:
            return TieringSnapshotSplit(
                path, bucket, partition, count, index, int(value["snapshot_id"]), int(value["log_offset"])
            )
        start, stop = int(value["starting_offset"]), int(value["stopping_offset"])
        return TieringLogSplit(path, bucket, partition, count, index, start, stop, bool(value["follows"]))
    except (KeyError, TypeError, ValueError, InvalidNameError) as error:
        raise CorruptDataError(f"tiering split: not the form of a split: {error!r}") from error


def _bucket(value: Mapping[str, Any]) -> TableBucket:
    partition_id = value["partition_id"]
    return TableBucket(
        int(value["table_id"]), None if partition_id is None else int(partition_id), int(value["bucket"])
    )


def number_splits(splits: Sequence[TieringSplit]) -> list[TieringSplit]:
    """Return the splits with their positions and their number filled in."""
    return [replace(split, number_of_splits=len(splits), split_index=index) for index, split in enumerate(splits)]
