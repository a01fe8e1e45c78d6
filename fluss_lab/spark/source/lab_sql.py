"""Spark SQL in which a lab's tables are known by their two-part names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from fluss_lab.errors import (
    InvalidNameError,
    InvalidRequestError,
    InvalidTimestampError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TablePath
from fluss_lab.model.times import Moment, SnapshotId
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.lookup.lookup_hint import may_look_up
from fluss_lab.spark.refused_commands import check_commands
from fluss_lab.spark.session.spark_errors import folded_errors, spark_loss
from fluss_lab.spark.source.spark_columns import quote
from fluss_lab.spark.source.table_frame import scan_to_spark
from fluss_lab.spark.statement_names import (
    QualifiedColumn,
    StatementNames,
    TableKey,
    names_in,
    parsed_plan,
    substitute,
)
from fluss_lab.spark.temporary_relations import NamedRelations, qualify

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from fluss_lab.spark.lookup.lookup_relation import JoinedTable
    from fluss_lab.spark.lookup.lookup_sql import LookupJoin, LookupStatement

_SPACE: Final = r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|$))*"
#: The first part of a column's name and its dot, behind the parentheses that are taken for the column's too.
_FIRST_PART: Final = re.compile(
    rf"(?:{_SPACE}\()*{_SPACE}(?P<part>(?P<name>`(?:[^`]|``)*`|[^.`\s()/-]+){_SPACE}\.)", re.DOTALL
)
#: Possessive: of a text with a statement behind comments no other way to read these is tried.
_NO_STATEMENT: Final = re.compile(r"(?:\s|;|/\*.*?\*/|--[^\n]*)*+", re.DOTALL)
_SAMPLE: Final = re.compile(rf"{_SPACE}TABLESAMPLE{_SPACE}\(", re.IGNORECASE | re.DOTALL)
_REPEATABLE: Final = re.compile(rf"{_SPACE}REPEATABLE{_SPACE}\(", re.IGNORECASE | re.DOTALL)
_TABLE_STATEMENT: Final = re.compile(rf"\bTABLE{_SPACE}$", re.IGNORECASE | re.DOTALL)
#: Statements that keep the text of the query for later, so that what it names must stay.
_KEEPS_TEXT: Final = re.compile(r"View|CacheTable")


def check_statement(text: str) -> None:
    """Check that a text has a statement in it, beside spaces, comments and semicolons.

    Raises:
        InvalidRequestError: It has none: of that Spark's parser says "unexpected ';'" or "unexpected end of input".
    """
    if _NO_STATEMENT.fullmatch(text):
        shown = text if len(text) <= 60 else text[:60] + "..."
        raise InvalidRequestError(f"Lab.sql: expected a SQL statement, found {shown!r}")


def checked_session(session: object) -> SparkSession:
    """Return a session that a statement is to run in.

    Raises:
        InvalidRequestError: It is none.
    """
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession):
        raise InvalidRequestError(f"Lab.sql: session: expected a SparkSession, found {session!r}")
    return session


def run_statement(
    scan_of: Callable[[TablePath], Callable[..., Scan] | None],
    session: SparkSession,
    text: str,
    as_of: Moment | None,
    read_points: Mapping[str | TablePath, ReadPoint],
    args: Any = None,
    has_database: Callable[[str], bool] = lambda _: False,
) -> DataFrame:
    """Run Spark SQL in which every table of a lab is known by its path; see `Lab.sql`.

    Args:
        scan_of: Returns what makes scans of a table (`Table.scan`), or raises `TableNotFoundError`; None: the lab is closed.
        text: The statement.
        as_of: When its tables are read; None: now.
        read_points: Of tables that are read at a moment taken before.
        args: Values of the statement's parameters, as ``SparkSession.sql`` has them.
        has_database: Returns whether the lab has a database.
    """
    with spark_loss(session, "sql"):
        return _run_statement(scan_of, session, text, as_of, read_points, args, has_database)


def _run_statement(
    scan_of: Callable[[TablePath], Callable[..., Scan] | None],
    session: SparkSession,
    text: str,
    as_of: Moment | None,
    read_points: Mapping[str | TablePath, ReadPoint],
    args: Any,
    has_database: Callable[[str], bool],
) -> DataFrame:
    points = {TablePath.parse(path): point for path, point in read_points.items()}
    text = substitute(session, text)
    lookups, args = _lookups_in(text, args)
    named = text if lookups is None else lookups.render()
    if points and (unnamed := set(points) - {_path_of(parts) for parts in named_tables(session, named)}):
        raise InvalidRequestError(
            f"sql: read points of {', '.join(sorted(map(str, unnamed)))}, which the statement does not name"
        )

    missing: list[str] = []
    scans = _Scans(scan_of, as_of, points)

    def frame_of(parts: list[str], moment_of: Callable[[], Moment] | None = None) -> DataFrame | None:
        if (path := _path_of(parts)) is None:
            return None
        try:
            scan = scans.of(path, moment_of)
        except TableNotFoundError as error:
            missing.append(str(error))
            return None
        return None if scan is None else scan_to_spark(session, scan)

    def table_of(join: LookupJoin, is_stream: bool) -> JoinedTable:
        path, is_past = _path_of(join.path), join.moment != (None, None)
        scan = (
            None if path is None else scans.of(path, partial(past_moment, session, *join.moment) if is_past else None)
        )
        if path is None or scan is None:
            raise InvalidRequestError(
                f"sql: lookup join with {'.'.join(join.path)}: expected a table of the lab by its path, as database.table"
            )
        from fluss_lab.spark.lookup.lookup_relation import look_up_relation

        is_fixed = is_past or as_of is not None or path in points or not is_stream
        return look_up_relation(scan, join.hint, is_fixed=is_fixed)

    def is_ours_alone(name: str) -> bool:
        return has_database(name) and not session.catalog.databaseExists(quote(name))

    with folded_errors(missing=missing):
        if lookups is None:
            return sql(session, text, frame_of, args, is_ours_alone)
        from fluss_lab.spark.lookup.lookup_relation import run_lookups

        parsed = parsed_plan(session, named)
        run = partial(sql, session, resolve=frame_of, args=args, has_database=is_ours_alone)
        return run_lookups(session, lookups, run, table_of, view_made(parsed), keeps=keeps_text(parsed))


class _Scans:
    """The scans of the tables that a statement names: all of the statement reads a table at one moment, unless it says another."""

    def __init__(
        self,
        scan_of: Callable[[TablePath], Callable[..., Scan] | None],
        as_of: Moment | None,
        points: Mapping[TablePath, ReadPoint],
    ) -> None:
        self._scan_of, self._as_of, self._points = scan_of, as_of, points
        self._known: dict[TablePath, Scan] = {}

    def of(self, path: TablePath, moment_of: Callable[[], Moment] | None) -> Scan | None:
        """Return the scan of a table, at a moment of its own where it has one; None: the lab is closed."""
        if moment_of is None and path in self._known:
            return self._known[path]
        scan = self._scan_of(path)
        if scan is None:
            return None
        if moment_of is not None:
            return scan(as_of=moment_of())
        point = self._points.get(path)
        self._known[path] = scan(as_of=self._as_of if point is None else None, read_point=point)
        return self._known[path]


def _lookups_in(text: str, args: Any) -> tuple[LookupStatement | None, Any]:
    """Return the lookup joins of a statement, None: it has none; and its parameters, by names where it has some.

    Their parser is loaded only for statements that may have one.
    """
    if not may_look_up(text):
        return None, args
    from fluss_lab.spark.lookup.lookup_relation import HINT_OPTIONS
    from fluss_lab.spark.lookup.lookup_sql import parse_statement, with_named_parameters

    found = parse_statement(text, HINT_OPTIONS)
    if found is not None and found.joins and isinstance(args, Sequence) and args:
        text, args = with_named_parameters(text, args)
        found = parse_statement(text, HINT_OPTIONS)
    return found, args


def _path_of(parts: Sequence[str]) -> TablePath | None:
    try:
        return TablePath.parse(".".join(parts)) if len(parts) == 2 else None
    except InvalidNameError:
        return None


def sql(
    session: SparkSession,
    text: str,
    resolve: Callable[..., DataFrame | None],
    args: Any = None,
    has_database: Callable[[str], bool] = lambda _: False,
) -> DataFrame:
    """Run Spark SQL in which `resolve` knows some tables by their two-part names.

    The statement is parsed by Spark itself; each relation with two name parts that `resolve` knows is replaced by a
    temporary view of a private name, with the table's name as alias if there is none, and columns qualified by both
    parts lose the first. Where another relation of the statement has that name too, the table's columns keep both parts as
    their qualifier instead (`NamedRelations`), and the statement's columns stay as they are. The views go when the statement
    has been analysed (which Spark does at once); only a statement that keeps its text, such as CREATE TEMPORARY VIEW, keeps
    them, until another one makes that view anew. All else goes to Spark as it is.

    Args:
        text: One statement.
        resolve: Gives a DataFrame for ``[database, table]``, or None for what it does not know. Asked once a name, and with
            what returns the moment for each at which the statement reads it (``TIMESTAMP AS OF``).
        args: Values of its parameters.
        has_database: Returns whether a name is that of a database of what `resolve` knows, and of none of Spark's.

    Raises:
        UnsupportedError: The statement does something else with what `resolve` knows than to read it, or reads it as a stream.
        pyspark.errors.ParseException, pyspark.errors.AnalysisException: As Spark says; positions in messages are those
            of the text with the views' names in it.
    """
    parsed = parsed_plan(session, text)
    found = names_in(parsed, text)
    check_commands(found.commands, lambda path: resolve(list(path)) is not None, has_database)
    if streams := [".".join(path) for path in found.streams if resolve(list(path)) is not None]:
        raise UnsupportedError(
            f"sql: STREAM is not offered for tables of the lab, found STREAM({streams[0]}); give the stream a name in SQL, as "
            f'lab.table("{streams[0]}").stream().createOrReplaceTempView("changes"), and use that name'
        )
    frames: dict[TableKey, DataFrame] = {}
    for path, as_of, version in dict.fromkeys(each.key for each in found.tables):
        is_past = as_of is not None or version is not None
        frame = resolve(list(path), partial(past_moment, session, as_of, version)) if is_past else resolve(list(path))
        if frame is not None:
            frames[path, as_of, version] = frame
    with NamedRelations(session, view_made(parsed)) as relations:
        views = {key: relations.add_view(frame) for key, frame in frames.items()}

        def call_of(key: TableKey, clauses: str) -> str:
            frame = _own_sql(session, f"select * from {views[key]}{clauses}") if clauses else frames[key]  # noqa: S608  # its author's own
            return f"{relations.add(qualify(frame, [key[0]] * len(frame.columns)))}()"

        with folded_errors({view: ".".join(path) for (path, _, _), view in views.items()}):
            written = _rewrite(text, found, views, call_of)
            result = _own_sql(session, written, args)
        if keeps_text(parsed):
            relations.keep(written)
        return result


def keeps_text(parsed: Any) -> bool:
    """Return whether a statement, as Spark parsed it, keeps its text."""
    return _KEEPS_TEXT.search(parsed.getClass().getSimpleName()) is not None


def view_made(parsed: Any) -> str | None:
    """Return which view a statement, as Spark parsed it, makes or makes anew: its kind and its name; None: it makes none."""
    match parsed.getClass().getSimpleName():
        case "CreateViewCommand":
            return f"{parsed.viewType().toString()} {parsed.name().unquotedString()}"
        case "CacheTableAsSelect":
            return f"LocalTempView {parsed.tempViewName()}"
        case _:
            return None


def _own_sql(session: SparkSession, text: str, args: Any = None) -> DataFrame:
    """Run what names no table of a lab any more: the session's object may know them itself (`know_tables`)."""
    return type(session).sql(session, text, args)


def named_tables(session: SparkSession, text: str) -> list[tuple[str, ...]]:
    """Return the names of the relations with two name parts in a statement, each once.

    Raises:
        pyspark.errors.ParseException: The text is no statement.
    """
    return list(dict.fromkeys(each.path for each in names_in(parsed_plan(session, text), text).tables))


def past_moment(session: SparkSession, as_of: str | None, version: str | None) -> Moment:
    """Return the moment of a table's clause: of ``TIMESTAMP AS OF`` a text as `Table.scan` takes it, or a time that Spark computes.

    Raises:
        InvalidTimestampError: It is no time, or the id of no snapshot.
    """
    text = (as_of if version is None else version) or ""
    literal = text[1:-1] if re.fullmatch(r"'[^'\\]*'|\"[^\"\\]*\"", text) else None
    if version is not None:
        if not (literal or text).isdecimal():
            raise InvalidTimestampError(f"sql: VERSION AS OF {text}: expected the id of a lake snapshot")
        return SnapshotId(literal or text)
    if literal is not None:
        return literal
    with folded_errors():
        moment = _own_sql(session, f"select cast({text} as timestamp_ltz)").toArrow()[0][0].as_py()
    if moment is None:
        raise InvalidTimestampError(f"sql: TIMESTAMP AS OF {text}: expected a time, found NULL")
    return cast("datetime", moment)


# -- rewriting --------------------------------------------------------------------------------------------------------


def _rewrite(
    text: str, found: StatementNames, views: Mapping[TableKey, str], call_of: Callable[[TableKey, str], str]
) -> str:
    """Return the text with the views' names in it.

    Args:
        call_of: Returns what stands for a table whose columns keep both parts of the name, with the clauses behind it: SQL
            allows none (TABLESAMPLE) behind a call.
    """
    contested = found.contested_paths()
    edits: list[tuple[int, int, str]] = []
    for path in {path for path, _, _ in views} - contested:
        places = [_first_part(text, column) for column in found.columns if column.is_of(path)]
        if None in places:
            contested.add(path)
        else:
            edits += [(*place, "") for place in places if place is not None]
    for table in found.tables:
        if (view := views.get(table.key)) is None:
            continue
        # The statement `TABLE name` takes no alias.
        is_named = table.bare and not _TABLE_STATEMENT.search(text, 0, table.start)
        place = _after_clauses(text, table.stop)
        if is_named and table.path in contested:
            edits.append((table.start, place, call_of(table.key, text[table.stop : place])))
            continue
        edits.append((table.start, table.stop, view))
        if is_named:
            edits.append((place, place, f" as {quote(table.path[1])}"))
    # A plan may have what stands once in the text several times.
    for start, stop, new in sorted(set(edits), reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _first_part(text: str, column: QualifiedColumn) -> tuple[int, int] | None:
    """Return where the first part of a column's name and its dot stand; None where the text does not show them."""
    first = None if column.start is None else _FIRST_PART.match(text, column.start)
    return None if first is None or _unquote(first["name"]) != column.path[0] else (first.start("part"), first.end())


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _after_clauses(text: str, stop: int) -> int:
    """Return where a relation's alias goes: after its name, and after TABLESAMPLE if that follows."""
    for clause in (_SAMPLE, _REPEATABLE):
        if (match := clause.match(text, stop)) is None:
            return stop
        level, stop = 1, match.end()
        while level and stop < len(text):
            level += {"(": 1, ")": -1}.get(text[stop], 0)
            stop += 1
    return stop
