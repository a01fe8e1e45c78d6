"""The answers about the difference of a table between two moments: counts, and the first rows of each kind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import Answer, Steps, cut_to_size
from fluss_lab.explorer.explorer_requests import DiffRequest, DiffRowsRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables, given_moment
from fluss_lab.explorer.texts import lake_code
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX, cell_texts
from fluss_lab.model import TableInfo
from fluss_lab.read.changelog.changelog import BUCKET, LOG_OFFSET, PARTITION
from fluss_lab.read.changelog.counted_diff import ADDED, NEW, OLD, REMOVED, CountedDiff
from fluss_lab.read.changelog.net_changes import same_values
from fluss_lab.read.changelog.table_diff import AFTER, BEFORE
from fluss_lab.read.table_reader import TableReader

#: Rows of each kind that are kept to be shown, and how many of them come at once.
ROWS_MAX: Final = 1_000
PAGE_ROWS: Final = 200
#: Columns that are shown; of changed rows the key's and those that changed are the first.
COLUMNS_MAX: Final = 30
#: Comparisons whose rows are kept: several views may look at one each.
_COMPARED_MAX: Final = 4
#: How far it is, is said so often.
_PROGRESS_S: Final = 0.25


@dataclass(frozen=True)
class _Compared:
    """Two moments compared, for as long as they are looked at."""

    info: TableInfo
    before: str | int
    after: str | int | None
    columns: Sequence[str]
    found: CountedDiff

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """Return the rows kept: of each kind those that are there, or were last; and of changed ones those before."""
        names = {"added": ADDED, "removed": REMOVED, "changed": NEW, "old": OLD}
        return {kind: self.found.table(name, self.info).combine_chunks() for kind, name in names.items()}

    @cached_property
    def changed(self) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return by column which of the changed rows have another value there."""
        old, new = self.tables["old"], self.tables["changed"]
        asked = np.ones(new.num_rows, dtype=bool)
        return {name: ~same_values(_array(old, name), _array(new, name), asked) for name in self.columns}

    def shown_columns(self, kind: str) -> list[str]:
        """Return the columns of a kind's rows, those that say most first."""
        if kind != "changed":
            return list(self.columns)
        key = set(self.info.schema.primary_key)
        rank = {name: 0 if name in key else 1 if self.changed[name].any() else 2 for name in self.columns}
        return sorted(self.columns, key=lambda name: rank[name])


class DiffAnswers:
    """What a view shows of the difference of two moments. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        #: Those that are looked at, by their names.
        self._compared: dict[str, _Compared] = {}
        self._count = 0

    def compare(self, request: DiffRequest) -> Steps:
        """Yield how far a comparison is, then what it comes to; when it is to stop, that it has.

        ``counts`` of rows ``added``, ``removed`` and ``changed``; ``lake`` and ``log``: records of the log between the moments
        that only the lake holds, and that the cluster holds; ``diff``: the name by which rows are asked for.

        Raises:
            FlussError: A moment that is none, or what happened in between is no longer all available.
        """
        if request.op == "stop":
            yield {"stopped": True}
            return
        info = self._tables.info(request)
        before, after = given_moment(request.before), given_moment(request.after)
        if before is None:
            raise InvalidRequestError(
                'diff: expected a moment before: a time, as "10 minutes ago", or the id of a lake snapshot'
            )
        after = None if after == "now" else after
        reader = TableReader(self._tables.lab.connection, info.path)
        self._tables.check_id(request, str(reader.info.table_id))
        found: CountedDiff | None = None
        said = time.monotonic()
        for found in reader.counted_diff(before, after, ROWS_MAX):
            is_due = time.monotonic() - said > _PROGRESS_S
            said = time.monotonic() if is_due else said
            yield {"progress": [str(found.records), found.done, found.buckets]} if is_due else None
        assert found is not None
        self._count += 1
        name = f"d{self._count}"
        self._compared[name] = _Compared(reader.info, before, after, self._tables.visible_names(info), found)
        while len(self._compared) > _COMPARED_MAX:
            del self._compared[next(iter(self._compared))]
        yield _summary(name, reader.info, found) | {"hidden": self._tables.mask.hides_any(info.schema)}

    def rows(self, request: DiffRowsRequest) -> Answer:
        """Return some rows of a kind, by partition, bucket and offset.

        ``cells``; ``rows``: partition, bucket, offset; of changed rows ``old``: by row, places of columns with the values before.

        Raises:
            InvalidRequestError: The difference is no longer kept.
        """
        info = self._tables.info(request)
        compared = self._compared.get(request.diff)
        if compared is None or compared.info.table_id != info.table_id:
            raise InvalidRequestError("diff: what was compared is no longer known; compare it again")
        table = compared.tables[request.change]
        columns = compared.shown_columns(request.change)
        shown = columns[:COLUMNS_MAX]
        page = table.slice(request.first, PAGE_ROWS)
        answer: Answer = {
            "diff": request.diff,
            "change": request.change,
            "from": request.first,
            "total": table.num_rows,
            "columns": shown,
            "columns_left_out": len(columns) - len(shown),
            "rows": _places(page),
            "code": self._code(compared, request.change),
        }

        def make(length: int) -> Answer:
            texts = [self._texts(page, name, length) for name in shown]
            made = {"cells": [list(row) for row in zip(*texts, strict=True)]}
            if request.change == "changed":
                made["old"] = self._old(compared, shown, request.first, page.num_rows, length)
            return answer | made

        return cut_to_size(make, CELL_LENGTH_MAX)

    def _texts(self, table: pa.Table, name: str, length: int) -> list[str | None]:
        return cell_texts(_array(table, name), self._tables.time_zone, length)[0]

    def _old(self, compared: _Compared, shown: Sequence[str], first: int, count: int, length: int) -> list[Any]:
        rows: list[list[Any]] = [[] for _ in range(count)]
        page = compared.tables["old"].slice(first, count)
        for place, name in enumerate(shown):
            differs = np.flatnonzero(compared.changed[name][first : first + count]).tolist()
            texts = self._texts(page, name, length) if differs else []
            for at in differs:
                rows[at].append([place, texts[at]])
        return rows

    def _code(self, compared: _Compared, kind: str) -> list[str]:
        names: list[str] | None = None
        if self._tables.mask.hides_any(compared.info.schema):
            key = compared.info.schema.primary_key
            names = []
            for name in compared.columns:
                names += [name] if kind != "changed" or name in key else [f"{BEFORE}.{name}", f"{AFTER}.{name}"]
        return lake_code.diff_code(compared.info.path, compared.before, compared.after, kind, names)


def _summary(name: str, info: TableInfo, found: CountedDiff) -> Answer:
    return {
        "diff": name,
        "keyed": not info.is_log_table,
        "counts": {kind: str(found.counts[kept]) for kind, kept in (("added", ADDED), ("removed", REMOVED), ("changed", NEW))},
        "moments": [found.before.moment_ms, found.after.moment_ms],
        "lake": str(found.lake_records),
        "log": str(found.log_records),
    }  # fmt: skip


def _places(table: pa.Table) -> list[list[Any]]:
    names = table.column_names
    partitions = table.column(PARTITION).to_pylist() if PARTITION in names else [None] * table.num_rows
    offsets = map(str, table.column(LOG_OFFSET).to_pylist())
    return [list(row) for row in zip(partitions, table.column(BUCKET).to_pylist(), offsets, strict=True)]


def _array(table: pa.Table, name: str) -> pa.Array:
    found = table.column(name).combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
