"""The findings about tiering: tables whose rounds fail, since when, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab.client import Connection, TieringRoundRecord
from fluss_lab.client.cluster.tiering_rounds import split_error
from fluss_lab.display import plural
from fluss_lab.errors import FlussError
from fluss_lab.model import TablePath
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.health.remedies import command_text, remedy_of

_OTHERWISE: Final = "mend what the text names; rounds go on by themselves, or at once by hand"


@dataclass(frozen=True, slots=True)
class TieringTrouble:
    """A table whose last round failed.

    Attributes:
        table: Its path.
        error_class: Name of the error's class; None where the coordinator gave the round up.
        error: Its text.
        attempts: Rounds that failed since the last that ended well.
        since_ms: When the first of them failed, epoch milliseconds, as far as the history of rounds reaches; None: not known.
        todo: What to do.
        command: A command of the shell that does it, or shows what it comes to; None: there is none.
    """

    table: TablePath
    error_class: str | None
    error: str
    attempts: int
    since_ms: int | None
    todo: str
    command: str | None

    def __str__(self) -> str:
        since = "" if self.since_ms is None else f" since {format_moment(self.since_ms)}"
        return f"table {self.table}: {plural(self.attempts, 'round')} failed{since}: {self.error}"


def tiering_troubles(
    connection: Connection, states: Iterable[pb.PbTieringState], folder: Path | None = None
) -> list[TieringTrouble]:
    """Return the tables whose last round failed, by path.

    Args:
        connection: To the cluster.
        states: What the coordinator says of every table's tiering.
        folder: The lab's, for the commands; None: they are run where it is the default.

    Cost: a call for each such table.
    """
    found = []
    for state in states:
        if not state.last_error:
            continue
        path = TablePath(state.table_path.database_name, state.table_path.table_name)
        try:
            since_ms = failing_since_ms(connection.admin().tiering_rounds(path))
        except FlussError:  # of an older release, dropped just now, or away: the failure itself is known
            since_ms = None
        error_class, text = split_error(state.last_error)
        todo, command = remedy_of(error_class, text, path, folder)
        if not todo:
            todo, command = _OTHERWISE, command_text("tier {table}", path, folder)
        found.append(TieringTrouble(path, error_class, text, max(1, state.failures), since_ms, todo, command))
    return sorted(found, key=lambda each: each.table)


def failing_since_ms(rounds: Iterable[TieringRoundRecord]) -> int | None:
    """Return when the first of the last rounds failed that all failed; None: the last one did not, or none is kept."""
    since_ms: int | None = None
    for each in rounds:
        if each.state == "failed":
            since_ms = each.start_ms if since_ms is None else since_ms
        elif each.state in {"done", "limited"}:
            since_ms = None
    return since_ms
