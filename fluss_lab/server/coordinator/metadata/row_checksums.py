"""Sums over the rows of the metadata file: SQLite itself does not notice a changed byte within a row.

Every table has its number of rows and the exclusive or of their digests in `row_sums`, kept by triggers in the transaction
that changes the rows; one more sum is over the tables' and triggers' own definitions. A program that changes rows without
`prepare` is refused by SQLite.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

_FUNCTION: Final = "fluss_lab_row_sum"
_DIGEST_BYTES: Final = 8
#: The name under which the definitions are summed: no table has it.
_DEFINITIONS: Final = "sqlite_master"
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS row_sums (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT"
)


def prepare(db: sqlite3.Connection) -> None:
    """Register the functions with which a connection may change rows."""
    db.create_function(_FUNCTION, -1, _add_row, deterministic=True)
    # Without it, rows that INSERT OR REPLACE removes would stay in the sums.
    db.execute("PRAGMA recursive_triggers = ON")
    # The triggers call a function of the connection's.
    db.execute("PRAGMA trusted_schema = ON")


def has_sums(db: sqlite3.Connection) -> bool:
    """Return whether a file has sums."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'row_sums'").fetchone() is not None


def begin(db: sqlite3.Connection) -> None:
    """Compute the sums of all tables and create the triggers that maintain them. Part of the caller's transaction."""
    db.execute(_TABLE)
    for table in _tables(db):
        for event, sums in _changes(_columns(db, table)):
            change = f"UPDATE row_sums SET {sums} WHERE name = '{table}'"  # noqa: S608  # names of the file's own
            db.execute(
                f"CREATE TRIGGER IF NOT EXISTS {table}_{event.lower()}_summed AFTER {event} ON {table} BEGIN {change}; END"
            )
    for name, (rows, total) in _stored_sums(db).items():
        db.execute("INSERT OR REPLACE INTO row_sums VALUES (?, ?, ?)", (name, rows, total))


def problem(db: sqlite3.Connection) -> str | None:
    """Return how a file differs from what was written to it; None if it does not.

    Raises:
        sqlite3.Error: It cannot be read.

    Cost: reads all rows.
    """
    damaged = [str(row[0]) for row in db.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
    if damaged:
        return "; ".join(damaged)
    noted = {str(name): (rows, total) for name, rows, total in db.execute("SELECT name, rows, sum FROM row_sums")}
    found = _stored_sums(db)
    for name in sorted(noted.keys() | found.keys()):
        if noted.get(name) != found.get(name):
            return f"its rows of {name} are not those that were written: their checksum differs"
    return None


def _tables(db: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'row_sums' AND name NOT LIKE 'sqlite%'"
    return [str(row[0]) for row in db.execute(query)]


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]


def _changes(columns: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each event and what it does to a table's sums."""
    old, new = (", ".join(f"{row}.{column}" for column in columns) for row in ("OLD", "NEW"))
    yield "INSERT", f"rows = rows + 1, sum = {_FUNCTION}(sum, {new})"
    yield "UPDATE", f"sum = {_FUNCTION}({_FUNCTION}(sum, {old}), {new})"
    yield "DELETE", f"rows = rows - 1, sum = {_FUNCTION}(sum, {old})"


def _stored_sums(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return number and sum of what is there."""
    queries = {table: f"SELECT * FROM {table}" for table in _tables(db)}  # noqa: S608  # names of the file's own
    queries[_DEFINITIONS] = (
        "SELECT type, name, tbl_name, sql FROM sqlite_master UNION ALL "
        "SELECT 'version', user_version, application_id, NULL FROM pragma_user_version, pragma_application_id"
    )
    return {name: _sum_rows(db.execute(query)) for name, query in queries.items()}


def _sum_rows(rows: Iterable[tuple[object, ...]]) -> tuple[int, int]:
    count = total = 0
    for row in rows:
        count, total = count + 1, _add_row(total, *row)
    return count, total


def _add_row(total: int, *values: object) -> int:
    digest = hashlib.blake2b(b"".join(map(_bytes, values)), digest_size=_DIGEST_BYTES).digest()
    return total ^ int.from_bytes(digest, signed=True)


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return b"t%d:%s" % (len(text), text)
    return b"n;" if value is None else b"i%d;" % value if isinstance(value, int) else b"?;"
