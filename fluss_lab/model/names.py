"""Names of databases, tables, columns and partitions, and how tables and buckets are identified."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from fluss_lab.errors import InvalidNameError, InvalidPartitionError

NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

#: Columns that fluss_lab, Iceberg, Arrow's datasets or Spark's Parquet reader add beside the user's; see also `is_reserved_column`.
RESERVED_COLUMNS: Final = frozenset({
    "__bucket", "__offset", "__timestamp", "_change_type", "_bucket", "_partition", "_log_offset", "_commit_timestamp",
    "_previous_offset", "_source", "_file", "_pos", "_spec_id", "_deleted", "_row_id", "_last_updated_sequence_number",
    "__fragment_index", "__batch_index", "__last_in_fragment", "__filename", "_tmp_metadata_row_index",
})  # fmt: skip

#: What stands between the values in the name of a partition by several columns, as in Fluss.
PARTITION_SEPARATOR: Final = "$"
PARTITION_VALUE_BYTES_MAX: Final = 255

#: A bucket of a table by the name of its partition (None without partitions) and its number.
BucketKey: TypeAlias = tuple[str | None, int]


def check_name(name: object, kind: str) -> str:
    """Return the name if it keeps the naming rule.

    Raises:
        InvalidNameError: It does not; the text gives the rule.
    """
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        shown = name if not isinstance(name, str) or len(name) <= 140 else name[:140] + "..."
        raise InvalidNameError(
            f"{kind} name {shown!r}: expected a letter or underscore, then letters, digits or underscores, "
            "at most 128 characters in all"
        )
    return name


def is_reserved_column(name: str) -> bool:
    """Return whether a column name belongs to the system, in any case."""
    lowered = name.lower()
    return lowered in RESERVED_COLUMNS or re.fullmatch(r"_r\d+", lowered) is not None


def check_column_name(name: object) -> str:
    """Return the name if a user's column may have it.

    Raises:
        InvalidNameError: It breaks the naming rule or is reserved.
    """
    checked = check_name(name, "column")
    if is_reserved_column(checked):
        raise InvalidNameError(f"column name {checked!r} is reserved for the system; choose another name")
    return checked


@dataclass(frozen=True, slots=True, order=True)
class TablePath:
    """Where a table is found: database and table name, both checked."""

    database: str
    table: str

    def __post_init__(self) -> None:
        check_name(self.database, "database")
        check_name(self.table, "table")

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @staticmethod
    def parse(text: str | TablePath) -> TablePath:
        """Read ``database.table``.

        >>> TablePath.parse("nyc.flights").table
        'flights'

        Raises:
            InvalidNameError: It is not two valid names with a dot between.
        """
        if isinstance(text, TablePath):
            return text
        parts = text.split(".") if isinstance(text, str) else []
        if len(parts) != 2:
            raise InvalidNameError(f"table path {text!r}: expected 'database.table'")
        return TablePath(parts[0], parts[1])


@dataclass(frozen=True, slots=True)
class TableBucket:
    """One bucket of one table: what holds a log. Identified by ids, so a name used again is another bucket."""

    table_id: int
    partition_id: int | None
    bucket: int

    def __str__(self) -> str:
        partition = "" if self.partition_id is None else f"/p{self.partition_id}"
        return f"t{self.table_id}{partition}/b{self.bucket}"

    def sort_key(self) -> tuple[int, int, int]:
        """Return a key that orders buckets: by table, partition, bucket."""
        return (self.table_id, -1 if self.partition_id is None else self.partition_id, self.bucket)


def partition_name(values: tuple[str, ...]) -> str:
    """Return the name of the partition with these column values, in order.

    Raises:
        InvalidPartitionError: A value is no string, empty, too long, or has a character that cannot be in it.
    """
    for value in values:
        if not isinstance(value, str) or not value:
            raise InvalidPartitionError(f"partition value {value!r}: expected a string that is not empty")
        if len(value.encode("utf-8", "surrogatepass")) > PARTITION_VALUE_BYTES_MAX:
            raise InvalidPartitionError(
                f"partition value {value[:40]!r}...: expected at most {PARTITION_VALUE_BYTES_MAX} bytes of UTF-8"
            )
        if PARTITION_SEPARATOR in value or not value.isprintable():
            raise InvalidPartitionError(
                f"partition value {value!r}: expected printable characters without {PARTITION_SEPARATOR!r}"
            )
    return PARTITION_SEPARATOR.join(values)


def partition_values(name: str) -> tuple[str, ...]:
    """Return the column values of a partition name."""
    return tuple(name.split(PARTITION_SEPARATOR))
