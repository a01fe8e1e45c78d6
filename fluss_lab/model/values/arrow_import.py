"""Arrow data of other libraries, by Arrow's C interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from fluss_lab.errors import FlussError, InvalidRecordError

_Made = TypeVar("_Made")


def import_stream(rows: object, error_class: type[FlussError]) -> pa.RecordBatchReader:
    """Return a reader of what has ``__arrow_c_stream__``.

    Args:
        rows: The data.
        error_class: Of the error where it has a type that Arrow does not know, such as 128-bit integers of Polars.
    """
    return _import(rows, pa.RecordBatchReader.from_stream, error_class)


def import_batch(rows: object) -> pa.RecordBatch:
    """Return the batch of what has ``__arrow_c_array__``.

    Raises:
        InvalidRecordError: It has a type that Arrow does not know, or is no batch.
    """
    return _import(rows, pa.record_batch, InvalidRecordError)


def import_values(values: object, error_class: type[FlussError]) -> pa.ChunkedArray:
    """Return the values of what has ``__arrow_c_stream__``, such as a series of Polars; `error_class` as in `import_stream`."""
    return _import(values, pa.chunked_array, error_class)


def _import(rows: object, make: Callable[[object], _Made], error_class: type[FlussError]) -> _Made:
    try:
        return make(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise error_class(
            f"rows: a {type(rows).__name__} with data that Arrow does not take ({error}): convert its columns first; nothing was sent"
        ) from error
