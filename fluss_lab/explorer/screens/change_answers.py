"""The answers about a table's changelog: some records in the order of their times, those beside them, and net changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import Answer, Steps, cut_to_size
from fluss_lab.explorer.explorer_requests import ChangeRequest, ChangesRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import WHOLE_LENGTH_MAX, cell_texts
from fluss_lab.explorer.texts.change_rows import Pairs, change_rows, net_pairs, update_pairs
from fluss_lab.explorer.texts.typed_numbers import typed_number
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.read.changelog.change_pages import ChangeWindow, Offsets, Place, read_page
from fluss_lab.workbench.table import Table

#: Records of a page.
PAGE_RECORDS: Final = 200
#: Records that a view has at once; of more, those at the other end go.
WINDOW_RECORDS: Final = 1_000
#: Net changes that are shown.
NET_MAX: Final = 400
#: Records whose net changes are worked out: a second of work, and as much memory as the rows that changed.
NET_RECORDS_MAX: Final = 200_000
#: Views whose windows are kept, and windows of each: the one that is looked at, and the one before while an answer is on its way.
VIEWS_MAX: Final = 8
_WINDOWS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class _Kept:
    """A window, its table, and the one bucket that it is of; None: all."""

    table_id: int
    window: ChangeWindow
    only: BucketKey | None


class ChangeAnswers:
    """What views show of changelogs. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        #: By view, then by name; what was used last is the last.
        self._windows: dict[str, dict[str, _Kept]] = {}
        self._count = 0

    def forget(self, view: str) -> None:
        """Forget what a view shows: it is gone. Of any thread."""
        self._windows.pop(view, None)

    def answer(self, request: ChangesRequest) -> Steps:
        """Yield what reading records takes, then records, in the order of time, partition, bucket and offset.

        As `change_rows`, and ``window`` to go on from, ``kept`` (records of it, with these), ``records`` (that there are),
        ``older`` and ``newer`` (whether there are any), ``code`` for the whole window.

        Raises:
            FlussError: A start that is none, or records that are no longer held.
        """
        info = self._tables.info(request)
        table, columns = self._tables.table(info), self._tables.drawn_names(info)
        shown = columns if len(columns) < len(info.schema.columns) else None
        if request.net:
            yield from self._net(table, info, request, columns, shown)
            return
        kept, limits, older = self._begin(table, info.table_id, request)
        page: Offsets = {}
        records: pa.Table | None = None
        for found in read_page(
            lambda ranges: _records(table, ranges, columns),
            kept.window.room(limits, older=older),
            PAGE_RECORDS,
            older=older,
        ):
            if found is None:
                yield None
            else:
                page, records = found
        assert records is not None
        window = kept.window.with_page(page, older=older, records_max=WINDOW_RECORDS)
        code = code_lines.changes_code(info.path, window.shown, shown)
        beside = {
            "window": self._keep(request.view, replace(kept, window=window)),
            "kept": window.records,
            "records": str(sum(stop - start for start, stop in limits.values())),
            "older": bool(window.room(limits, older=True)),
            "newer": bool(window.room(limits, older=False)),
            "code": code,
        }
        yield self._answer(table, records, columns, update_pairs(records), beside)

    def record(self, request: ChangeRequest) -> Answer:
        """Return records with whole values: by offset asked for, the name, text and whether it is cut of each column.

        Raises:
            FlussError: They are no longer held.
        """
        info = self._tables.info(request)
        table, columns = self._tables.table(info), self._tables.visible_names(info)
        what = f"changelog of {request.table}, bucket {request.bucket}"
        offsets = [typed_number(text, what) for text in request.offsets]
        key = (request.partition, request.bucket)
        found = [pa.concat_tables(_records(table, {key: (offset, offset + 1)}, columns)) for offset in offsets]

        def value(records: pa.Table, name: str, length: int) -> list[Any]:
            (text,), cut = cell_texts(records.column(name).combine_chunks(), self._tables.time_zone, length)
            return [name, text, bool(cut)]

        def with_values(length: int) -> Answer:
            return {"records": [[value(records, name, length) for name in columns] for records in found]}

        return cut_to_size(with_values, WHOLE_LENGTH_MAX)

    def _begin(self, table: Table, table_id: int, request: ChangesRequest) -> tuple[_Kept, Offsets, bool]:
        """Return the window that a page is added to, the offsets that are held, and whether the page is an older one."""
        if request.window is not None:
            kept = self._kept_window(table_id, request)
            return kept, _limits(table, kept.only), request.older
        only = _bucket(request) if request.start == "offset" else None
        limits = _limits(table, only)
        if request.start in {"newest", "earliest"}:
            at = 1 if request.start == "newest" else 0
            low = {key: span[at] for key, span in limits.items()}
            return _Kept(table_id, ChangeWindow(low), only), limits, request.start == "newest"
        begun = {each.key: (each.start, each.stop) for each in table.changelog(_start(table, request)).offset_ranges}
        # What has come since the limits were found out counts too.
        limits = {**limits, **{key: span for key, span in begun.items() if key not in limits}}
        low = {key: begun[key][0] if key in begun else most for key, (_, most) in limits.items()}
        return _Kept(table_id, ChangeWindow(low), only), limits, False

    def _kept_window(self, table_id: int, request: ChangesRequest) -> _Kept:
        windows = self._windows.pop(request.view, {})
        self._windows[request.view] = windows
        kept = windows.pop(request.window or "", None)
        if kept is None or kept.table_id != table_id:
            raise InvalidRequestError("changelog: what was shown is no longer known; read it again")
        windows[request.window or ""] = kept
        return kept

    def _keep(self, view: str, kept: _Kept) -> str:
        self._count += 1
        name = f"w{self._count}"
        windows = self._windows.pop(view, {})
        windows[name] = kept
        while len(windows) > _WINDOWS_MAX:
            del windows[next(iter(windows))]
        self._windows[view] = windows
        while len(self._windows) > VIEWS_MAX:
            del self._windows[next(iter(self._windows))]
        return name

    # -- net changes ---------------------------------------------------------------------------------------------------

    def _net(
        self, table: Table, info: TableInfo, request: ChangesRequest, columns: list[str], shown: list[str] | None
    ) -> Steps:
        """Yield what net changes take, then those of the window that is shown, or of all records from a start until now."""
        spans: Offsets = {}
        if request.window is not None:
            spans = self._kept_window(info.table_id, request).window.shown
        elif request.start == "newest":
            limits = _limits(table, None)
            room = ChangeWindow({key: most for key, (_, most) in limits.items()}).room(limits, older=True)
            for found in read_page(lambda ranges: _records(table, ranges, []), room, PAGE_RECORDS, older=True):
                yield None
                spans = found[0] if found is not None else spans
        else:
            spans = {
                each.key: (each.start, each.stop) for each in table.changelog(_start(table, request)).offset_ranges
            }
        count = sum(stop - start for start, stop in spans.values())
        if count > NET_RECORDS_MAX:
            raise InvalidRequestError(
                f"changelog: net changes of {count:,} records, more than {NET_RECORDS_MAX:,}; begin later, or use the lines"
            )
        wanted = list(dict.fromkeys([*columns, *info.schema.primary_key]))
        log = _changelog(table, spans, wanted, net=True)
        parts: list[pa.RecordBatch] = []
        for part in log.plan() if spans else []:
            parts += log.read(part)
            yield None
            if sum(batch.num_rows for batch in parts) > NET_MAX:
                break
        records = pa.Table.from_batches(parts, log.schema)
        is_limited = records.num_rows > NET_MAX
        records = records.slice(0, NET_MAX)
        pairs = net_pairs(records, info.schema.primary_key)
        first = NET_MAX if is_limited else None
        code = code_lines.changes_code(info.path, spans, shown, net=True, first=first)
        beside = {
            "window": None, "older": False, "newer": False, "limited": is_limited, "records": str(count), "code": code,
        }  # fmt: skip
        yield self._answer(table, records, columns, pairs, beside)

    def _answer(
        self, table: Table, records: pa.Table, columns: Sequence[str], pairs: Pairs, beside: Mapping[str, Any]
    ) -> Answer:
        starts = {(row["partition"], row["bucket"]): row["start"] for row in table.buckets(patient=False)}

        def is_in_log(place: Place) -> bool:
            start = starts.get((place[1] or None, place[2]))
            return start is not None and place[3] >= start

        return change_rows(records, columns, self._tables.time_zone, pairs, is_in_log, beside)


def _limits(table: Table, only: BucketKey | None) -> dict[BucketKey, tuple[int, int]]:
    """Return the offsets of each bucket that are held, of those that hold any."""
    buckets = None if only is None else [_key(only)]
    return {each.key: (each.start, each.stop) for each in table.changelog("earliest", buckets=buckets).offset_ranges}


def _bucket(request: ChangesRequest) -> BucketKey:
    if request.bucket is None:
        raise InvalidRequestError("changelog: an offset needs its bucket")
    return request.partition, request.bucket


def _start(table: Table, request: ChangesRequest) -> Any:
    if request.start == "offset":
        return {
            _key(_bucket(request)): typed_number(
                request.value, f"changelog of {request.table}, bucket {request.bucket}"
            )
        }
    if request.start == "time":
        return table.seek(request.value)
    return "earliest"


def _key(key: BucketKey) -> Any:
    partition, bucket = key
    return bucket if partition is None else key


def _changelog(table: Table, spans: Offsets, columns: Sequence[str], *, net: bool = False) -> Any:
    return table.changelog(
        start={_key(key): start for key, (start, _) in spans.items()},
        end={_key(key): stop for key, (_, stop) in spans.items()},
        columns=columns,
        net=net,
    )


def _records(table: Table, spans: Offsets, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the records of ranges, bucket by bucket, without its progress being shown in some cell; at least one table."""
    log = _changelog(table, spans, columns)
    yield log.schema.empty_table()
    for part in log.plan() if spans else []:
        yield pa.Table.from_batches(log.read(part), log.schema)
