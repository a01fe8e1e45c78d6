"""The last tiering rounds of a table, as the coordinator keeps them: whoever ran them, and however they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import ERROR_CODES, TieringCancelledError
from fluss_lab.model import TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: Stages whose times a tierer reports, and all of the round up to its report.
_STAGES: Final = ("plan", "write", "commit", "maintain", "total")


@dataclass(frozen=True, slots=True)
class RoundLag:
    """How far the lake lagged behind at one moment of a round.

    Attributes:
        records: Records of the cluster that the lake did not hold.
        ms: So old at most was the oldest of them, milliseconds; 0 without any.
    """

    records: int
    ms: int


@dataclass(frozen=True, slots=True)
class TieringRoundRecord:
    """One round as the coordinator keeps it. What its tierer did not say, or an older release does not, is None.

    Attributes:
        epoch: Its tiering epoch, by which rounds of a table are numbered.
        start_ms: When the table was given out, epoch milliseconds of the coordinator's clock.
        end_ms: When its end was reported, or found out; None while it is under way, or where that is not known.
        rows: Rows tiered: records of a log table, new and updated rows of a primary-key table.
        events: Of a primary-key table: ends of rows tiered.
        files: Data files written.
        size_bytes: Their size.
        splits: Tasks that it was cut into.
        snapshot_id: The lake snapshot that the table had at its end.
        is_limited: Whether a limit ended it before the lake was up to date.
        seconds: By stage (``plan``, ``write``, ``commit``, ``maintain``), and in all (``total``).
        before: How far the lake lagged when the round was planned.
        after: How far it lagged at the round's end.
        error_class: Name of the error that ended it; None of one that ended well, or that the coordinator gave up.
        error: Its text; None of one that ended well.
        idle_before: So many rounds before it had nothing to tier either, and are kept as this one.
    """

    epoch: int
    start_ms: int
    end_ms: int | None = None
    rows: int | None = None
    events: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    splits: int | None = None
    snapshot_id: int | None = None
    is_limited: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    before: RoundLag | None = None
    after: RoundLag | None = None
    error_class: str | None = None
    error: str | None = None
    idle_before: int = 0

    @property
    def state(self) -> str:
        """Return ``tiering``, ``cancelled``, ``failed``, ``limited`` (more is to do), or ``done``."""
        if self.error is not None:
            return "cancelled" if self.error_class == TieringCancelledError.__name__ else "failed"
        if self.end_ms is None:
            return "tiering"
        return "limited" if self.is_limited else "done"


def tiering_rounds(connection: ClusterClient, path: TablePath) -> list[TieringRoundRecord]:
    """Return the last rounds of a table, oldest first. See `Admin.tiering_rounds`."""
    request = pb.ListTieringRoundsRequest(table_path=path_message(path))
    return [_record(each) for each in connection.coordinator().list_tiering_rounds(request).rounds]


def _record(message: pb.PbTieringRound) -> TieringRoundRecord:
    facts = message.facts
    error_class, error = _error(message)
    return TieringRoundRecord(
        epoch=message.tiering_epoch,
        start_ms=message.start_time,
        end_ms=message.end_time if message.HasField("end_time") else None,
        rows=_number(facts, "row_count"),
        events=_number(facts, "event_count"),
        files=_number(facts, "files"),
        size_bytes=_number(facts, "size_in_bytes"),
        splits=_number(facts, "splits"),
        snapshot_id=_number(facts, "snapshot_id"),
        is_limited=facts.is_limited,
        seconds={name: getattr(facts, f"{name}_ms") / 1000 for name in _STAGES if facts.HasField(f"{name}_ms")},
        before=_lag(facts, "before"),
        after=_lag(facts, "after"),
        error_class=error_class,
        error=error,
        idle_before=message.idle_before,
    )


def _number(facts: pb.PbRoundFacts, name: str) -> int | None:
    return int(getattr(facts, name)) if facts.HasField(name) else None


def _lag(facts: pb.PbRoundFacts, when: str) -> RoundLag | None:
    records, ms = _number(facts, f"records_{when}"), _number(facts, f"lag_ms_{when}")
    return None if records is None or ms is None else RoundLag(records, ms)


def _error(message: pb.PbTieringRound) -> tuple[str | None, str | None]:
    if not message.HasField("error"):
        return None, None
    named, text = split_error(message.error.error_message or "no reason was given")
    known = ERROR_CODES.get(message.error.error_code)
    return named if named is not None or known is None else known.__name__, text


def split_error(reported: str) -> tuple[str | None, str]:
    """Return class and text of a round's error as it was reported; None: the coordinator itself gave the round up.

    >>> split_error("ForeignCommitError: snapshot 7 is not ours")
    ('ForeignCommitError', 'snapshot 7 is not ours')
    """
    named, colon, text = reported.partition(": ")
    return (named, text) if colon and named.isidentifier() else (None, reported)
