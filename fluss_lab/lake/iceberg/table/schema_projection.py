"""Columns of a file brought to a schema of today by field ids, as Iceberg's rules of schema evolution have it.

pyiceberg (0.12) does it, but makes an empty ARRAY or MAP of each null one whose elements or values are ROWs. Imported only where it is
needed: it takes pyiceberg's reader with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import ListType, MapType

from fluss_lab.lake.iceberg.table.type_mapping import wide_field


def project_rows(requested: Schema, in_file: Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a file in the columns of a schema, each type in them as wide as the file has it.

    Args:
        requested: The schema wanted.
        in_file: That of the rows, by the field ids of the file.
        rows: As they were read.

    Raises:
        ResolveError, ValueError, pa.ArrowException: A column cannot be had from what the file has.
    """
    requested = Schema(*(wide_field(field, in_file) for field in requested.fields))
    visitor = _Projection(in_file, allow_timestamp_tz_mismatch=True)
    found = visit_with_partner(requested, rows, visitor, ArrowAccessor(in_file))
    return pa.RecordBatch.from_struct_array(found)


class _Projection(ArrowProjectionVisitor):
    """pyiceberg's, with what is null left null."""

    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        """Return the projected ARRAY."""
        found = super().list(list_type, list_array, value_array)
        if found is None or found.null_count == list_array.null_count:
            return found
        made = type(found).from_arrays(_offsets(found), found.values, mask=list_array.is_null())
        return made.cast(found.type)

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        """Return the projected MAP."""
        found = super().map(map_type, map_array, key_result, value_result)
        if found is None or found.null_count == map_array.null_count:
            return found
        offsets = _offsets(found)
        return pa.MapArray.from_arrays(offsets, found.keys, found.items, found.type, mask=map_array.is_null())


def _offsets(array: Any) -> pa.Array:
    """Return where values begin, as an array of its own: of a part of another one, Arrow takes no mask."""
    return pa.array(np.array(array.offsets))
