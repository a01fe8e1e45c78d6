"""The outcome of a round, which committer, enumerator and coordinator pass on."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_lab.errors import FlussError, error_code
from fluss_lab.model import TablePath


@dataclass(frozen=True, slots=True)
class TieringAssignment:
    """A table that the coordinator handed to this tierer.

    Attributes:
        table_id: Of the table.
        path: Where it is found.
        tiering_epoch: The fencing number of this round.
        coordinator_epoch: The coordinator's start that handed it out.
        takeover: An earlier epoch did not end by itself: it must be fenced before planning.
    """

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int
    takeover: bool

    def __str__(self) -> str:
        return f"table {self.path} (id {self.table_id}, tiering epoch {self.tiering_epoch})"


@dataclass(frozen=True, slots=True)
class FinishedTieringEvent:
    """The round ended well: what it wrote is in the lake and known to Fluss.

    Attributes:
        assignment: Whose round.
        rows: Records tiered.
        size_bytes: Bytes of the files written.
        is_forced: Whether a limit ended the round before the lake was up to date: the table is due again at once.
    """

    assignment: TieringAssignment
    rows: int
    size_bytes: int
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class FailedTieringEvent:
    """The round failed.

    Attributes:
        assignment: Whose round.
        message: What went wrong, in one text.
        error_code: Its wire code, of a `FlussError`.
    """

    assignment: TieringAssignment
    message: str
    error_code: int | None = None

    @staticmethod
    def of(assignment: TieringAssignment, error: BaseException) -> FailedTieringEvent:
        """Return the event of a round that an error ended."""
        code = error_code(error) if isinstance(error, FlussError) else None
        return FailedTieringEvent(assignment, f"{type(error).__name__}: {error}", code)
