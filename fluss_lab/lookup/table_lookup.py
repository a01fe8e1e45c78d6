"""Tables of a lab as sources that streams are joined with by lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.errors import InvalidRequestError, InvalidSchemaError, UnsupportedError
from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.lookup.full_lookup import FullLookup
from fluss_lab.lookup.lookup_interfaces import (
    InputDataPartitioner,
    LookupFunction,
    LookupJoinContext,
    LookupTableSource,
    SupportsLookupCustomShuffle,
)
from fluss_lab.lookup.lookup_options import AUTO, FULL, MODES, REMOTE, lookup_options
from fluss_lab.lookup.mode_choice import choose_mode
from fluss_lab.lookup.planned_lookup import LookupPlan, PlannedLookup
from fluss_lab.lookup.remote_lookup import RemoteLookup, remote_columns
from fluss_lab.model import TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader


@check_arguments
class FlussLookupSource(LookupTableSource, SupportsLookupCustomShuffle):
    """A primary-key table of a lab, looked up at a read point.

    Args:
        connection: To the cluster; its address, options and token go to the tasks, and the lab's folder where it is on this
            machine: they find its server after a restart too.
        info: The table. Its columns stay as they are here while a join runs, whatever is added to it.
        mode: ``full``: each task loads the rows that it may be asked for; ``remote``: the servers are asked, and a cache has
            the last rows; ``auto``: the first one where a task has at most ``lookup.full.max-rows`` to load.
        point: The moment of which rows are looked up; None: of a static frame the present one, of a stream each micro-batch's own.
        options: See `fluss_lab.lookup.lookup_options`.

    Raises:
        UnsupportedError: The table has no primary key.
        InvalidRequestError: There is no such mode, or the point is of another table.
        InvalidPropertyError: An unknown or ill-typed option.
        TableNotFoundError: The point is of a table of this path that was dropped since.
    """

    def __init__(
        self,
        connection: Connection,
        info: TableInfo,
        *,
        mode: str = AUTO,
        point: ReadPoint | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        if info.is_log_table:
            raise UnsupportedError(
                f"table {info.path} has no primary key: its rows cannot be looked up; join it by Spark's own join, or make it "
                "with a primary key"
            )
        if mode not in MODES:
            raise InvalidRequestError(f"lookup in {info.path}: expected mode {', '.join(MODES)}, found {mode!r}")
        self._connection, self._mode, self._point = connection, mode, point
        self._options = lookup_options(options)
        # Rows of a point are read in the columns that the table had then.
        self._info = info if point is None else TableReader(connection, info.path).scan(read_point=point).source.info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._info.path}, {self._mode}>"

    @property
    def name(self) -> str:
        """Return the table's path."""
        return str(self._info.path)

    @property
    def schema(self) -> pa.Schema:
        """Return the table's columns."""
        return self._info.schema.arrow_schema

    def is_unique(self, join_keys: Sequence[str]) -> bool:
        """Return whether the join keys have all of the primary key."""
        return set(self._info.schema.primary_key) <= set(join_keys)

    def bucket_keys(self) -> tuple[str, ...]:
        """Return the bucket key."""
        return tuple(self._info.descriptor.bucket_key)

    def get_partitioner(self) -> InputDataPartitioner:
        """Return what assigns rows to tasks by the table's buckets."""
        return BucketPartitioner.of(self._info.descriptor)

    def lookup_function(self, context: LookupJoinContext) -> LookupFunction:
        """Return the function of a planned join.

        Raises:
            InvalidSchemaError: There is no such column, or one is named twice.
            UnsupportedError: Rows cannot be looked up by these columns.
            OffsetOutOfRangeError, CorruptDataError, StorageError, UnavailableError: There is no read point.

        Cost: of a static frame two or three calls for the point; of mode ``auto`` they are needed too, and where the log is longer than
        ``lookup.full.max-rows``, a count of the table.
        """
        self._check(context)
        point = self._point
        if point is None and not context.is_stream:
            point = TableReader(self._connection, self._info.path).read_point()
        kind, reason = self._kind(context, point)
        address = self._connection.address
        plan = LookupPlan(
            replace(address, token=""), self._connection.options, self._info, list(context.join_keys),
            list(context.columns), self._options, None if point is None else point.to_json(),
            context.parallelism if context.is_custom_shuffle_enabled else None, reason,
            None if self._connection.folder is None else str(self._connection.folder),
        )  # fmt: skip
        return kind(plan, address.token)

    def describe(self, function: LookupFunction) -> str:
        """Return how the function looks rows up (``full`` or ``remote``, and why, where that was chosen), and of which moment."""
        if not isinstance(function, PlannedLookup):
            return super().describe(function)
        word, plan = FULL if isinstance(function, FullLookup) else REMOTE, function.plan
        how = f"{word}: {plan.reason}" if plan.reason else word
        if plan.point is None:
            return f"{how}; at a read point of each micro-batch"
        return f"{how}; at the read point of {format_moment(ReadPoint.from_json(plan.point).moment_ms)}"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check(self, context: LookupJoinContext) -> None:
        for names, what in ((context.join_keys, "join keys"), (context.columns, "columns")):
            for name in names:
                self._info.schema.column(name)
            if twice := [name for name in names if names.count(name) > 1]:
                raise InvalidSchemaError(f"lookup in {self._info.path}: {what}: column {twice[0]!r} is named twice")
        if not context.join_keys:
            raise UnsupportedError(f"lookup in {self._info.path}: expected columns to join on, found none")
        types = [(name, self.schema.field(name).type) for name in context.join_keys]
        for name, kind in types:
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                raise UnsupportedError(
                    f"lookup in {self._info.path}: column {name!r} of type {kind} cannot be joined on; use Spark's own join"
                )
        if context.is_custom_shuffle_enabled and context.parallelism is None:
            raise InvalidRequestError(
                f"lookup in {self._info.path}: a custom shuffle has a number of tasks, found none"
            )

    def _kind(self, context: LookupJoinContext, point: ReadPoint | None) -> tuple[type[PlannedLookup], str]:
        """Return the function's class, and why it was chosen."""
        if self._mode == AUTO:
            mode, reason = choose_mode(self._connection, self._info, context, point, self._options)
        else:
            mode, reason = self._mode, ""
            if mode == REMOTE:
                remote_columns(self._info, context.join_keys)
        return (FullLookup if mode == FULL else RemoteLookup), reason
