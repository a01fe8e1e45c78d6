"""Lookup joins of frames: keys and columns checked, rows distributed, a function of the key columns that looks up.

A join is a column: a function of Spark's over the join keys alone, whose answer is the looked-up row (a struct, null where there
is none) or, where a key may have several, a list of them. The stream's other columns stay in the JVM. In plans the function has
a name that says how the join is done and why.

The function passes for one that is not deterministic, as a read of a moving table is: a filter on its answer would otherwise
have Spark compute it twice. Its price: filters behind the join are not moved before it.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.errors import InvalidFilterError, InvalidRequestError, InvalidSchemaError, UnsupportedError
from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.lookup.lookup_interfaces import LookupJoinContext, LookupTableSource
from fluss_lab.lookup.portable import faults_named, portable_text
from fluss_lab.lookup.shuffle_plan import CUSTOM, NONE, ShufflePlan, StreamTraits, plan_shuffle
from fluss_lab.model import DataType
from fluss_lab.read.changelog.changelog import CHANGE_TYPE
from fluss_lab.spark.lookup.batch_points import follow_queries
from fluss_lab.spark.lookup.bucket_expression import task_column
from fluss_lab.spark.lookup.lookup_task import LookupTask, PartitionTask, column_function
from fluss_lab.spark.lookup.task_counts import TaskCounts
from fluss_lab.spark.session.spark_errors import spark_loss, spark_message
from fluss_lab.spark.source.spark_columns import quote
from fluss_lab.spark.source.spark_types import allow_time, arrow_schema, has_time, spark_type, stored_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

_PREFIX: Final = "__lookup"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What is asked of a lookup join.

    Attributes:
        on: The source's columns by the stream's that they equal.
        how: ``left``: rows without a match stay, with nulls; ``inner``: they go.
        columns: Names of looked-up columns by the source's; None: all but those joined on, by their names.
        where: A condition of SQL that rows must fulfil to match; the source's columns in it by `alias`.
        alias: The source's name in `where`.
        shuffle: Distribute the stream as the source wants it, else by the join keys.
        tasks: Among how many tasks; None: as many as Spark runs at once.
        is_fixed: The source has one point for all micro-batches of a stream.
        updates_matter: A changelog's rows must be enriched as they were before, whatever changes meanwhile
            (``table.optimizer.non-deterministic-update.strategy=TRY_RESOLVE``).
        counts: Where tasks count what they do.
    """

    on: Mapping[str, str]
    how: str = "left"
    columns: Mapping[str, str] | None = None
    where: str | None = None
    alias: str = "row"
    shuffle: bool = False
    tasks: int | None = None
    is_fixed: bool = False
    updates_matter: bool = False
    counts: TaskCounts | None = None


def join_frame(frame: DataFrame, source: LookupTableSource, request: JoinRequest) -> DataFrame:
    """Return a frame with the rows of a source looked up by key.

    Args:
        frame: Static or streaming.
        source: Whose rows.
        request: How.

    Returns:
        The frame's columns, then the looked-up ones. Rows are in no order; a changelog's rows of one key stay in theirs.

    Raises:
        InvalidRequestError, InvalidSchemaError: Columns that there are not, or that both have.
        InvalidFilterError: The condition cannot be read.
        UnsupportedError: Keys of types that cannot be compared, or that the source cannot look up.
        UnavailableError: The frame's JVM ended, or its session was stopped.
    """
    with spark_loss(frame.sparkSession, "Lab.lookup_join"):
        return _FrameJoin(frame, source, request).frame()


def checked_frame(frame: object) -> DataFrame:
    """Return a frame that rows can be looked up for.

    Raises:
        InvalidRequestError: It is no frame of Spark.
        UnsupportedError: It is one of Spark Connect.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if isinstance(frame, ClassicFrame):
        return frame
    if isinstance(frame, DataFrame):
        raise UnsupportedError(
            "Lab.lookup_join: frame: expected one of a classic SparkSession, found one of Spark Connect"
        )
    raise InvalidRequestError(
        f"Lab.lookup_join: frame: expected a Spark DataFrame, found {type(frame).__name__}; lab.spark.createDataFrame makes one"
    )


class _FrameJoin:
    """One join."""

    def __init__(self, frame: DataFrame, source: LookupTableSource, request: JoinRequest) -> None:
        self._frame, self._source, self._request = frame, source, request
        self._session: SparkSession = frame.sparkSession
        self._is_exact = self._session.conf.get("spark.sql.caseSensitive", "false") == "true"
        self._schema = source.schema
        self._keys = self._join_keys()
        self._columns = self._output_columns()
        wanted = [name for name in self._schema.names if name in self._columns or self._is_in_condition(name)]
        # A row with no columns is no struct.
        self._wanted = wanted or [next(iter(self._keys))]
        self._casts = self._key_casts()
        self._plan = self._shuffle_plan()

    def frame(self) -> DataFrame:
        """Return the joined frame."""
        from pyspark.sql import functions as F  # noqa: N812

        row, number = self._free_name("row"), self._free_name("task")
        keys = [F.col(quote(name)) for name in self._keys.values()]
        frame, inputs = self._frame, keys
        if self._plan.kind != NONE:
            frame = frame.withColumn(number, self._number(keys)).repartitionById(self._tasks, F.col(quote(number)))
            inputs = [*keys, F.col(quote(number))]
        frame = frame.withColumn(row, self._lookup(inputs))
        return self._unfold(frame, row).drop(row, number)

    # -- what is joined on, and what is looked up ----------------------------------------------------------------------

    def _join_keys(self) -> dict[str, str]:
        """Return the stream's columns by the source's, in the source's order."""
        if not self._request.on:
            raise InvalidRequestError(f"lookup join with {self._source.name}: expected columns to join on, found none")
        found: dict[str, str] = {}
        for stream, key in self._request.on.items():
            self._check_stream_column(stream)
            self._check_source_column(key)
            if key in found:
                raise InvalidRequestError(
                    f"lookup join with {self._source.name}: its column {key!r} is joined on twice, with {found[key]!r} and {stream!r}; "
                    "put the other one into where"
                )
            found[key] = stream
        return {name: found[name] for name in self._schema.names if name in found}

    def _check_stream_column(self, name: str) -> None:
        names = [each for each in self._frame.columns if self._same(each, name)]
        if len(names) != 1:
            there = ", ".join(self._frame.columns)
            count = f"it has {len(names)} of that name" if names else f"it has {there}"
            raise InvalidRequestError(
                f"lookup join with {self._source.name}: the frame has no column {name!r} to join on; {count}"
            )

    def _check_source_column(self, name: str) -> None:
        if name not in self._schema.names:
            raise InvalidRequestError(
                f"lookup join with {self._source.name}: no column {name!r}; its columns are {', '.join(self._schema.names)}"
            )

    def _output_columns(self) -> dict[str, str]:
        """Return the names of looked-up columns by the source's, in the order asked for."""
        asked = self._request.columns
        if asked is None:
            asked = {name: name for name in self._schema.names if name not in self._keys}
        taken: dict[str, str] = {self._fold(name): "the frame" for name in self._frame.columns}
        for name, output in asked.items():
            self._check_source_column(name)
            if (other := taken.get(self._fold(output))) is not None:
                free = f"{self._request.alias}_{output}"
                raise InvalidRequestError(
                    f"lookup join with {self._source.name}: {other} has a column {output!r} already; leave it out, or name it "
                    f'otherwise: columns={{"{name}": "{free}", ...}}'
                )
            taken[self._fold(output)] = "another looked-up column"
        return dict(asked)

    def _is_in_condition(self, name: str) -> bool:
        """Return whether a column may be one of the condition: never too few."""
        where = self._request.where
        return where is not None and name.replace("`", "``").lower() in where.lower()

    def _key_casts(self) -> KeyCasts:
        names = list(self._keys)
        from pyspark.sql import types as T  # noqa: N812

        fields = []
        for name in names:
            field = next(each for each in self._frame.schema.fields if self._same(each.name, self._keys[name]))
            if isinstance(field.dataType, T.StringType) and field.dataType.collation != "UTF8_BINARY":
                raise UnsupportedError(
                    f"lookup join with {self._source.name}: column {field.name!r} compares texts by the collation "
                    f"{field.dataType.collation}, and tables compare them by their bytes; cast it to string"
                )
            fields.append(T.StructField(field.name, field.dataType))
        return KeyCasts.of(arrow_schema(T.StructType(fields)), pa.schema([self._schema.field(name) for name in names]))

    # -- how rows are distributed --------------------------------------------------------------------------------------

    @property
    def _tasks(self) -> int:
        asked = self._request.tasks
        return max(1, int(self._session.sparkContext.defaultParallelism)) if asked is None else asked

    def _shuffle_plan(self) -> ShufflePlan:
        is_stream = self._frame.isStreaming
        traits = StreamTraits(
            is_updating=any(self._same(name, CHANGE_TYPE) for name in self._frame.columns),
            is_moving=is_stream and not self._request.is_fixed,
            updates_matter=self._request.updates_matter,
        )
        return plan_shuffle(
            self._source,
            list(self._keys),
            self._casts,
            traits,
            tasks=self._tasks if self._request.shuffle else None,
        )

    def _number(self, keys: Sequence[Column]) -> Column:
        """Return the number of the task that a row goes to."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql import types as T  # noqa: N812

        partitioner, column = self._plan.partitioner, None
        if partitioner is None:
            column = F.pmod(F.hash(*keys), F.lit(self._tasks))
        elif isinstance(partitioner, BucketPartitioner):
            column = task_column(partitioner, self._casts.target, keys, self._tasks)
        if column is not None:
            has_null = reduce(operator.or_, [key.isNull() for key in keys])
            return F.when(has_null, F.lit(0)).otherwise(column).cast("int")
        assert partitioner is not None
        task = PartitionTask(portable_text(partitioner), self._casts, self._tasks)
        name = f"task of {self._source.name}'s rows"
        function = column_function(task.run, name, len(keys), T.IntegerType())
        if not self._plan.is_deterministic:
            function = function.asNondeterministic()
        number: Column = function(*keys)
        return number

    # -- the lookup ----------------------------------------------------------------------------------------------------

    def _lookup(self, inputs: Sequence[Column]) -> Column:
        """Return the column of looked-up rows."""
        plan, source = self._plan, self._source
        is_stream = self._frame.isStreaming
        if is_stream:
            follow_queries(self._session)
        context = LookupJoinContext(
            tuple(self._keys),
            tuple(self._wanted),
            is_custom_shuffle_enabled=plan.kind == CUSTOM,
            parallelism=self._tasks if plan.kind != NONE else None,
            is_stream=is_stream,
        )
        with faults_named(source, "lookup_function"):
            function = source.lookup_function(context)
        partitioner = plan.partitioner if plan.is_deterministic else None
        row = stored_schema(self._row_type())
        task = LookupTask(
            source=source.name,
            function=portable_text(function),
            secret=function.secret(),
            keys=self._casts,
            columns=pa.schema([self._schema.field(name) for name in self._wanted]),
            spark_columns=arrow_schema(row),
            is_unique=self._is_unique,
            parallelism=context.parallelism,
            partitioner=None if partitioner is None else portable_text(partitioner),
            has_points=not self._request.is_fixed,
            is_stream=is_stream,
            join=uuid.uuid4().hex,
            counts=self._request.counts,
        )
        name = f"lookup {source.name} by {', '.join(self._keys)} [{plan.text}; {source.describe(function)}]"
        answer = row if self._is_unique else _list_of(row)
        called = column_function(task.run, name, len(inputs), answer).asNondeterministic()
        column: Column = called(*inputs)
        return column

    @property
    def _is_unique(self) -> bool:
        return self._source.is_unique(list(self._keys))

    def _row_type(self) -> T.StructType:
        """Return the type of a looked-up row.

        Raises:
            UnsupportedError: A column of a type that Spark does not have.
        """
        from pyspark.sql import types as T  # noqa: N812

        fields = []
        for name in self._wanted:
            try:
                dtype = DataType.from_arrow(self._schema.field(name).type)
            except InvalidSchemaError as error:
                raise UnsupportedError(f"lookup join with {self._source.name}: column {name!r}: {error}") from error
            if has_time(dtype):
                allow_time(self._session)
            fields.append(T.StructField(name, spark_type(dtype, name)))
        return T.StructType(fields)

    def _unfold(self, frame: DataFrame, row: str) -> DataFrame:
        """Return a frame with the looked-up columns behind its own, without rows that an inner join has no match for."""
        from pyspark.sql import functions as F  # noqa: N812

        if self._request.where is not None:
            frame = self._matching(frame, row, self._request.where)
        is_inner = self._request.how == "inner"
        if not self._is_unique:
            explode = F.explode if is_inner else F.explode_outer
            frame = frame.select("*", explode(F.col(row)).alias(f"{row}_one")).drop(row)
            row = f"{row}_one"
        elif is_inner:
            frame = frame.where(F.col(row).isNotNull())
        types = {field.name: field.dataType for field in self._row_type().fields}
        columns = [F.col(row).getField(name).cast(types[name]).alias(output) for name, output in self._columns.items()]
        return frame.select("*", *columns).drop(row)

    def _matching(self, frame: DataFrame, row: str, where: str) -> DataFrame:
        """Return a frame whose looked-up rows are those that fulfil the condition.

        In a lambda the source's name stands for its row, whatever names the stream's columns have and are known by.
        """
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as F  # noqa: N812

        alias = quote(self._request.alias)
        rows = f"array({row})" if self._is_unique else row
        kept = f"filter({rows}, {alias} -> {alias} is not null and (\n{where}\n))"
        try:
            self._session._jsparkSession.sessionState().sqlParser().parseExpression(where)
            return frame.withColumn(row, F.expr(f"get({kept}, 0)" if self._is_unique else kept))
        except (AnalysisException, ParseException) as error:
            raise InvalidFilterError(
                f"lookup join with {self._source.name}: where {where!r}: {spark_message(error)}; as {self._request.alias} its "
                f"columns are {', '.join(self._schema.names)}"
            ) from error

    # -- names ---------------------------------------------------------------------------------------------------------

    def _same(self, name: str, other: str) -> bool:
        return self._fold(name) == self._fold(other)

    def _fold(self, name: str) -> str:
        return name if self._is_exact else name.lower()

    def _free_name(self, what: str) -> str:
        """Return a name that no column of the frame has."""
        taken = {name.lower() for name in self._frame.columns}
        name = f"{_PREFIX}_{what}"
        while any(each.startswith(name) for each in taken):
            name += "_"
        return name


def _list_of(row: T.StructType) -> T.ArrayType:
    from pyspark.sql import types as T  # noqa: N812

    return T.ArrayType(row)
