"""A lab's tables under their paths in a session: ``spark.table("nyc.flights")``, ``spark.sql("select ... from nyc.flights")``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import InvalidNameError, NotFoundError
from fluss_lab.model import TablePath
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.lookup.lookup_hint import may_look_up
from fluss_lab.spark.session.spark_errors import folded_errors
from fluss_lab.spark.source.lab_sql import run_statement
from fluss_lab.spark.source.table_frame import scan_to_spark

if TYPE_CHECKING:
    from typing import Protocol

    from pyspark.sql import DataFrame, SparkSession

    from fluss_lab.client import Connection

    class NamedTable(Protocol):
        """A table, as a session reads it."""

        @property
        def scan(self) -> Callable[..., Scan]:
            """Return what makes scans of it."""

    class NamedTables(Protocol):
        """A lab, as a session knows its tables."""

        connection: Connection

        def table(self, path: str | TablePath) -> NamedTable:
            """Return a table, or raise `NotFoundError`."""

        def databases(self) -> list[str]:
            """Return the names of its databases."""


#: Statements that may name a database alone, without a dot.
_OF_DATABASES: Final = re.compile(
    r"(?:\s|/\*.*?\*/|--[^\n]*)*+(?:use|show|create|drop|alter|desc|describe|comment|analyze)\b",
    re.IGNORECASE | re.DOTALL,
)


def know_tables(session: SparkSession, lab_of: Callable[[], NamedTables | None]) -> None:
    """Have a session's ``table`` and ``sql`` know a lab's tables by their paths; other names stay Spark's own.

    Args:
        session: Its object here is changed, not its catalog: other names for the same tables would go stale there.
        lab_of: Returns the lab; None: it is gone.
    """
    kind = type(session)

    def open_lab() -> NamedTables | None:
        return None if (lab := lab_of()) is None or lab.connection.closed.is_set() else lab

    def scan_of(path: TablePath) -> Callable[..., Scan] | None:
        return None if (lab := open_lab()) is None else lab.table(path).scan

    def has_database(name: str) -> bool:
        return (lab := open_lab()) is not None and name in lab.databases()

    def table(tableName: str) -> DataFrame:  # noqa: N803  # Spark's name
        """Return a table of the lab by its path, as it is now; or a table or view of Spark's own."""
        missing: list[str] = []
        try:
            scan = scan_of(TablePath.parse(tableName.replace("`", ""))) if isinstance(tableName, str) else None
        except InvalidNameError:
            scan = None
        except NotFoundError as error:
            scan, missing = None, [str(error)]
        if scan is not None:
            return scan_to_spark(session, scan())
        with folded_errors(missing=missing):
            return kind.table(session, tableName)

    def sql(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803  # Spark's name
        """Run Spark SQL that knows a lab's tables by their paths, each read as it is now; see `Lab.sql`.

        A statement with frames by keyword (``sql("... {rows}", rows=frame)``) is Spark's own: it knows none of them.
        """
        if kwargs or not isinstance(sqlQuery, str) or not _may_name(sqlQuery):
            return kind.sql(session, sqlQuery, args, **kwargs)
        return run_statement(scan_of, session, sqlQuery, None, {}, args, has_database)

    session.table = table  # type: ignore[method-assign]
    session.sql = sql  # type: ignore[method-assign]


def _may_name(text: str) -> bool:
    """Return whether a statement may name a table or database of a lab."""
    return "." in text or may_look_up(text) or _OF_DATABASES.match(text) is not None
