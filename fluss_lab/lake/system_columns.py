"""The system columns: what every lake table has behind the user's columns, and their types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: The system columns that every lake table has after the user's.
BUCKET_COLUMN = "__bucket"
OFFSET_COLUMN = "__offset"
TIMESTAMP_COLUMN = "__timestamp"
SYSTEM_COLUMNS = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)
#: Their types wherever rows of the lake are handed out. The timestamp holds whole milliseconds.
SYSTEM_FIELDS: Final = (
    pa.field(BUCKET_COLUMN, pa.int32(), nullable=False),
    pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", "UTC"), nullable=False),
)
