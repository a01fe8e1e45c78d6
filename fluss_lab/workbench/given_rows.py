"""Rows as a person has them in a notebook, of Spark too, made what the client takes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss_lab.model.values.pandas_frames import is_frame


def gathered_rows(rows: Any) -> Any:
    """Return rows that can be gone through several times."""
    rows = spark_as_arrow(rows)
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, pa.Table) and not is_frame(rows):
        return pa.table(rows)
    return rows


def spark_as_arrow(rows: Any) -> Any:
    """Return a Spark frame's rows as Arrow; anything else as it is."""
    return rows.toArrow() if type(rows).__module__.startswith("pyspark.") and hasattr(rows, "toArrow") else rows
