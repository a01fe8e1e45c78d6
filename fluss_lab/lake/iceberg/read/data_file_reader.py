"""Rows out of one data file, in the Fluss table's own types.

Columns are found by field id, so files written under other names, by others, or before a column existed all read right.
The common case, a file whose columns still lie as fluss_lab wrote them, goes through Arrow's dataset scanner with the
filter pushed down to row groups; any other goes through pyiceberg's projection, and is filtered afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema

from fluss_lab.closing import Closing
from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.file_faults import reading_fault
from fluss_lab.lake.iceberg.files.lake_errors import library_errors
from fluss_lab.lake.iceberg.files.parquet_input import check_footer, parquet_errors
from fluss_lab.lake.iceberg.table.layout import LakeColumns
from fluss_lab.lake.iceberg.table.type_mapping import arrow_ids
from fluss_lab.lake.system_columns import OFFSET_COLUMN, SYSTEM_FIELDS, TIMESTAMP_COLUMN
from fluss_lab.model.values.required_fields import cast_column

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

#: How files are opened: what a scan needs of one is asked for in few, larger requests.
PARQUET: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: the unit in which it is read.

    Attributes:
        index: Its position in the file.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        max_timestamp_us: No row has a later timestamp (inclusive), in epoch microseconds.
        first: Position of its first row in the file.
        rows: Rows in it.
    """

    index: int
    min_offset: int
    max_offset: int
    max_timestamp_us: int
    first: int
    rows: int


class DataFileReader(Closing):
    """One open data file. Used by one thread; a context manager.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is no Parquet file, or lacks the table's columns.
    """

    def __init__(self, io: FileIO, location: str, columns: LakeColumns) -> None:
        self.location = location
        self._io = io
        self._columns = columns
        with parquet_errors(io, location, "Parquet file"):
            self._stream = io.new_input(location).open()
        try:
            check_footer(location)
            self._fragment = PARQUET.make_fragment(self._stream)
            self._physical: pa.Schema = self._fragment.physical_schema
            self._match = columns.match(self._physical)
            self.groups = self._row_groups()
        except library_errors(pa.ArrowException, OSError, ValueError, LookupError) as error:
            self.close()
            raise reading_fault(io, location, "Parquet file", error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def runs(self, groups: Sequence[RowGroup]) -> list[list[RowGroup]]:
        """Return row groups such that reading run after run gives ascending offsets.

        One row group a run in a file that ascends; all in one run in a file that does not.
        """
        if all(before.max_offset < after.min_offset for before, after in pairwise(groups)):
            return [[group] for group in groups]
        return [list(groups)]

    def matching(self, groups: Sequence[RowGroup], where: pc.Expression) -> list[RowGroup]:
        """Return the row groups that, by their statistics, can hold rows for which a filter is true.

        Args:
            groups: From `groups`.
            where: Over columns whose types in the lake are the table's own.
        """
        filtered = self._columns.names_in(where)
        if not set(filtered) <= self._match.plain | self._match.absent:
            return list(groups)
        schema = pa.schema([self._scan_field(name) for name in filtered])
        if any(field.type != self._columns.schema.field(field.name).type for field in schema):
            return list(groups)
        found = {group.id for group in self._fragment.subset(filter=where, schema=schema).row_groups}
        return [group for group in groups if group.index in found]

    def read(
        self,
        groups: Sequence[RowGroup],
        names: Sequence[str],
        where: pc.Expression | None = None,
        dead: NDArray[np.int64] | None = None,
    ) -> pa.Table:
        """Return rows in ascending order of offset.

        Args:
            groups: From `groups`.
            names: User's and system columns, in the order wanted.
            where: Rows for which it is not true are left out.
            dead: Positions in the file, ascending, of rows that are left out; None: of none.

        Raises:
            CorruptDataError: The file cannot be decoded, or holds values that are none of the table's types.
        """
        groups = sorted(groups, key=lambda group: group.index)
        wanted = list(dict.fromkeys([*names, OFFSET_COLUMN]))
        filtered = [] if where is None else self._columns.names_in(where)
        needed = list(dict.fromkeys([*wanted, *filtered]))
        fragment = self._fragment.subset(row_group_ids=[group.index for group in groups])
        alive = None if dead is None else _alive(groups, dead)
        try:
            if set(needed) <= self._match.plain | self._match.absent and alive is None:
                rows = self._read_plain(fragment, wanted, filtered, where)
            else:
                # Positions are found by counting rows: no filter may be pushed below the deletes.
                is_plain = set(needed) <= self._match.plain | self._match.absent
                rows = (
                    self._read_plain(fragment, needed, [], None) if is_plain else self._read_projected(fragment, needed)
                )
                rows = rows if alive is None else rows.filter(alive)
                rows = (rows if where is None else rows.filter(where)).select(wanted)
        except library_errors(pa.ArrowException, OSError, ValueError, LookupError, ResolveError) as error:
            raise reading_fault(self._io, self.location, "file of the table's columns", error) from error
        return _ascending(rows).select(list(names))

    def _read_plain(
        self, fragment: Any, wanted: Sequence[str], filtered: Sequence[str], where: pc.Expression | None
    ) -> pa.Table:
        """Read columns that lie in the file as fluss_lab lays them, those that it has not being null."""
        schema = self._columns.schema
        # What a filter computes may depend on the width of its types: it is pushed down where they are the table's own.
        exact = all(self._scan_field(name).type == schema.field(name).type for name in filtered)
        needed = wanted if exact else list(dict.fromkeys([*wanted, *filtered]))
        scanned = pa.schema([self._scan_field(name) for name in dict.fromkeys([*needed, *filtered])])
        rows = fragment.to_table(schema=scanned, columns=list(needed), filter=where if exact else None)
        rows = self._cast(rows)
        return rows if exact or where is None else rows.filter(where).select(list(wanted))

    def _scan_field(self, name: str) -> pa.Field:
        if name in self._match.plain:
            return self._physical.field(self._physical.get_field_index(name))
        return self._columns.stored[name]

    def _read_projected(self, fragment: Any, needed: Sequence[str]) -> pa.Table:
        """Read columns by field id, nested ones too, as Iceberg's rules of schema evolution have it."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema
        from pyiceberg.schema import prune_columns

        from fluss_lab.lake.iceberg.table.schema_projection import project_rows

        fields = [self._columns.layout.schema.find_field(name) for name in needed]
        in_file = pyarrow_to_schema(self._physical, self._columns.name_mapping)
        ids = {field.field_id for field in fields} & set(in_file.field_ids)
        pruned = prune_columns(in_file, ids)  # whole columns: of an ARRAY or MAP it has no parts by themselves
        rows = fragment.to_table(columns=[field.name for field in pruned.fields])
        requested = Schema(*fields)
        batches = [project_rows(requested, pruned, batch) for batch in rows.to_batches()]
        if not batches:
            return pa.schema([self._columns.schema.field(name) for name in needed]).empty_table()
        return self._cast(pa.Table.from_batches(batches))

    def _cast(self, rows: pa.Table) -> pa.Table:
        schema = pa.schema([self._columns.schema.field(name) for name in rows.schema.names])
        columns = [cast_column(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
        for column, field in zip(columns, schema, strict=True):
            if not field.nullable and column.null_count:
                raise CorruptDataError(f"lake file {self.location}: column {field.name!r} is NOT NULL, but holds nulls")
        return pa.Table.from_arrays(columns, schema=schema)

    def _row_groups(self) -> list[RowGroup]:
        """Return the row groups with their ranges, from the footer's statistics; the column itself where they are missing."""
        footer = self._fragment.metadata
        leaves = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
        _, offset_id, timestamp_id = self._columns.layout.system_ids
        places: list[int] = []
        for field_id, name in ((offset_id, OFFSET_COLUMN), (timestamp_id, TIMESTAMP_COLUMN)):
            found = next((field.name for field in self._physical if (arrow_ids(field) or [-1])[0] == field_id), name)
            if found not in leaves:
                raise CorruptDataError(f"lake file {self.location}: column {name!r} is missing")
            places.append(leaves[found])
        groups: list[RowGroup] = []
        for index in range(footer.num_row_groups):
            first = groups[-1].first + groups[-1].rows if groups else 0
            groups.append(self._row_group(footer, index, first, *places))
        return groups

    def _row_group(self, footer: Any, index: int, first: int, offset_place: int, timestamp_place: int) -> RowGroup:
        group = footer.row_group(index)
        offsets, timestamps = (group.column(place).statistics for place in (offset_place, timestamp_place))
        known = all(found is not None and found.has_min_max for found in (offsets, timestamps))
        if known and self._physical.field(group.column(timestamp_place).path_in_schema).type == SYSTEM_FIELDS[-1].type:
            bounds = (int(offsets.min_raw), int(offsets.max_raw), int(timestamps.max_raw))
            return RowGroup(index, *bounds, first, group.num_rows)
        whole = RowGroup(index, 0, 0, 0, first, group.num_rows)
        rows = self.read([whole], [OFFSET_COLUMN, TIMESTAMP_COLUMN])
        found, times = rows.column(0).to_numpy(), rows.column(1).cast(pa.int64()).to_numpy()
        if not len(rows):
            return whole
        return RowGroup(index, int(found.min()), int(found.max()), int(times.max()), first, group.num_rows)


def _alive(groups: Sequence[RowGroup], dead: NDArray[np.int64]) -> pa.Array | None:
    """Return, of the rows of row groups in order, which are not at the ascending positions given; None: all."""
    alive = np.ones(sum(group.rows for group in groups), dtype=bool)
    begin = 0
    for group in groups:
        low, high = np.searchsorted(dead, [group.first, group.first + group.rows])
        alive[dead[low:high] - group.first + begin] = False
        begin += group.rows
    return None if bool(alive.all()) else pa.array(alive)


def _ascending(rows: pa.Table) -> pa.Table:
    """Return rows in ascending order of offset: as they are, unless another engine wrote the file in another order."""
    offsets = rows.column(OFFSET_COLUMN).to_numpy()
    if len(offsets) < 2 or bool((np.diff(offsets) > 0).all()):
        return rows
    return rows.take(pa.array(np.argsort(offsets, kind="stable")))


def clip_rows(rows: pa.Table, offsets: pa.ChunkedArray, start: int | None, stop: int | None) -> pa.Table:
    """Return the rows with offsets in ``[start, stop)``, of rows whose ascending offsets are given. No copy."""
    values = offsets.to_numpy()
    low = 0 if start is None else int(np.searchsorted(values, start))
    high = len(values) if stop is None else int(np.searchsorted(values, stop))
    return rows if high - low == len(values) else rows.slice(low, max(high - low, 0))
