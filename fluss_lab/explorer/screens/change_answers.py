"""The answers about a table's changelog: some records of every bucket, and those before and after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import Answer
from fluss_lab.explorer.explorer_requests import ChangesRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import cell_texts
from fluss_lab.explorer.texts.typed_numbers import typed_number
from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.workbench.table import Table

#: Records of a page, of all buckets together; of each bucket at least one.
PAGE_RECORDS: Final = 200
#: Net changes that are shown.
NET_MAX: Final = 400
#: Windows that are kept to go on from.
_WINDOWS_MAX: Final = 8

_TYPE, _PARTITION, _BUCKET, _OFFSET, _TIME = (
    "_change_type", "_partition", "_bucket", "_log_offset", "_commit_timestamp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets of each bucket that are shown, and how far the bucket goes on either side.

    Attributes:
        shown: By bucket, ``[from, to)``.
        limits: By bucket, the earliest and the latest that there are.
    """

    shown: Mapping[BucketKey, tuple[int, int]]
    limits: Mapping[BucketKey, tuple[int, int]]

    def beside(self, *, older: bool) -> Window:
        """Return the offsets just before these, or just after them."""
        size = page_size(len(self.limits))
        moved = {}
        for key, (begin, end) in self.shown.items():
            least, most = self.limits[key]
            moved[key] = (max(least, begin - size), begin) if older else (end, min(most, end + size))
        return Window(moved, self.limits)

    @property
    def has_older(self) -> bool:
        """Return whether there are records before these."""
        return any(begin > self.limits[key][0] for key, (begin, _) in self.shown.items())

    @property
    def has_newer(self) -> bool:
        """Return whether there were records after these."""
        return any(end < self.limits[key][1] for key, (_, end) in self.shown.items())


def page_size(buckets: int) -> int:
    """Return how many records of each bucket are shown at once."""
    return max(1, PAGE_RECORDS // max(1, buckets))


class ChangeAnswers:
    """What a view shows of changelogs. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        self._windows: dict[str, Window] = {}
        self._count = 0

    def answer(self, request: ChangesRequest) -> Answer:
        """Return records as a view shows them, oldest first by their times.

        ``types``, ``rows`` (partition, bucket, offset, time in epoch milliseconds), ``cells``, ``source`` (``g`` of what the
        cluster holds, else ``L``), ``pairs`` (places of the two records of one update), ``window`` to go on from.

        Raises:
            FlussError: A start that is none, or records that are held nowhere any more.
        """
        info = self._tables.info(request)
        table, columns = self._tables.table(info), self._tables.drawn_names(info)
        named = columns if len(columns) < len(info.schema.columns) else None
        if request.net:
            return self._net(table, request, columns, named)
        window = self._window(table, request)
        read = {key: span for key, span in window.shown.items() if span[0] < span[1]}
        log = table.changelog(
            start={_key(key): begin for key, (begin, _) in read.items()},
            end={_key(key): end for key, (_, end) in read.items()},
            buckets=list(map(_key, read)),
            columns=columns,
        )
        records = _records(log) if read else log.schema.empty_table()
        self._count += 1
        name = f"w{self._count}"
        self._windows[name] = window
        while len(self._windows) > _WINDOWS_MAX:
            del self._windows[next(iter(self._windows))]
        return self._made(table, records, columns) | {
            "window": name,
            "older": window.has_older,
            "newer": window.has_newer,
            "code": _code(table.path, request, len(window.limits), named),
        }

    def _window(self, table: Table, request: ChangesRequest) -> Window:
        if request.window is not None:
            if (known := self._windows.get(request.window)) is None:
                raise InvalidRequestError("changelog: what was shown is not known any more; ask for it again")
            return known.beside(older=request.older)
        held = {each.key: (each.start, each.stop) for each in table.changelog("earliest").offset_ranges}
        size = page_size(len(held))
        if request.start == "newest":
            return Window({key: (max(begin, end - size), end) for key, (begin, end) in held.items()}, held)
        ranges = table.changelog(_start(table, request)).offset_ranges
        held = {each.key: (each.start, each.stop) for each in ranges} | held  # a partition may have come meanwhile
        shown = {each.key: _span(each, held, size if request.start != "offset" else PAGE_RECORDS) for each in ranges}
        return Window(shown, {key: held[key] for key in shown})

    def _net(
        self, table: Table, request: ChangesRequest, columns: list[str], named: list[str] | None
    ) -> dict[str, Any]:
        log = table.changelog(_start(table, request), columns=columns, net=True)
        first = next(log.to_batches(NET_MAX), None)
        records = pa.Table.from_batches([] if first is None else [first], log.schema)
        answer = self._made(table, records, columns, ordered=False)
        return answer | {
            "window": None,
            "older": False,
            "newer": False,
            "limited": records.num_rows == NET_MAX,
            "code": _code(table.path, request, 0, named),
        }

    def _made(self, table: Table, records: pa.Table, columns: Sequence[str], *, ordered: bool = True) -> dict[str, Any]:
        places = list(_places(records))
        order = (
            sorted(range(len(places)), key=lambda at: (places[at][3], places[at][:3]))
            if ordered
            else range(len(places))
        )
        types = records.column(_TYPE).to_pylist()
        starts = {(row["partition"], row["bucket"]): row["start"] for row in table.buckets(patient=False)}
        texts = [cell_texts(records.column(name).combine_chunks(), self._tables.time_zone)[0] for name in columns]
        found = [places[at] for at in order]
        return {
            "columns": list(columns),
            "types": [types[at] for at in order],
            "rows": [[partition or None, bucket, str(offset), time] for partition, bucket, offset, time in found],
            "cells": [[column[at] for column in texts] for at in order],
            "source": "".join("g" if _is_in_log(starts, place) else "L" for place in found),
            "pairs": _pairs([types[at] for at in order], found),
        }


def _start(table: Table, request: ChangesRequest) -> Any:
    if request.start == "offset":
        if request.bucket is None:
            raise InvalidRequestError("changelog: an offset needs its bucket")
        return {_key((request.partition, request.bucket)): _offset(request)}
    if request.start == "time":
        return table.seek(request.value)
    return "earliest"


def _offset(request: ChangesRequest) -> int:
    return typed_number(request.value, f"changelog of {request.table}, bucket {request.bucket}")


def _span(each: LogRange, held: Mapping[BucketKey, tuple[int, int]], size: int) -> tuple[int, int]:
    return each.start, min(held[each.key][1], each.start + size)


def _key(key: BucketKey) -> Any:
    partition, bucket = key
    return bucket if partition is None else key


def _records(log: Changelog) -> pa.Table:
    """Return the records of a range, without its progress being shown in some cell."""
    return pa.Table.from_batches(log.to_batches(), log.schema)


def _places(records: pa.Table) -> Iterator[tuple[str, int, int, int]]:
    partitions = records.column(_PARTITION).to_pylist() if _PARTITION in records.schema.names else [""] * len(records)
    times = records.column(_TIME).combine_chunks()
    scale = 1_000 if pa.types.is_timestamp(times.type) and times.type.unit == "us" else 1
    columns = (partitions, records.column(_BUCKET).to_pylist(), records.column(_OFFSET).to_pylist())
    return zip(*columns, [(time or 0) // scale for time in times.cast(pa.int64()).to_pylist()], strict=True)


def _is_in_log(starts: Mapping[BucketKey, int | None], place: tuple[str, int, int, int]) -> bool:
    start = starts.get((place[0] or None, place[1]))
    return start is not None and place[2] >= start


def _pairs(types: Sequence[str], places: Sequence[tuple[str, int, int, int]]) -> list[list[int]]:
    """Return the two records of each update that are both here: what was, and what is. Net ones follow each other."""
    olds = {place[:3]: at for at, (kind, place) in enumerate(zip(types, places, strict=True)) if kind == "-U"}
    pairs = []
    for at, (kind, (partition, bucket, offset, _)) in enumerate(zip(types, places, strict=True)):
        old = olds.get((partition, bucket, offset - 1)) if kind == "+U" else None
        if kind == "UPDATE_AFTER" and at and types[at - 1] == "UPDATE_BEFORE":
            old = at - 1
        if old is not None:
            pairs.append([old, at])
    return pairs


def _code(path: TablePath, request: ChangesRequest, buckets: int, columns: Sequence[str] | None) -> list[str]:
    if request.start == "newest" and not request.net:
        return code_lines.newest_code(path, page_size(buckets), columns)
    if request.start == "time":
        start = f"{code_lines.variable(path)}.seek({code_lines.quoted(request.value)})"
    elif request.start == "offset" and request.bucket is not None:
        return code_lines.fresh_code(path, request.partition, request.bucket, _offset(request), columns)
    else:
        start = '"earliest"'
    return code_lines.changes_code(path, start, columns, net=request.net)
