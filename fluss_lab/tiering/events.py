"""How a round ended, as the committer tells the enumerator and the enumerator the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

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
    """The round ended well: everything planned is in the lake and known to Fluss.

    Attributes:
        assignment: Whose round.
        rows: Records tiered.
        size_bytes: Bytes of the files written.
    """

    assignment: TieringAssignment
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FailedTieringEvent:
    """The round failed.

    Attributes:
        assignment: Whose round.
        message: What went wrong, in one text.
    """

    assignment: TieringAssignment
    message: str
