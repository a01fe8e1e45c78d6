"""The actions on tables: each once, however often it is asked; rounds and compactions on threads of their own, to be followed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from fluss_lab.display import plural
from fluss_lab.display.waiting import shown_elsewhere
from fluss_lab.errors import InvalidRequestError, TieringCancelledError, TieringInProgressError
from fluss_lab.explorer.explorer_answers import Answer, Steps
from fluss_lab.explorer.explorer_requests import CompactRequest, FollowRequest, RoundRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.model import TablePath
from fluss_lab.tiering.round.round_report import CompactionReport, TieringReport
from fluss_lab.tiering.task.round_progress import RoundState

#: Between two answers to who follows an action.
INTERVAL_S: Final = 0.25
#: Buckets of a round that are shown, those with most to do first.
BUCKETS_SHOWN: Final = 48
#: Clicks that are remembered, with what came of them.
CLICKS_MAX: Final = 1_000
_NOUNS: Final = {"round": "round", "compact": "compaction"}


class ClickLedger:
    """What came of each click, so that none is acted on twice: a message may come again, or from another view. For one thread."""

    def __init__(self) -> None:
        self._done: dict[str, Answer | Exception] = {}

    def once(self, click: str, act: Callable[[], Answer]) -> Answer:
        """Return what came of a click, or do what it asks for.

        Raises:
            Exception: What it raised: it may have been done in part.
        """
        if click not in self._done:
            try:
                self._done[click] = act()
            except Exception as error:
                self._done[click] = error
            while len(self._done) > CLICKS_MAX:
                del self._done[next(iter(self._done))]
        found = self._done[click]
        if isinstance(found, Exception):
            raise found
        return found


class _Action:
    """A round or a compaction, on a thread of its own.

    Attributes:
        kind: ``round`` or ``compact``.
        table_id: Of which table.
        cancel: Set, it ends a round.
        ended: Set at its end.
        state: How far a round is.
        outcome: How it ended: ``state`` ``done``, ``cancelled`` or ``failed``, and what there is to say.
    """

    def __init__(self, kind: str, table_id: str, act: Callable[[_Action], Answer]) -> None:
        self.kind, self.table_id = kind, table_id
        self.cancel, self.ended = threading.Event(), threading.Event()
        self.state: RoundState | None = None
        self.outcome: Answer = {"state": "cancelled", "text": "Its process ended it"}
        threading.Thread(target=self._run, args=(act,), name=f"fluss-explorer-{kind}", daemon=True).start()

    def _run(self, act: Callable[[_Action], Answer]) -> None:
        try:
            with shown_elsewhere():
                self.outcome = act(self)
        finally:
            self.ended.set()

    def follow_round(self, state: RoundState) -> None:
        """Take news of the round."""
        self.state = state

    def answer(self) -> Answer:
        """Return how far it is, or how it ended."""
        if self.ended.is_set():
            return {"action": self.kind, **self.outcome}
        progress = None if self.state is None else _progress(self.state)
        return {"action": self.kind, "state": "running", "cancelled": self.cancel.is_set(), "progress": progress}


class TableActions:
    """Rounds and compactions that a person begins by hand, one of a table at a time. They go on when nobody looks.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        #: By path: the last one of each table.
        self._actions: dict[str, _Action] = {}

    def round(self, request: RoundRequest) -> Answer:
        """Begin a round, or cancel the one that was begun from here. Returns how far it is then.

        Raises:
            TieringInProgressError: A compaction that was begun from here is under way.
            InvalidRequestError: There is no round to cancel.
        """
        if request.op == "cancel":
            action = self._running(request.table)
            if action is None or action.kind != "round":
                raise InvalidRequestError(f"table {request.table}: no round that was begun from here is under way")
            action.cancel.set()
            return action.answer()
        info = self._tables.info(request)
        table, path = self._tables.table(info), info.path
        return self._begin(
            "round",
            path,
            info.table_id,
            lambda action: _tier_answer(table.tier(cancel=action.cancel, progress=action.follow_round)),
        ) | {"code": code_lines.tier_code(path)}

    def compact(self, request: CompactRequest) -> Answer:
        """Begin a compaction. Returns that it runs.

        Raises:
            TieringInProgressError: A round that was begun from here is under way.
        """
        info = self._tables.info(request)
        table = self._tables.table(info)
        begun = self._begin("compact", info.path, info.table_id, lambda _: _compact_answer(table.compact()))
        return begun | {"code": code_lines.compact_code(info.path)}

    def follow(self, request: FollowRequest) -> Steps:
        """Yield how far a table's action is, four times a second, and how it ended; ``state`` is ``none`` without any."""
        action = self._actions.get(request.table)
        if action is None or request.table_id not in {None, action.table_id}:
            yield {"action": None, "state": "none"}
            return
        while not action.ended.wait(INTERVAL_S):
            yield action.answer()
        yield action.answer()

    def running(self, table: str) -> dict[str, Any]:
        """Return ``action``: which one of a table is under way, or None."""
        action = self._running(table)
        return {"action": None if action is None else action.kind}

    def _running(self, table: str) -> _Action | None:
        action = self._actions.get(table)
        return None if action is None or action.ended.is_set() else action

    def _begin(self, kind: str, path: TablePath, table_id: int, act: Callable[[_Action], Answer]) -> Answer:
        action = self._running(str(path))
        if action is not None and action.kind != kind:
            raise TieringInProgressError(
                f"table {path}: a {_NOUNS[action.kind]} is under way; try again when it has ended"
            )
        if action is None:
            action = self._actions[str(path)] = _Action(kind, str(table_id), lambda action: self._act(action, act))
        return action.answer()

    def _act(self, action: _Action, act: Callable[[_Action], Answer]) -> Answer:
        try:
            return {"state": "done", **act(action)}
        except TieringCancelledError:
            return {"state": "cancelled", "text": "Cancelled: nothing of it is in the lake, the next round does it all"}
        except Exception as error:  # whatever it is, the view shows it
            return {"state": "failed", "failure": self._tables.error_answer(error)}


def _progress(state: RoundState) -> Answer:
    """Return how far a round is, as a view draws it."""
    buckets = sorted(state.buckets, key=lambda each: each.rows - each.planned)[:BUCKETS_SHOWN]
    return {
        "stage": state.stage,
        "tasks": [state.tasks_done, state.tasks],
        "planned": state.planned,
        "rows": state.rows,
        "bytes": state.size_bytes,
        "seconds": state.seconds,
        "stages": _round_seconds(state.stages),
        "epoch": state.epoch,
        "buckets": [[each.partition, each.bucket, each.rows, each.planned] for each in buckets],
        "bucket_count": len(state.buckets),
    }


def _round_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(each, 3) for name, each in seconds.items()}


def _tier_answer(report: TieringReport) -> Answer:
    """Return what a round did, for the status line."""
    seconds = report.seconds.get("total", 0.0)
    events = f" and {plural(report.events, 'delete')}" if report.events else ""
    amount = f"{plural(report.rows, 'row')}{events} in {plural(report.files, 'file')}"
    amount = amount if report.buckets or report.rows else "nothing to tier"
    more = "; a limit ended it, and the next one goes on" if report.is_limited else ""
    return {"epoch": report.epoch, "text": f"Round {report.epoch}: {amount}, {seconds:.2f} s{more}"}


def _compact_answer(report: CompactionReport) -> Answer:
    """Return what a compaction did, for the status line."""
    if report.snapshot_id is None:
        return {"text": f"Compaction: nothing to do, {report.seconds:.2f} s"}
    files = f"{plural(report.files_before, 'file')} became {report.files_after:,}"
    return {"text": f"Compaction: {files}, {report.seconds:.2f} s", "snapshot_id": str(report.snapshot_id)}
