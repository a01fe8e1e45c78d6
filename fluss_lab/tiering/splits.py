"""Splits: the pieces of a tiering round, one task each, and how they travel.

Names after the source document "Tiering Service Deep Dive".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fluss_lab.errors import CorruptDataError, InvalidNameError
from fluss_lab.model import TableBucket, TablePath

#: Version of the JSON form.
SPLIT_VERSION: Final = 1
_LOG: Final = "log"


@dataclass(frozen=True, slots=True)
class TieringSplit:
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


@dataclass(frozen=True, slots=True)
class TieringLogSplit(TieringSplit):
    """Records ``[starting_offset, stopping_offset)`` of one bucket's log."""

    starting_offset: int
    stopping_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.starting_offset < self.stopping_offset:
            raise ValueError(
                f"split of {self.table_bucket}: expected 0 <= start < stop, "
                f"found [{self.starting_offset}, {self.stopping_offset})"
            )

    def __str__(self) -> str:
        partition = "" if self.partition_name is None else f" partition {self.partition_name}"
        return (
            f"{self.table_path}{partition} bucket {self.table_bucket.bucket} "
            f"[{self.starting_offset}, {self.stopping_offset})"
        )

    @property
    def records(self) -> int:
        """Return how many offsets the split covers."""
        return self.stopping_offset - self.starting_offset

    def to_json(self) -> dict[str, Any]:
        """Return the split as versioned JSON."""
        return {
            "version": SPLIT_VERSION,
            "kind": _LOG,
            "table_path": str(self.table_path),
            "table_id": self.table_bucket.table_id,
            "partition_id": self.table_bucket.partition_id,
            "partition_name": self.partition_name,
            "bucket": self.table_bucket.bucket,
            "starting_offset": self.starting_offset,
            "stopping_offset": self.stopping_offset,
            "number_of_splits": self.number_of_splits,
            "split_index": self.split_index,
        }


def split_from_json(value: Mapping[str, Any]) -> TieringLogSplit:
    """Read the JSON form of a split.

    Raises:
        CorruptDataError: A version or kind that this release does not know, or not that form.
    """
    try:
        if value["version"] != SPLIT_VERSION or value["kind"] != _LOG:
            raise CorruptDataError(
                f"tiering split: expected version {SPLIT_VERSION} of kind {_LOG!r}, found version {value['version']!r} of "
                f"kind {value['kind']!r}; driver and workers run different releases of fluss_lab"
            )
        partition_id = value["partition_id"]
        bucket = TableBucket(
            int(value["table_id"]), None if partition_id is None else int(partition_id), int(value["bucket"])
        )
        return TieringLogSplit(
            TablePath.parse(value["table_path"]),
            bucket,
            value["partition_name"],
            int(value["number_of_splits"]),
            int(value["split_index"]),
            int(value["starting_offset"]),
            int(value["stopping_offset"]),
        )
    except (KeyError, TypeError, ValueError, InvalidNameError) as error:
        raise CorruptDataError(f"tiering split: not the form of a split: {error!r}") from error


def number_splits(splits: Sequence[TieringLogSplit]) -> list[TieringLogSplit]:
    """Return the splits with their positions and their number filled in."""
    return [replace(split, number_of_splits=len(splits), split_index=index) for index, split in enumerate(splits)]
