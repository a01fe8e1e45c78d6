"""The live tails of tables: records as they come, sampled for the eye, held while a person pauses."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from fluss_lab.client import LogScanner
from fluss_lab.client.log.log_scanner import ScanBatch
from fluss_lab.errors import InvalidRequestError, UnavailableError
from fluss_lab.explorer.explorer_answers import Answer, Steps
from fluss_lab.explorer.explorer_requests import TailRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.change_rows import change_rows, update_pairs
from fluss_lab.model import TableInfo
from fluss_lab.read.changelog.change_pages import places
from fluss_lab.read.changelog.changelog import ChangelogRange, changelog_batch, changelog_schema

#: Between two answers.
INTERVAL_S: Final = 0.25
#: Records that are shown: as many as can be seen to go by. Those of one quiet second may come at once.
SHOWN_PER_S: Final = 20
#: Records that are shown at once when a person goes on.
RESUMED_MAX: Final = 200
#: Records and bytes that are held in a pause; then nothing more is read: the rest stays where it is.
HELD_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
#: A view that is gone says nothing: its tail ends after so long.
SILENT_S: Final = 60.0
#: Views that follow at once.
TAILS_MAX: Final = 8


class LiveTails:
    """Follows one table for each view. For one thread; others may end tails.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._tails: dict[str, LiveTail] = {}
        self._closed = False

    def follow(self, request: TailRequest) -> Steps:
        """Yield what has come, four times a second, until the view has been silent for a minute.

        As `change_rows`; ``skipped`` records that are not shown, ``total`` of those shown and not since the start, by which a
        view sees what was lost on the way, ``rate`` a second, ``held``, ``limit``, ``state`` (``following``, ``paused``, ``full``,
        ``ended``; ``away`` while no server answers: it is followed on from where it is then). The first answer after a start
        has the lines too.

        Raises:
            InvalidRequestError: Nothing is followed, or by too many views.
            FlussError: The table can no longer be read; nothing is followed then.
        """
        if request.op == "stop":
            self.forget(request.view)
            yield {"state": "ended"}
            return
        code: list[str] = []
        if request.op == "start":
            tail, code = self._start(request)
        elif (found := self._tails.get(request.view)) is None:
            raise InvalidRequestError("tail: nothing is followed; start it again")
        else:
            tail = found
        try:
            until = time.monotonic() + SILENT_S
            while time.monotonic() < until:
                answer = tail.next_answer(INTERVAL_S / max(1, len(self._tails)), is_paused=request.op == "pause")
                yield answer | {"code": code} if code else answer
        except Exception:
            self.forget(request.view)
            raise
        self.forget(request.view)
        yield {"state": "ended"}

    def _start(self, request: TailRequest) -> tuple[LiveTail, list[str]]:
        self.forget(request.view)
        info = self._tables.info(request)
        table, columns = self._tables.table(info), self._tables.drawn_names(info)
        tail = LiveTail(info, columns, self._tables.time_zone)
        with self._lock:
            if self._closed or len(self._tails) >= TAILS_MAX:
                raise InvalidRequestError(f"tail: {len(self._tails)} views follow tables already; stop one of them")
            self._tails[request.view] = tail
        try:
            tail.begin(lambda: table.subscribe("latest", columns=columns))
        except BaseException:
            self.forget(request.view)
            raise
        return tail, code_lines.tail_code(info.path, self._tables.code_columns(info))

    def forget(self, view: str) -> None:
        """End what a view follows. Of any thread; twice is fine."""
        with self._lock:
            tail = self._tails.pop(view, None)
        if tail is not None:
            tail.close()

    def close(self) -> None:
        """End all. Of any thread; nothing is followed afterwards."""
        with self._lock:
            self._closed = True
        for view in list(self._tails):
            self.forget(view)


class LiveTail:
    """Follows one table.

    Args:
        info: The table.
        columns: Whose values are shown.
        zone: In which times are shown.
    """

    def __init__(self, info: TableInfo, columns: Sequence[str], zone: dt.tzinfo | None) -> None:
        self._columns, self._zone = columns, zone
        self._schema = changelog_schema(info, columns)
        self._lock = threading.Lock()
        self._scanner: LogScanner | None = None
        self._closed = False
        #: What was read and is neither shown nor skipped.
        self._held: deque[ScanBatch] = deque()
        self._held_records = self._held_bytes = self._skipped = self._total = 0
        self._was_paused = self._is_away = False
        self._rate, self._allowed, self._at = 0.0, float(SHOWN_PER_S), time.monotonic()

    def begin(self, open_scanner: Callable[[], LogScanner]) -> None:
        """Open what is read.

        Raises:
            InvalidRequestError: It was closed meanwhile.
        """
        scanner = open_scanner()
        with self._lock:
            if not self._closed:
                self._scanner = scanner
                return
        scanner.close()
        raise InvalidRequestError("tail: it was ended")

    def close(self) -> None:
        """End it. Of any thread; twice is fine."""
        with self._lock:
            self._closed = True
            scanner, self._scanner = self._scanner, None
        if scanner is not None:
            scanner.close()

    def next_answer(self, wait_s: float, *, is_paused: bool) -> Answer:
        """Return what has come in a while.

        Args:
            wait_s: How long that is.
            is_paused: Whether records are held instead of shown.
        """
        allowed = RESUMED_MAX if self._was_paused and not is_paused else int(self._allowed)
        found = self._read(wait_s, None if is_paused else allowed)
        now = time.monotonic()
        passed_s, self._at = max(0.001, now - self._at), now
        self._rate += (1 - 0.5**passed_s) * (found / passed_s - self._rate)
        self._was_paused = is_paused
        pieces = [] if is_paused else self._take(allowed)
        records = self._sort(pieces)
        self._allowed = min(SHOWN_PER_S, max(0.0, self._allowed - records.num_rows) + SHOWN_PER_S * passed_s)
        skipped, self._skipped = self._skipped, 0
        self._total += records.num_rows + skipped
        beside = {
            "skipped": skipped,
            "total": self._total,
            "rate": round(self._rate),
            "held": self._held_records,
            "limit": HELD_MAX,
            "state": self._state(is_paused=is_paused),
        }
        return change_rows(records, self._columns, self._zone, update_pairs(records), lambda _: True, beside)

    def _state(self, *, is_paused: bool) -> str:
        if self._is_full:
            return "full"
        return "away" if self._is_away else "paused" if is_paused else "following"

    @property
    def _is_full(self) -> bool:
        return self._held_records >= HELD_MAX or self._held_bytes >= HELD_BYTES_MAX

    def _read(self, wait_s: float, kept: int | None) -> int:
        """Read for a while; return how many records came.

        Args:
            wait_s: Seconds.
            kept: So many of the newest are enough, so that reading keeps up; None: all are held, until there are too many.
        """
        scanner = self._scanner
        if scanner is None:
            raise InvalidRequestError("tail: it was ended")
        deadline, found = time.monotonic() + wait_s, 0
        while (left_s := deadline - time.monotonic()) > 0:
            if kept is None and self._is_full:
                time.sleep(left_s)
                break
            try:
                batches = scanner.poll(left_s)
            except UnavailableError:  # the scanner stays where it is in each bucket, and tries on
                self._is_away = True
                continue
            for batch in batches:
                found += len(batch.records)
                self._hold(batch)
                while kept is not None and self._held_records - len(self._held[0].records) >= max(1, kept):
                    self._skipped += len(self._let_go().records)
        self._is_away = self._is_away and scanner.is_failing
        return found

    def _hold(self, batch: ScanBatch) -> None:
        self._held.append(batch)
        self._held_records += len(batch.records)
        self._held_bytes += batch.rows.nbytes

    def _let_go(self) -> ScanBatch:
        """Return the oldest batch, which is no longer held."""
        batch = self._held.popleft()
        self._held_records -= len(batch.records)
        self._held_bytes -= batch.rows.nbytes
        return batch

    def _take(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the newest records held, oldest first; let all go."""
        while self._held:
            batch = self._let_go()
            skipped = min(len(batch.records), max(0, len(batch.records) + self._held_records - count))
            self._skipped += skipped
            if skipped < len(batch.records):
                span = ChangelogRange(batch.bucket, batch.partition, 0, 0, 0, None)
                yield changelog_batch(batch.records, span, self._schema).slice(skipped)

    def _sort(self, pieces: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return records in the order of time, partition, bucket and offset."""
        records = pa.Table.from_batches(list(pieces), self._schema)
        found = places(records)
        return records.take(pa.array(sorted(range(len(found)), key=found.__getitem__), pa.int64()))
