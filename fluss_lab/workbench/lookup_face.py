"""The method of labs that joins frames with tables by lookups, and what its tasks did, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.errors import InvalidPropertyError, InvalidRequestError, UnsupportedError
from fluss_lab.lookup import LookupTableSource
from fluss_lab.lookup.lookup_options import AUTO, UPDATE_STRATEGY
from fluss_lab.model import TablePath
from fluss_lab.model.times import Moment
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.table import Table

if TYPE_CHECKING:
    from typing import Protocol

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from fluss_lab.display.plot_style import Picture
    from fluss_lab.spark.lookup.task_counts import TaskCounts

    class LookupLab(Protocol):
        """A lab, as lookup joins need it."""

        connection: Connection

        def table(self, path: str | TablePath) -> Table:
            """Return a table."""


_LONG: Final = pa.int64()
#: What every task counts, and what the lookups of tables count; other sources may count more.
TASK_COLUMNS: Final = {
    "batch": _LONG, "task": _LONG, "partition": _LONG, "attempt": _LONG, "rows": _LONG, "null_keys": _LONG,
    "matched": _LONG, "unmatched": _LONG, "hits": _LONG, "misses": _LONG, "calls": _LONG, "rows_cached": _LONG,
    "bytes_cached": _LONG, "changes": _LONG, "open_ms": _LONG,
}  # fmt: skip
_IGNORE, _RESOLVE = "IGNORE", "TRY_RESOLVE"
_HOWS: Final = ("left", "inner")


class LookupMetrics:
    """What the tasks of lookup joins did: give one to `Lab.lookup_join`, run the frame, and look at it.

    It fills as tasks end that succeed: with a row for each task of each micro-batch, and for each time that a frame is run. The
    last 10,000 are kept for each join.
    """

    def __init__(self) -> None:
        self._counts: list[TaskCounts] = []

    def counts(self, context: SparkContext) -> TaskCounts:
        """Return what tasks of one more join count in."""
        from fluss_lab.spark.lookup.task_counts import TaskCounts

        self._counts.append(TaskCounts(context))
        return self._counts[-1]

    def tasks(self) -> Listing:
        """Return a row for each task that ended, in that order.

        ``batch`` is the micro-batch (None: of a static frame), ``task`` the number that its rows were distributed by, ``rows`` how many
        rows of the stream it looked up, beside those with ``null_keys``; ``matched`` and ``unmatched`` how many of them had a row in
        the table, before any condition. Of the source: ``hits`` and ``misses`` of what the task had, ``calls`` of servers, what it
        had at its end (``rows_cached``, ``bytes_cached``), ``changes`` of the table that it read. ``open_ms`` is the time that its
        function took to be ready.
        """
        rows = [row for counts in self._counts for row in counts.rows()]
        others = sorted({name for row in rows for name in row} - TASK_COLUMNS.keys())
        names = [*TASK_COLUMNS, *others]
        listed: list[dict[str, Any]] = [{name: row.get(name) for name in names} for row in rows]
        return Listing("tasks of lookup joins", listed, TASK_COLUMNS | dict.fromkeys(others, _LONG))

    def to_arrow(self) -> pa.Table:
        """Return `tasks` as an Arrow table."""
        return self.tasks().to_arrow()

    def to_pandas(self) -> Any:
        """Return `tasks` as a pandas frame."""
        return self.tasks().to_pandas()

    def plot(self) -> Picture:
        """Draw the rows that each task held at its end, and how many of its lookups they answered.

        Raises:
            UnsupportedError: matplotlib is not installed (extra ``demo``).
        """
        from fluss_lab.display.task_plot import tasks_picture

        rows = [row for row in self.tasks() if row["rows_cached"] is not None]
        rows.sort(key=lambda row: (row["batch"] or 0, row["partition"], row["task"]))
        names = [_task_name(row) for row in rows]
        return tasks_picture(names, [row["rows_cached"] for row in rows], [_hit_rate(row) for row in rows])

    def __repr__(self) -> str:
        return repr(self.tasks())

    def _repr_html_(self) -> str:
        return self.tasks()._repr_html_()


def _task_name(row: Mapping[str, Any]) -> str:
    batch = "" if row["batch"] is None else f"batch {row['batch']}, "
    task = "" if row["task"] in (0, row["partition"]) else f"task {row['task']} in "
    return f"{batch}{task}partition {row['partition']}"


def _hit_rate(row: Mapping[str, Any]) -> float | None:
    hits, misses = row["hits"], row["misses"]
    return None if hits is None or misses is None or not hits + misses else hits / (hits + misses)


def lookup_join(  # noqa: PLR0913  what a join can be asked has a name each
    self: LookupLab,
    frame: DataFrame,
    table: Table | TablePath | LookupTableSource,
    *,
    on: str | Mapping[str, str] | Sequence[str],
    how: str = "left",
    columns: Mapping[str, str] | Sequence[str] | None = None,
    where: str | None = None,
    shuffle: bool = False,
    mode: str = AUTO,
    as_of: Moment | ReadPoint | None = None,
    tasks: int | None = None,
    options: Mapping[str, object] | None = None,
    metrics: LookupMetrics | None = None,
) -> DataFrame:
    """Return a Spark frame with the rows of a table looked up by key, for static frames and for streams.

    What is looked up is the table at one moment: of a static frame when this is called, of a stream when each micro-batch begins,
    kept in the query's checkpoint, so that a micro-batch that is run again finds what it found. A row whose key is null finds nothing.

    Args:
        frame: Static or streaming.
        table: A primary-key table, or its path; or a source of your own (`fluss_lab.lookup.LookupTableSource`).
        on: Columns that both have, or the table's by the frame's. Its primary key, a prefix of it that has the bucket key, or
            any other columns, where the whole table is loaded; a key may have several rows then.
        how: ``left``: rows without a match stay, with nulls; ``inner``: they go.
        columns: Of the table, or their new names by their names; None: all but those joined on.
        where: A condition that matching rows fulfil, in Spark's SQL; the table's columns by its name: ``planes.year < year``.
        shuffle: Distribute the frame so that each task looks up rows of its own buckets only; where that cannot be, by the
            join keys. ``explain()`` says what is done, and why.
        mode: ``full``: each task loads the rows that it may need, and follows the table's changes from micro-batch to
            micro-batch; ``remote``: it asks the servers, and caches the last rows; ``auto``: by the table's size.
        as_of: The moment at which rows are looked up, as of `Table.scan`, or a read point: of a stream for all micro-batches.
        tasks: Among how many tasks `shuffle` distributes; None: as many as Spark runs at once.
        options: ``lookup.*`` (see docs/configuration.md), and ``table.optimizer.non-deterministic-update.strategy``:
            with ``TRY_RESOLVE`` a stream of changes that looks rows up as they are is distributed by the join keys.
        metrics: Filled as tasks end.

    Raises:
        InvalidRequestError, InvalidPropertyError, InvalidFilterError: What does not go together, or does not exist.
        UnsupportedError: The table has no primary key; or keys that cannot be compared, or a checkpoint elsewhere.
        TableNotFoundError: There is no such table; of a running stream, it was dropped and made again.
        InvalidTimestampError, OffsetOutOfRangeError: The table cannot be read at that moment.
    """
    from fluss_lab.spark.lookup.lookup_frame import JoinRequest, checked_frame, join_frame

    _check_how(how, shuffle, tasks)
    given = dict(options or {})
    resolves = _resolves(given.pop(UPDATE_STRATEGY, _IGNORE))
    frame = checked_frame(frame)
    source = _source(self, table, mode, as_of, given)
    request = JoinRequest(
        on=_names(on),
        how=how,
        columns=None if columns is None else _names(columns),
        where=where,
        alias=source.name.rpartition(".")[2],
        shuffle=shuffle,
        tasks=tasks,
        is_fixed=as_of is not None,
        updates_matter=resolves,
        counts=None if metrics is None else metrics.counts(frame.sparkSession.sparkContext),
    )
    return join_frame(frame, source, request)


def _check_how(how: str, shuffle: bool, tasks: int | None) -> None:
    if how not in _HOWS:
        raise InvalidRequestError(f"Lab.lookup_join: how: expected {' or '.join(map(repr, _HOWS))}, found {how!r}")
    if tasks is not None and not shuffle:
        raise InvalidRequestError(
            "Lab.lookup_join: tasks: rows are distributed among so many with shuffle=True only; ask for it, or leave tasks out"
        )


def _source(
    lab: LookupLab,
    table: Table | TablePath | LookupTableSource,
    mode: str,
    as_of: Moment | ReadPoint | None,
    options: Mapping[str, object],
) -> LookupTableSource:
    if isinstance(table, LookupTableSource):
        if mode != AUTO or as_of is not None or options:
            raise UnsupportedError(
                f"Lab.lookup_join: mode, as_of and options are those of a lab's tables; {table.name} is a source of its own"
            )
        return table
    from fluss_lab.lookup.table_lookup import FlussLookupSource

    found = table if isinstance(table, Table) else lab.table(table)
    point = as_of if isinstance(as_of, ReadPoint) or as_of is None else found.read_point(as_of)
    return FlussLookupSource(found.lab.connection, found.info, mode=mode, point=point, options=options)


def _names(given: str | Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(given)
    return {name: name for name in ([given] if isinstance(given, str) else given)}


def _resolves(strategy: object) -> bool:
    if strategy not in (_IGNORE, _RESOLVE):
        raise InvalidPropertyError(f"{UPDATE_STRATEGY}: expected {_IGNORE} or {_RESOLVE}, found {strategy!r}")
    return strategy == _RESOLVE
