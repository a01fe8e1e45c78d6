"""Spark SQL over a lab: which of its tables a statement names, and the frames that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_lab.errors import InvalidNameError, InvalidRequestError, NotFoundError
from fluss_lab.model import TablePath
from fluss_lab.model.times import Moment
from fluss_lab.read.moment.read_point import ReadPoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fluss_lab.workbench.table import Table


def run_statement(
    table_of: Callable[[TablePath], Table],
    session: SparkSession,
    text: str,
    as_of: Moment | None,
    read_points: Mapping[str | TablePath, ReadPoint],
) -> DataFrame:
    """Run Spark SQL in which every table of a lab is known by its path; see `Lab.sql`.

    Args:
        table_of: Returns a table by its path, or raises `NotFoundError`.
        session: Where.
        text: The statement.
        as_of: When its tables are read; None: now.
        read_points: Of tables that are read at a moment taken before.
    """
    from fluss_lab.spark.source.spark_sql import named_tables, sql
    from fluss_lab.spark.source.union_frame import scan_to_spark

    points = {TablePath.parse(path): point for path, point in read_points.items()}
    if points and (unnamed := set(points) - {_path_of(parts) for parts in named_tables(session, text)}):
        raise InvalidRequestError(
            f"sql: read points of {', '.join(sorted(map(str, unnamed)))}, which the statement does not name"
        )

    def frame_of(parts: list[str]) -> DataFrame | None:
        if (path := _path_of(parts)) is None:
            return None
        try:
            table = table_of(path)
        except NotFoundError:
            return None
        point = points.get(path)
        return scan_to_spark(session, table.scan(as_of=as_of if point is None else None, read_point=point))

    return sql(session, text, frame_of)


def _path_of(parts: Sequence[str]) -> TablePath | None:
    try:
        return TablePath.parse(".".join(parts)) if len(parts) == 2 else None
    except InvalidNameError:
        return None
