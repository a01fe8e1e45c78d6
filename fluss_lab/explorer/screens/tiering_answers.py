"""The answers about a table's tiering: where it is in the state machine, lag over time, its rounds, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fluss_lab.display import short
from fluss_lab.explorer.explorer_answers import Answer, cut_to_size, now_ms
from fluss_lab.explorer.explorer_requests import TieringRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.model.config.options import DATALAKE_FRESHNESS
from fluss_lab.model.times import parse_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.cards.table_facts import tiering_states
from fluss_lab.workbench.health.tiering_findings import tiering_troubles

#: Rounds that are shown.
ROUNDS_MAX: Final = 50
#: So far back the lag is shown.
LAG_MS: Final = 1_800_000
#: Of an error's text.
_ERROR_LENGTH_MAX: Final = 2_000
_STAGES: Final = ("plan_s", "write_s", "commit_s", "maintain_s")


class TieringAnswers:
    """What a view shows of tiering. For one thread.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables

    def tiering(self, request: TieringRequest) -> Answer:
        """Return how a table's tiering is; of one that is not in the lake, only how it would be.

        ``state`` (of the state machine), ``epoch``, ``due_ms``, ``lag``: time, records, lag in milliseconds, oldest first;
        ``rounds``, newest first: number, start, end, state, rows, files, bytes, seconds of each stage, seconds in all,
        snapshot, error's class and text; ``trouble``: why the last ones failed, and what to do.
        """
        info = self._tables.info(request)
        path = info.path
        if not info.descriptor.lake_enabled:
            return {"enabled": False, "todo": code_lines.lake_code(path)[-1], "code": code_lines.buckets_code(path)}
        state = tiering_states(self._tables.lab.connection, f"show {path}").get(str(path))
        table, at_ms = self._tables.table(info), now_ms()
        samples = [[parse_moment(row["time"]), str(row["records"]), row["lag_ms"]] for row in table.lag_history()]
        before = [each for each in samples if each[0] < at_ms - LAG_MS][-1:]
        rounds = list(table.rounds())[-ROUNDS_MAX:][::-1]
        answer: Answer = {
            "enabled": True,
            "state": None if state is None else state.state,
            "epoch": None if state is None else state.tiering_epoch,
            "due_ms": state.due_time if state is not None and state.HasField("due_time") else None,
            "freshness_ms": DATALAKE_FRESHNESS.of(info.descriptor.properties),
            "lag": before + [each for each in samples if each[0] >= at_ms - LAG_MS],
            "trouble": None if state is None else self._trouble(state),
            "code": code_lines.rounds_code(path),
            "now_ms": at_ms,
        }
        return cut_to_size(
            lambda length: answer | {"rounds": [self._round(row, length) for row in rounds]}, _ERROR_LENGTH_MAX
        )

    def _trouble(self, state: pb.PbTieringState) -> Answer | None:
        folder: Path | None = getattr(self._tables.lab, "folder", None)
        found = tiering_troubles(self._tables.lab.connection, [state], folder)
        if not found:
            return None
        (trouble,) = found
        return {
            "class": trouble.error_class,
            "text": self._tables.mask.visible_text(short(trouble.error, _ERROR_LENGTH_MAX)),
            "since_ms": trouble.since_ms,
            "attempts": trouble.attempts,
            "todo": trouble.todo,
            "command": trouble.command,
        }

    def _round(self, row: Mapping[str, Any], length: int) -> list[Any]:
        error = None if row["error"] is None else self._tables.mask.visible_text(short(row["error"], length))
        return [
            row["round"],
            parse_moment(row["start"]),
            None if row["end"] is None else parse_moment(row["end"]),
            row["state"],
            None if row["rows"] is None else str(row["rows"]),
            row["files"],
            row["bytes"],
            [row[stage] for stage in _STAGES],
            row["seconds"],
            None if row["snapshot_id"] is None else str(row["snapshot_id"]),
            row["error_class"],
            error,
        ]
