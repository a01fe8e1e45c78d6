"""Statements with lookup joins: each join is made of frames, and stands in the statement as a relation whose columns keep their names.

The statement calls a function for it (`NamedRelations`), so that ``f.x``, ``p.*`` and all else in it mean what they say.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from fluss_lab.lookup.lookup_interfaces import LookupTableSource
from fluss_lab.lookup.lookup_options import AUTO, LOOKUP_OPTIONS, UPDATE_STRATEGY
from fluss_lab.lookup.table_lookup import FlussLookupSource
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.lookup.join_columns import JoinReader, StreamColumn
from fluss_lab.spark.lookup.lookup_frame import JoinRequest, join_frame
from fluss_lab.spark.lookup.lookup_hint import IGNORE, TRY_RESOLVE, LookupHint
from fluss_lab.spark.lookup.lookup_sql import LookupJoin, LookupStatement
from fluss_lab.spark.lookup.statement_tree import Place
from fluss_lab.spark.source.spark_columns import quote
from fluss_lab.spark.temporary_relations import NamedRelations, analysed_plan, attributes, each_of, frame_of, qualify
from fluss_lab.tracebacks import levels_to_caller

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: By name, the options that a LOOKUP hint may give, with what checks a value.
HINT_OPTIONS: Final[Mapping[str, Callable[[str], object]]] = {
    name: option.parse for name, option in LOOKUP_OPTIONS.items()
}


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """The table of a lookup join.

    Attributes:
        source: Whose rows are looked up.
        keys: The columns that it finds rows by best.
        is_fixed: It has one point for all micro-batches of a stream.
    """

    source: LookupTableSource
    keys: Collection[str]
    is_fixed: bool


def look_up_relation(scan: Scan, hint: LookupHint, *, is_fixed: bool) -> JoinedTable:
    """Return the table that a scan is of, as hints want it looked up.

    Args:
        scan: Of the table.
        hint: From `parse_statement`.
        is_fixed: Look it up at the scan's moment; else each micro-batch at its own.

    Raises:
        UnsupportedError: It has no primary key.
    """
    info = scan.source.info
    source = FlussLookupSource(
        scan.source.connection,
        info,
        mode=hint.mode or AUTO,
        point=scan.read_point if is_fixed else None,
        options=hint.options,
    )
    return JoinedTable(source, info.schema.primary_key, is_fixed)


def run_lookups(
    session: SparkSession,
    statement: LookupStatement,
    run: Callable[[str], DataFrame],
    table_of: Callable[[LookupJoin, bool], JoinedTable],
    made_view: str | None,
    *,
    keeps: bool,
) -> DataFrame:
    """Run a statement with lookup joins.

    Args:
        session: Where.
        statement: From `parse_statement`.
        run: Runs Spark SQL that has none.
        table_of: Returns the table of a join, whose left side is a stream or not.
        made_view: Which view the statement makes, if it makes one.
        keeps: Whether it keeps its text, so that what it names must stay.

    Raises:
        InvalidRequestError, UnsupportedError: A join that cannot be; the text says why.
    """
    for text in statement.warnings:
        warnings.warn(text, stacklevel=levels_to_caller())
    with NamedRelations(session, made_view) as relations:
        made: list[tuple[Place, str]] = []
        for join in statement.joins:
            frame = _SqlJoin(statement, join, table_of, relations, run, made).frame()
            made.append((join.place, f"{relations.add(frame)}()"))
        text = statement.render(None, made)
        result = run(text)
        if made and keeps:
            relations.keep(text)
        # Spark explains a stream when its plan says that it is one, which one out of a text does not.
        return frame_of(session, analysed_plan(result)) if made and result.isStreaming else result


class _SqlJoin:
    """One lookup join of a statement."""

    def __init__(
        self,
        statement: LookupStatement,
        join: LookupJoin,
        table_of: Callable[[LookupJoin, bool], JoinedTable],
        relations: NamedRelations,
        run: Callable[[str], DataFrame],
        made: Sequence[tuple[Place, str]],
    ) -> None:
        self._join, self._table_of, self._relations, self._run = join, table_of, relations, run
        self._written = partial(statement.render, made=tuple(made))

    def frame(self) -> DataFrame:
        """Return the columns of the left side, then the table's, named and qualified as the statement knows them."""
        from pyspark.sql import functions as F  # noqa: N812

        join = self._join
        left, stream = self._left_side()
        table = self._table_of(join, left.isStreaming)
        names = _Names(each.alias for each in stream)
        row = names.new(join.alias or join.path[-1])
        reader = JoinReader(join, self._written, stream, table.source.schema.names, table.keys, row)
        columns = reader.columns()
        on: dict[str, str] = {}
        computed: dict[str, str] = {}
        for column, (text, is_column) in columns.keys.items():
            name = text if is_column else names.new(text)
            on[name] = column
            if not is_column:
                computed[name] = f"({text}) as {quote(name)}"
        if computed:
            listed = ", ".join(["*", *computed.values()])
            left = self._run(f"{self._with_clause()}select {listed} from {self._relations.add(left)}()")  # noqa: S608  # its author's own
        frame = left.toDF(*(each.alias for each in stream), *computed)
        wanted = reader.wanted
        outputs = {column: names.new(name) for name, column in wanted.items()}
        request = JoinRequest(
            on=on,
            how="left" if join.is_outer else "inner",
            columns=outputs,
            where=columns.where,
            alias=row,
            shuffle=join.hint.shuffle,
            tasks=join.hint.tasks,
            is_fixed=table.is_fixed,
            updates_matter=(join.hint.updates or str(frame.sparkSession.conf.get(UPDATE_STRATEGY, IGNORE))).lower()
            == TRY_RESOLVE,
        )
        joined = join_frame(frame, table.source, request)
        own = (join.alias,) if join.alias else join.path
        chosen = [(each.alias, each.name, each.qualifier) for each in stream]
        chosen += [(outputs[column], name, own) for name, column in wanted.items()]
        named = joined.select(*[F.col(quote(alias)).alias(name) for alias, name, _ in chosen])
        return qualify(named, [qualifier for _, _, qualifier in chosen])

    def _with_clause(self) -> str:
        """Return the WITH clause of what the left side needs."""
        if not self._join.ctes:
            return ""
        word = "with recursive" if self._join.is_recursive else "with"
        return f"{word} {', '.join(self._written(each) for each in self._join.ctes)} "

    def _left_side(self) -> tuple[DataFrame, list[StreamColumn]]:
        """Return the left side, and its columns."""
        frame = self._run(f"{self._with_clause()}select * from {self._written(self._join.left)}")  # noqa: S608  # its author's own
        bare = {path[-1].lower(): path for path in self._join.bare}
        names = _Names(())
        columns = []
        for attribute in attributes(frame):
            qualifier = tuple(each_of(attribute.qualifier()))
            # A table of the lab without an alias is known by its path too.
            if len(qualifier) == 1:
                qualifier = bare.get(qualifier[0].lower(), qualifier)
            columns.append(StreamColumn(qualifier, attribute.name(), names.new(attribute.name())))
        return qualify(frame, [each.qualifier for each in columns]), columns


class _Names:
    """Names that are taken, whatever their case."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.lower() for name in taken}

    def new(self, wanted: str) -> str:
        """Return a name like the one wanted that is free, and take it."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name
