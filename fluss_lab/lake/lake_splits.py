"""The splits of a lake snapshot: what one reader reads, and how splits travel to tasks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import Whole, decode, encode


class LakeSplit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A piece of a lake snapshot that one reader reads: one Parquet file.

    Attributes:
        path: URI of the file. Other readers (Spark's) may open it by that, with `fluss_lab.lake.LakeSource.file_columns`.
        partition: Partition name, or None.
        bucket: Bucket that all its rows are of.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        rows: Rows in the file, deleted ones among them.
        size_bytes: Bytes of the file.
        deletes: Of a primary-key table: what may delete rows of the file, in words of the format that only its own
            `LakeSource` reads. Splits of one bucket share one tuple. Empty: the file is clean.
        detail: What else the format needs to read the file, in its own words.
    """

    path: str
    partition: str | None
    bucket: int
    min_offset: int
    max_offset: int
    rows: int
    size_bytes: int
    deletes: tuple[str, ...] = ()
    detail: str = ""


class _SharedSplits(msgspec.Struct):
    """Splits as they travel: each without what deletes its rows, behind the place that this has in `deletes`."""

    deletes: tuple[tuple[str, ...], ...]
    splits: list[tuple[Whole, LakeSplit]]


def splits_to_json(splits: Iterable[LakeSplit]) -> str:
    """Return splits as JSON, for tasks elsewhere. What splits share is in it once."""
    numbers: dict[tuple[str, ...], int] = {}
    found = [
        (numbers.setdefault(each.deletes, len(numbers)), msgspec.structs.replace(each, deletes=())) for each in splits
    ]
    return encode(_SharedSplits(tuple(numbers), found)).decode()


def splits_from_json(text: str) -> list[LakeSplit]:
    """Return the splits of `splits_to_json`, sharing what they shared.

    Raises:
        CorruptDataError: The text is not that.
    """
    value = decode(_SharedSplits, text, "splits of a lake", shown=True)
    try:
        return [msgspec.structs.replace(each, deletes=value.deletes[number]) for number, each in value.splits]
    except IndexError as error:
        raise CorruptDataError(f"splits of a lake: deletes that are not there, found {text[:200]!r}") from error
