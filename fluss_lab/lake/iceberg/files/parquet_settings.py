"""The settings of the lake's Parquet files, and the encoding of each column.

Measured (``zstd``, 11 columns): 64k to 128k rows a row group make a seek 5 to 10 times faster than one row group; a
dictionary only where values repeat, and deltas for offsets and timestamps, write twice as fast as pyarrow's defaults
and a third smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import TableProperties

from fluss_lab.errors import InvalidPropertyError

#: Rows of a row group, the unit in which pyarrow seeks. Iceberg's property may set fewer or more.
ROW_GROUP_ROWS: Final = 128 * 1024
#: Bytes in memory of a row group while it is gathered: what one writer holds. 2,000 wide rows reach it before 128k do.
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
#: Whatever the file size asked for, row groups do not get smaller than this on its account.
ROW_GROUP_BYTES_MIN: Final = 64 * 1024
#: Rows looked at to find whether a column's values repeat, and how many of them may be distinct for a dictionary.
SAMPLE_ROWS: Final = 8192
DISTINCT_SHARE_MAX: Final = 0.25
#: Iceberg's codec names that pyarrow writes, to pyarrow's.
CODECS: Final[Mapping[str, str]] = {
    "zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "brotli": "brotli", "lz4": "lz4", "uncompressed": "none",
}  # fmt: skip
#: Iceberg's default of ``write.delete.target-file-size-bytes``.
DELETE_FILE_BYTES: Final = 64 * 1024 * 1024
_WRITE: Final = "write."
_WRITE_DELETE: Final = "write.delete."
_LEVELS: Final[Mapping[str, range]] = {"zstd": range(-7, 23), "gzip": range(1, 10), "brotli": range(12)}


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How files are written, from a lake table's write properties.

    Attributes:
        codec: Name of the compression in pyarrow.
        level: Its level; None for pyarrow's own (1 for zstd).
        row_group_rows: A row group ends at so many rows,
        row_group_bytes: or at so many bytes in memory, whichever comes first.
        page_bytes: Target size of a data page.
        page_rows: A data page ends at so many rows; None: as pyarrow has it.
        dictionary_bytes: A column chunk's dictionary ends at this size.
        file_bytes: A file ends with the row group that reaches this size.
    """

    codec: str
    level: int | None
    row_group_rows: int
    row_group_bytes: int
    page_bytes: int
    page_rows: int | None
    dictionary_bytes: int
    file_bytes: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> ParquetSettings:
        """Return the settings that a table's properties ask for.

        Raises:
            InvalidPropertyError: A value that cannot be.
        """
        names = TableProperties
        codec = properties.get(names.PARQUET_COMPRESSION, names.PARQUET_COMPRESSION_DEFAULT).lower()
        if codec not in CODECS:
            raise InvalidPropertyError(
                f"property {names.PARQUET_COMPRESSION!r}: expected one of {', '.join(CODECS)}, found {codec!r}"
            )
        file_bytes = _number(properties, names.WRITE_TARGET_FILE_SIZE_BYTES, names.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
        return ParquetSettings(
            CODECS[codec],
            _level(codec, properties.get(names.PARQUET_COMPRESSION_LEVEL)),
            _number(properties, names.PARQUET_ROW_GROUP_LIMIT, ROW_GROUP_ROWS),
            # A file ends with a row group, so small files need small ones.
            min(
                _number(properties, names.PARQUET_ROW_GROUP_SIZE_BYTES, ROW_GROUP_BYTES),
                max(file_bytes, ROW_GROUP_BYTES_MIN),
            ),
            _number(properties, names.PARQUET_PAGE_SIZE_BYTES, names.PARQUET_PAGE_SIZE_BYTES_DEFAULT),
            _number(properties, names.PARQUET_PAGE_ROW_LIMIT, 1)
            if names.PARQUET_PAGE_ROW_LIMIT in properties
            else None,
            _number(properties, names.PARQUET_DICT_SIZE_BYTES, names.PARQUET_DICT_SIZE_BYTES_DEFAULT),
            file_bytes,
        )

    @staticmethod
    def of_deletes(properties: Mapping[str, str]) -> ParquetSettings:
        """Return the settings of delete files: those of ``write.delete.``, else the data files'; 64 MB a file.

        Raises:
            InvalidPropertyError: A value that cannot be.
        """
        names = TableProperties
        own = {
            _WRITE + key.removeprefix(_WRITE_DELETE): value
            for key, value in properties.items()
            if key.startswith(_WRITE_DELETE)
        }
        merged = {**properties, names.WRITE_TARGET_FILE_SIZE_BYTES: str(DELETE_FILE_BYTES), **own}
        if names.PARQUET_COMPRESSION in own and names.PARQUET_COMPRESSION_LEVEL not in own:
            # A level is one of its codec.
            merged.pop(names.PARQUET_COMPRESSION_LEVEL, None)
        return ParquetSettings.of(merged)

    def writer_arguments(self, encodings: Encodings) -> dict[str, Any]:
        """Return the arguments of `pyarrow.parquet.ParquetWriter` beside file and schema."""
        return {
            "compression": self.codec,
            "compression_level": self.level,
            "data_page_size": self.page_bytes,
            **({} if self.page_rows is None else {"max_rows_per_page": self.page_rows}),
            "dictionary_pagesize_limit": self.dictionary_bytes,
            "use_dictionary": list(encodings.dictionary) or False,
            "column_encoding": dict.fromkeys(encodings.delta, "DELTA_BINARY_PACKED") or None,
            # Iceberg's physical types of decimals; and no Arrow schema: readers go by Iceberg's.
            "store_decimal_as_integer": True,
            "store_schema": False,
        }


def _number(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise InvalidPropertyError(f"property {key!r}: expected a whole number of at least 1, found {text!r}")
    return int(text)


def _level(codec: str, text: str | None) -> int | None:
    if text is None or codec not in _LEVELS:
        return None
    levels = _LEVELS[codec]
    try:
        level = int(text)
    except ValueError:
        level = levels.stop
    if level not in levels:
        raise InvalidPropertyError(
            f"property {TableProperties.PARQUET_COMPRESSION_LEVEL!r}: expected a level of {codec} in "
            f"[{levels.start}, {levels.stop - 1}], found {text!r}"
        )
    return level


@dataclass(frozen=True, slots=True)
class Encodings:
    """Which leaf columns, by their paths in the file, are written by dictionary and which by deltas. Others are plain."""

    dictionary: tuple[str, ...]
    delta: tuple[str, ...]


def choose_encodings(sample: pa.Table, ascending: Sequence[str]) -> Encodings:
    """Return the encodings for a file whose first rows are given.

    Args:
        sample: The first rows; a few thousand are looked at.
        ascending: Columns that are known to ascend: always by deltas.

    Cost: under a millisecond a column.
    """
    head = sample.slice(0, SAMPLE_ROWS)
    dictionary: list[str] = []
    delta = list(ascending)
    for field, column in zip(head.schema, head.columns, strict=True):
        if field.name in ascending or pa.types.is_boolean(field.type):
            continue
        if pa.types.is_nested(field.type) or pa.types.is_dictionary(field.type):
            # pyarrow gives up a dictionary by itself when it grows too large.
            dictionary += leaf_paths(field)
        elif len(pc.unique(column)) <= DISTINCT_SHARE_MAX * len(head):
            dictionary.append(field.name)
        elif pa.types.is_timestamp(field.type) or _has_narrow_steps(column):
            delta.append(field.name)
    return Encodings(tuple(dictionary), tuple(delta))


def _has_narrow_steps(column: pa.ChunkedArray) -> bool:
    """Return whether whole numbers differ from those before by so little that steps need at most half of their bits.

    Of ids that ascend, and of numbers that are small for their type. Written so, they take a third of the time that
    compression takes for them, and less space.
    """
    if not pa.types.is_integer(column.type):
        return False
    values = column.drop_null().to_numpy()
    if len(values) < 2:
        return False
    steps = np.diff(values.astype(np.int64))
    return (int(steps.max()) - int(steps.min())).bit_length() * 2 <= int(column.type.bit_width)


def leaf_paths(field: pa.Field) -> list[str]:
    """Return the paths in a Parquet file of the values inside an Arrow field."""
    types = pa.types
    if types.is_struct(field.type):
        return [f"{field.name}.{path}" for inner in field.type for path in leaf_paths(inner)]
    if types.is_list(field.type):
        return [f"{field.name}.list.{path}" for path in leaf_paths(field.type.value_field.with_name("element"))]
    if types.is_map(field.type):
        inner_fields = (field.type.key_field.with_name("key"), field.type.item_field.with_name("value"))
        return [f"{field.name}.key_value.{path}" for inner in inner_fields for path in leaf_paths(inner)]
    return [field.name]
