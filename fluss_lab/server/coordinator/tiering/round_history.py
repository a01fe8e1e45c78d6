"""The last rounds of each table, as rows of the metadata file: when they began and ended, how, and what their tierers said.

A round is noted when a tierer gets the table, and again when it ends, each in the transaction that moves the table's state:
whoever runs it, and however it ends. Of rounds with nothing to tier that follow each other the last stands for all: an idle
table that is looked at every second would else push out what happened to it.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore

#: Columns of what a tierer says, named as the message's fields.
FACTS: Final = (
    "row_count", "event_count", "files", "size_in_bytes", "splits", "snapshot_id", "is_limited", "plan_ms", "write_ms",
    "commit_ms", "maintain_ms", "total_ms", "records_before", "lag_ms_before", "records_after", "lag_ms_after",
)  # fmt: skip
_QUERY: Final = (
    f"SELECT epoch, started_ms, ended_ms, error_code, error, idle_before, {', '.join(FACTS)} "  # noqa: S608  # own names
    "FROM tiering_rounds WHERE table_id = ? ORDER BY epoch"
)
_END_UNKNOWN: Final = (
    "how it ended is not known: the coordinator was restarted, or the table's lake switched off, during the round"
)
#: The wire has no error of this code: the coordinator itself says what happened.
_OWN_CODE: Final = 0


class RoundHistory:
    """The rounds of every table. Its methods belong to the caller's transaction.

    Args:
        store: The metadata file.
        most: Rounds kept of each table.
    """

    def __init__(self, store: MetadataStore, most: int) -> None:
        self._store = store
        self._most = most

    def begin(self, table_id: int, epoch: int, now_ms: int) -> None:
        """Note that a round begins; one before it whose end was never noted has ended by now."""
        with self._store.write() as db:
            db.execute(
                "UPDATE tiering_rounds SET ended_ms = max(started_ms, ?), error_code = ?, error = ? "
                "WHERE table_id = ? AND ended_ms IS NULL",
                (now_ms, _OWN_CODE, _END_UNKNOWN, table_id),
            )
            db.execute(
                "INSERT OR REPLACE INTO tiering_rounds (table_id, epoch, started_ms, idle_before) VALUES (?, ?, ?, 0)",
                (table_id, epoch, now_ms),
            )

    def finish(self, table_id: int, epoch: int, now_ms: int, facts: pb.PbRoundFacts | None) -> None:
        """Note that a round finished.

        Args:
            table_id: Of which table.
            epoch: Its tiering epoch.
            now_ms: The time.
            facts: What its tierer says; None: the table was held for something else than a round, which is forgotten.
        """
        if facts is None:
            self.forget(table_id, epoch)
            return
        with self._store.write() as db:
            _end(db, table_id, epoch, now_ms, facts)
            if not facts.row_count and not facts.event_count and not facts.is_limited:
                _merge_idle(db, table_id, epoch)
            self._prune(db, table_id)

    def forget(self, table_id: int, epoch: int) -> None:
        """Leave out what was begun and is no round: the table was held for its upkeep, or a repair."""
        with self._store.write() as db:
            db.execute("DELETE FROM tiering_rounds WHERE table_id = ? AND epoch = ?", (table_id, epoch))

    def fail(
        self,
        table_id: int,
        epoch: int,
        now_ms: int,
        message: str,
        error_code: int | None,
        facts: pb.PbRoundFacts | None,
    ) -> None:
        """Note that a round failed.

        Args:
            table_id: Of which table.
            epoch: Its tiering epoch.
            now_ms: The time.
            message: Why.
            error_code: Why, as a wire code; None: the coordinator itself says so, or the tierer's error has none.
            facts: What its tierer says; None: nothing.
        """
        with self._store.write() as db:
            _end(db, table_id, epoch, now_ms, facts or pb.PbRoundFacts())
            code = _OWN_CODE if error_code is None else error_code
            db.execute(
                "UPDATE tiering_rounds SET error_code = ?, error = ? WHERE table_id = ? AND epoch = ?",
                (code, message, table_id, epoch),
            )
            self._prune(db, table_id)

    def rounds(self, table_id: int, held_epoch: int | None) -> list[pb.PbTieringRound]:
        """Return a table's rounds, oldest first.

        Args:
            table_id: The table.
            held_epoch: The epoch of the round that is under way; None: there is none.
        """
        with self._store.read() as db:
            return [_message(row, held_epoch) for row in db.execute(_QUERY, (table_id,))]

    def _prune(self, db: sqlite3.Connection, table_id: int) -> None:
        db.execute(
            "DELETE FROM tiering_rounds WHERE table_id = ? AND epoch <= "
            "(SELECT epoch FROM tiering_rounds WHERE table_id = ? ORDER BY epoch DESC LIMIT 1 OFFSET ?)",
            (table_id, table_id, self._most),
        )


def _end(db: sqlite3.Connection, table_id: int, epoch: int, now_ms: int, facts: pb.PbRoundFacts) -> None:
    said = {field.name: int(value) for field, value in facts.ListFields() if field.name in FACTS and value >= 0}
    changes = ", ".join(f"{name} = ?" for name in said)
    db.execute(
        f"UPDATE tiering_rounds SET ended_ms = max(started_ms, ?){', ' if changes else ''}{changes} "  # noqa: S608  # own names
        "WHERE table_id = ? AND epoch = ?",
        (now_ms, *said.values(), table_id, epoch),
    )


def _merge_idle(db: sqlite3.Connection, table_id: int, epoch: int) -> None:
    """Let a round with nothing to tier stand for the one before it, if that had nothing either."""
    before = db.execute(
        "SELECT epoch, idle_before FROM tiering_rounds WHERE table_id = ? AND epoch = "
        "(SELECT max(epoch) FROM tiering_rounds WHERE table_id = ? AND epoch < ?) AND ended_ms IS NOT NULL "
        "AND error IS NULL AND coalesce(row_count, 0) + coalesce(event_count, 0) + coalesce(is_limited, 0) = 0",
        (table_id, table_id, epoch),
    ).fetchone()
    if before is None:
        return
    db.execute("DELETE FROM tiering_rounds WHERE table_id = ? AND epoch = ?", (table_id, before[0]))
    db.execute(
        "UPDATE tiering_rounds SET idle_before = ? WHERE table_id = ? AND epoch = ?", (before[1] + 1, table_id, epoch)
    )


def _message(row: tuple[Any, ...], held_epoch: int | None) -> pb.PbTieringRound:
    epoch, started_ms, ended_ms, error_code, error, idle_before, *facts = row
    message = pb.PbTieringRound(tiering_epoch=epoch, start_time=started_ms, end_time=ended_ms, idle_before=idle_before)
    if error is not None:
        message.error.error_code, message.error.error_message = error_code, error
    elif ended_ms is None and epoch != held_epoch:
        message.error.error_code, message.error.error_message = _OWN_CODE, _END_UNKNOWN
    for name, value in zip(FACTS, facts, strict=True):
        if value is not None:
            setattr(message.facts, name, value)
    return message
