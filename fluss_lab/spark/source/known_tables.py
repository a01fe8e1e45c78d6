"""A lab's tables under their paths in a session: ``spark.table("nyc.flights")``, ``spark.sql("select ... from nyc.flights")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fluss_lab.errors import InvalidNameError, NotFoundError
from fluss_lab.model import TablePath
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.lookup.lookup_hint import may_look_up
from fluss_lab.spark.session.spark_errors import folded_errors
from fluss_lab.spark.source.lab_sql import run_statement
from fluss_lab.spark.source.table_frame import scan_to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def know_tables(session: SparkSession, scan_of: Callable[[TablePath], Callable[..., Scan] | None]) -> None:
    """Have a session's ``table`` and ``sql`` know a lab's tables by their paths; other names stay Spark's own.

    Args:
        session: Its object here is changed, not its catalog: other names for the same tables would go stale there.
        scan_of: Returns what makes scans of a table; None: the lab is closed. It raises `NotFoundError` for what is none.
    """
    kind = type(session)

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
        if (
            kwargs or not isinstance(sqlQuery, str) or not ("." in sqlQuery or may_look_up(sqlQuery))
        ):  # it names no path
            return kind.sql(session, sqlQuery, args, **kwargs)
        return run_statement(scan_of, session, sqlQuery, None, {}, args)

    session.table = table  # type: ignore[method-assign]
    session.sql = sql  # type: ignore[method-assign]
