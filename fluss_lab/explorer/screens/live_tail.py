"""The live tail of a table: records as they come, sampled for the eye, held while a person pauses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import LogScanner
from fluss_lab.client.log.log_scanner import ScanBatch
from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import Steps
from fluss_lab.explorer.explorer_requests import TailRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import cell_texts
from fluss_lab.model.changes import CHANGE_SYMBOLS

#: Between two answers.
INTERVAL_S: Final = 0.25
#: Records of an answer: 20 a second are as many as can be seen to go by.
SHOWN_MAX: Final = 5
#: Records that are shown at once when a person goes on.
RESUMED_MAX: Final = 200
#: Records that are held in a pause; then nothing more is read: the rest stays where it is.
HELD_MAX: Final = 10_000
#: A view that is gone says nothing any more: the tail ends after so long.
SILENT_S: Final = 60.0


class LiveTail:
    """Follows one table for one view. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        self._scanner: LogScanner | None = None
        self._columns: list[str] = []
        #: What was read in a pause.
        self._held: deque[ScanBatch] = deque()
        self._held_count = 0
        #: Records of batches of which some were shown.
        self._held_rest = 0

    def close(self) -> None:
        """End it. Twice is fine."""
        scanner, self._scanner = self._scanner, None
        self._held.clear()
        self._held_count = 0
        if scanner is not None:
            scanner.close()

    def follow(self, request: TailRequest) -> Steps:
        """Yield what following a table takes: see `answers`. The first answer after a start has the lines too."""
        if request.op == "stop":
            self.close()
            yield {"state": "ended"}
            return
        code: list[str] = []
        if request.op == "start":
            info = self._tables.info(request)
            table, columns = self._tables.table(info), self._tables.drawn_names(info)
            self.start(lambda: table.subscribe("latest", columns=columns), columns)
            code = code_lines.tail_code(info.path, self._tables.code_columns(info))
        for answer in self.answers(paused=request.op == "pause"):
            yield answer | {"code": code} if code else answer

    def start(self, open_scanner: Callable[[], LogScanner], columns: Sequence[str]) -> None:
        """Begin to follow a table; what was followed before is let go."""
        self.close()
        self._columns = list(columns)
        self._scanner = open_scanner()

    def answers(self, *, paused: bool) -> Iterator[dict[str, Any]]:
        """Yield what has come, four times a second, until the view has been silent for a minute.

        ``types``, ``rows``, ``cells``, ``source`` as of the changelog; ``skipped`` records that are not shown, ``rate`` a second,
        ``held``, ``limit``, ``state`` (``following``, ``paused``, ``full``, ``ended``).

        Args:
            paused: Whether records are held instead of shown.

        Raises:
            InvalidRequestError: Nothing is followed.
            FlussError: The table cannot be read any more.
        """
        if self._scanner is None:
            raise InvalidRequestError("tail: nothing is followed; start it again")
        begun = time.monotonic()
        rate, shown_max = 0.0, RESUMED_MAX
        while time.monotonic() - begun < SILENT_S:
            begin = time.monotonic()
            found = self._read(paused=paused)
            rate = 0.7 * rate + 0.3 * found / max(0.001, time.monotonic() - begin)
            records = [] if paused else self._take(shown_max)
            count = 0 if paused else self._drop()
            shown_max = SHOWN_MAX
            state = "full" if self._held_count >= HELD_MAX else "paused" if paused else "following"
            yield self._made(records) | {
                "skipped": count, "rate": round(rate), "held": self._held_count, "limit": HELD_MAX, "state": state,
            }  # fmt: skip
        self.close()
        yield self._made([]) | {"skipped": 0, "rate": 0, "held": 0, "limit": HELD_MAX, "state": "ended"}

    def _read(self, *, paused: bool) -> int:
        """Read for one interval; return how many records came."""
        assert self._scanner is not None
        deadline, found = time.monotonic() + INTERVAL_S, 0
        while (left_s := deadline - time.monotonic()) > 0:
            if self._held_count >= HELD_MAX:
                time.sleep(left_s)
                break
            for batch in self._scanner.poll(left_s):
                self._held.append(batch)
                self._held_count += len(batch.records)
                found += len(batch.records)
        return found

    def _take(self, count: int) -> list[tuple[ScanBatch, int]]:
        """Return the newest records held, oldest first, and leave the rest."""
        taken: list[tuple[ScanBatch, int]] = []
        while self._held and len(taken) < count:
            batch = self._held.pop()
            self._held_count -= len(batch.records)
            rows = range(len(batch.records))[-(count - len(taken)) :]
            self._held_rest += len(batch.records) - len(rows)
            taken[:0] = [(batch, row) for row in rows]
        return taken

    def _drop(self) -> int:
        """Let go of what is held and not shown; return how many records that are."""
        count, self._held_rest = self._held_count + self._held_rest, 0
        self._held.clear()
        self._held_count = 0
        return count

    def _made(self, records: Sequence[tuple[ScanBatch, int]]) -> dict[str, Any]:
        types, rows, cells = [], [], []
        for batch, at in records:
            log = batch.records
            kind = 0 if log.change_types is None else log.change_types[at].as_py()
            types.append(CHANGE_SYMBOLS[kind])
            rows.append(
                [batch.partition, batch.bucket.bucket, str(log.offsets[at].as_py()), log.timestamps_ms[at].as_py()]
            )
            one: pa.RecordBatch = log.rows.slice(at, 1)
            cells.append([cell_texts(one.column(name), self._tables.time_zone)[0][0] for name in self._columns])
        return {
            "columns": self._columns,
            "types": types,
            "rows": rows,
            "cells": cells,
            "source": "g" * len(rows),
            "pairs": [],
        }
