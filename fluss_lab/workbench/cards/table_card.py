"""The card of a table: where its records are, and its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fluss_lab.client import Connection
from fluss_lab.display import LAKE, LOG, Grid, Key, card, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model import TableDescriptor, TablePath
from fluss_lab.workbench.cards.table_facts import table_facts, tiering_states

T = TypeVar("T")


def table_text(connection: Connection, path: TablePath) -> str:
    """Return a table's definition as one line; where it cannot be had at once, why."""
    found = _definition(connection, path)
    return f"Table {path}: {short(found, 300)}" if isinstance(found, str) else _line(path, found)


def table_html(connection: Connection, path: TablePath) -> str:
    """Return a table as a card: where its records are, and its columns; where it cannot be had at once, why."""
    facts = _find(lambda: table_facts(connection, path, tiering_states(connection, f"show {path}").get(str(path))))
    if isinstance(facts, str):
        return card("Table", path, notes=[facts])
    definition = facts.info.descriptor
    columns = definition.schema.columns
    has_comments = any(column.comment for column in columns)
    rows = [
        [
            column.name,
            _type_text(str(column.type)),
            ", ".join(_roles(definition, column.name)) or "",
            column.comment or "",
        ]
        for column in columns[:CARD_ROWS_MAX]
    ]
    headers = ["column", "type", "role", "comment"] if has_comments else ["column", "type", "role"]
    key = definition.schema.primary_key
    keys = []
    if definition.lake_enabled:
        keys = [
            Key(LAKE, f"lake {facts.lake_records:,}", facts.lake_records),
            Key(LOG, f"only in the log {facts.log_records:,}", facts.log_records),
        ]
    return card(
        "Table",
        path,
        [
            ("", "primary-key table" if key else "log table"),
            ("key", ", ".join(key) or None),
            ("changes" if key else "rows", facts.records),
            ("buckets", facts.buckets_text),
            ("lag", facts.lag_text),
            ("lake", None if definition.lake_enabled else "not in the lake"),
            ("", definition.comment or None),
        ],
        notes=[facts.error],
        keys=keys,
        grid=Grid(headers, [row[: len(headers)] for row in rows]),
        total=len(columns),
        noun="column",
        calls=[".scan()", ".schema", ".buckets()"] if len(columns) > CARD_ROWS_MAX else [".scan()", ".buckets()"],
    )


def _type_text(text: str) -> str:
    """Return a type as it is written in a schema: names of nested fields stay as they are."""
    return text if "<" in text else text.lower()


def known_columns(connection: Connection, path: TablePath) -> list[str]:
    """Return the columns' names for a person who types; none where they cannot be had at once."""
    found = _definition(connection, path)
    return [] if isinstance(found, str) else found.schema.names


def _definition(connection: Connection, path: TablePath) -> TableDescriptor | str:
    return _find(lambda: connection.table_info(path, connection.attempts(f"show {path}", 0)).descriptor)


def _find(look: Callable[[], T]) -> T | str:
    """Return what a look finds, or why it finds nothing."""
    try:
        return look()
    except Exception as error:  # what is shown must not fail
        return str(error) or type(error).__name__


def _line(path: TablePath, definition: TableDescriptor) -> str:
    return f"Table {path}: {definition.summary}"


def _roles(descriptor: TableDescriptor, column: str) -> list[str]:
    roles = {
        "primary key": descriptor.schema.primary_key,
        "partition": descriptor.partitioned_by,
        "bucket key": descriptor.bucket_key,
    }
    return [role for role, columns in roles.items() if column in columns]
