"""The tables and columns that a SQL statement names, by Spark's own parser, and where they stand in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fluss_lab.spark.session.spark_errors import folded_errors
from fluss_lab.spark.session.spark_session import as_active
from fluss_lab.spark.temporary_relations import each_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RELATION: Final = "UnresolvedRelation"
_TIME_TRAVEL: Final = "RelationTimeTravel"
#: Names of tables in statements such as DESCRIBE; they take no alias.
_BARE: Final = frozenset({"UnresolvedTableOrView"})
#: Such statements that say the same of a view of the table.
_DESCRIBES: Final = frozenset({"DescribeRelation", "DescribeColumn", "ShowColumns", "RefreshTable", "CreateTableLike"})
#: Relations in these stand alone too.
_CACHES: Final = frozenset({"CacheTable", "UncacheTable"})
#: Names of tables, views and databases in statements that look for them in Spark's own catalog.
_CATALOG_NAMES: Final = {
    "UnresolvedTable": "multipartIdentifier",
    "UnresolvedTableOrView": "multipartIdentifier",
    "UnresolvedView": "multipartIdentifier",
    "UnresolvedIdentifier": "nameParts",
    "UnresolvedNamespace": "multipartIdentifier",
}
#: What the clauses of a relation, which stand before its alias, become.
_CLAUSES: Final = frozenset({"Sample", "GlobalLimit", "LocalLimit", "UnresolvedSubqueryColumnAliases"})
#: Statements that write, and what gives the relation that they write to.
_WRITES: Final = {
    "InsertIntoStatement": "table",
    "UpdateTable": "table",
    "DeleteFromTable": "table",
    "MergeIntoTable": "targetTable",
    "AddCheckConstraint": "child",
}
#: What may stand above that relation: its alias, and the condition of a constraint.
_ABOVE_TARGET: Final = frozenset({"SubqueryAlias", "Filter"})
#: Columns by their names; within a lambda function any name may be one of its variables.
_VARIABLE: Final = "UnresolvedNamedLambdaVariable"
_ATTRIBUTES: Final = frozenset({"UnresolvedAttribute", _VARIABLE})
#: ``* except (...)``, and ``|> set x = ...``.
_STAR_REPLACED: Final = "UnresolvedStarExceptOrReplace"
_STARS: Final = frozenset({"UnresolvedStar", _STAR_REPLACED})
#: Expressions that have a plan.
_SUBQUERIES: Final = frozenset(
    {"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery", "FunctionTableSubqueryArgumentExpression"}
)
#: Statements that have another one, which is no child of theirs.
_HELD_PLANS: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan", "SingleStatement": "parsedPlan"}
_SPACE: Final = r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|$))*"
_AS_OF: Final = re.compile(
    rf"(?:FOR{_SPACE})?(?:(?:SYSTEM_)?TIME(?:STAMP)?|(?P<version>(?:SYSTEM_)?VERSION)){_SPACE}AS{_SPACE}OF\b",
    re.IGNORECASE | re.DOTALL,
)
#: A table's name, and the expression of the moment at which it is read, if the statement has one.
TableKey: TypeAlias = tuple[tuple[str, ...], str | None, str | None]


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A relation: the parts of its name, where that stands, and whether it needs an alias to keep its name.

    Attributes:
        as_of: The expression of its ``TIMESTAMP AS OF`` (or ``FOR SYSTEM_TIME AS OF``) clause, with which it ends then.
        version: The one of its ``VERSION AS OF`` clause.
    """

    path: tuple[str, ...]
    start: int
    stop: int
    bare: bool
    as_of: str | None = None
    version: str | None = None

    @property
    def key(self) -> TableKey:
        """Return what tells the frames of a statement apart."""
        return self.path, self.as_of, self.version


@dataclass(frozen=True, slots=True)
class QualifiedColumn:
    """A column (or star) that is qualified by two parts: these, and where the first part and its dot stand.

    Attributes:
        start: None: Spark does not say.
    """

    path: tuple[str, ...]
    start: int | None

    def is_of(self, path: tuple[str, ...]) -> bool:
        """Return whether it is qualified by a table's path, as Spark compares names: whatever their case."""
        return _lower_case(self.path) == _lower_case(path)


@dataclass(frozen=True, slots=True)
class Command:
    """What is done with a table or database that Spark looks for in its own catalog, or writes to.

    Attributes:
        kind: What Spark's parser calls it, such as ``DropTable``.
        path: The parts of the name: two of a table, one of a database.
        is_database: Whether it is a database.
    """

    kind: str
    path: tuple[str, ...]
    is_database: bool = False


@dataclass(slots=True)
class StatementNames:
    """What a statement names.

    Attributes:
        tables: Relations with two name parts.
        columns: Columns that are qualified by two parts.
        commands: What it does but read: with relations of two name parts, and with databases.
        streams: Relations with two name parts that it reads as streams.
        qualifiers: The name that columns of each relation are qualified by (an alias, or the last part of its name), and
            the relation's own name; empty: it is none but a subquery.
        variables: Names of variables of lambda functions, and of columns without a qualifier within such.
    """

    tables: list[NamedTable] = field(default_factory=list)
    columns: list[QualifiedColumn] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    streams: list[tuple[str, ...]] = field(default_factory=list)
    qualifiers: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def contested_paths(self) -> set[tuple[str, ...]]:
        """Return the paths of tables that columns are qualified by where the last part alone may mean something else.

        That is another relation, or a variable of a lambda function, which comes before columns.
        """
        paths = {table.path for table in self.tables if any(column.is_of(table.path) for column in self.columns)}
        return {
            path
            for path in paths
            if any(name.lower() == path[-1].lower() and other != path for name, other in self.qualifiers)
            or not self.variables.isdisjoint(_lower_case(path))
        }


def _lower_case(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def substitute(session: SparkSession, text: str) -> str:
    """Return a statement with the values of the variables in it (``${name}``), as Spark's parser would read it.

    What the parser says of places is said of that text.
    """
    if "${" not in text:
        return text
    jvm: Any = session._jvm
    with as_active(session):  # whose variables are meant
        return str(jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(text))


def parsed_plan(session: SparkSession, text: str) -> Any:
    """Return Spark's own parsed plan of a statement, a Java object.

    Raises:
        pyspark.errors.ParseException: The text is no statement.
    """
    with folded_errors():
        return session._jsparkSession.sessionState().sqlParser().parsePlan(text)


def names_in(plan: Any, text: str) -> StatementNames:
    """Return what a statement names.

    Args:
        plan: From `parsed_plan`.
        text: The statement.
    """
    found = StatementNames()
    pending: list[tuple[Any, str | None, str]] = [(plan, None, "")]
    while pending:
        node, alias, above = pending.pop()
        kind = node.getClass().getSimpleName()
        if kind in _WRITES and (written := _target(getattr(node, _WRITES[kind])())) is not None:
            found.commands.append(Command(kind, written))
        if kind in _CATALOG_NAMES and above not in _DESCRIBES:
            path = tuple(each_of(getattr(node, _CATALOG_NAMES[kind])()))
            found.commands.append(Command(above, path, kind == "UnresolvedNamespace"))
        elif kind == _RELATION or kind in _BARE:
            is_alone = alias is None and kind == _RELATION and above not in _CACHES
            _add_relation(found, node, alias, is_bare=is_alone, stop=_stop(plan) if above == "ShowColumns" else None)
            continue
        if kind == _TIME_TRAVEL:
            _add_past_relation(found, node, text, alias)
            continue
        for expression in _expressions(node, kind):
            pending += [(plan, None, kind) for plan in _collect_columns(expression, found)]
        # A sampled relation is some nodes below its alias; whatever has an alias takes no second.
        if alias is not None and kind not in _CLAUSES:
            found.qualifiers.add((alias, ()))
            alias = None
        below = str(node.alias()) if kind == "SubqueryAlias" else alias
        pending += [(child, below, kind) for child in each_of(node.children())]
        pending += [(child, None, kind) for child in _side_plans(node, kind)]
    return found


def _add_relation(found: StatementNames, node: Any, alias: str | None, *, is_bare: bool, stop: int | None) -> None:
    path, place = tuple(each_of(node.multipartIdentifier())), _place(node)
    found.qualifiers.add((alias or path[-1], path))
    if len(path) == 2 and place is not None:
        found.tables.append(NamedTable(path, place[0], stop or place[1], bare=is_bare))
        if node.getClass().getSimpleName() == _RELATION and node.isStreaming():
            found.streams.append(path)


def _stop(plan: Any) -> int | None:
    """Return where a statement ends: in ``SHOW COLUMNS IN flights IN nyc`` it is there that the table's name does."""
    place = _place(plan)
    return None if place is None else place[1]


def _add_past_relation(found: StatementNames, node: Any, text: str, alias: str | None) -> None:
    """Add a relation that is read as it was, from the first sign of its name to the last one of its clause."""
    relation = node.relation()
    if relation.getClass().getSimpleName() != _RELATION:
        return
    path, place, clause = tuple(each_of(relation.multipartIdentifier())), _place(relation), _place(node)
    found.qualifiers.add((alias or path[-1], path))
    if len(path) != 2 or place is None or clause is None or (words := _AS_OF.match(text, *clause)) is None:
        return
    moment = text[words.end() : clause[1]].strip()
    as_of, version = (None, moment) if words["version"] else (moment, None)
    found.tables.append(NamedTable(path, place[0], clause[1], alias is None, as_of, version))


def _target(node: Any) -> tuple[str, ...] | None:
    """Return the name of the relation that a statement writes to, below its alias; None when it has not two parts."""
    while node.getClass().getSimpleName() in _ABOVE_TARGET:
        node = node.child()
    if node.getClass().getSimpleName() != _RELATION:
        return None
    path = tuple(each_of(node.multipartIdentifier()))
    return path if len(path) == 2 else None


def _side_plans(node: Any, kind: str) -> Iterator[Any]:
    """Yield plans that are no children and in no expression: WITH clauses, what is explained, statements of a script."""
    if kind == "UnresolvedWith":
        for relation in each_of(node.cteRelations()):
            yield relation.productElement(1)
    elif kind in _HELD_PLANS:
        yield getattr(node, _HELD_PLANS[kind])()


def _expressions(node: Any, kind: str) -> Iterator[Any]:
    yield from each_of(node.expressions())
    if kind == "WithWindowDefinition":
        yield from each_of(node.windowDefinitions().values().toSeq())


def _collect_columns(expression: Any, found: StatementNames) -> Iterator[Any]:
    """Collect the columns of an expression; yield the plans of the subqueries in it."""
    pending = [expression]
    while pending:
        node = pending.pop()
        kind = node.getClass().getSimpleName()
        if kind in _SUBQUERIES:
            yield node.plan()
        if kind == _STAR_REPLACED:
            pending += _collect_star(node, found)
        if kind in _ATTRIBUTES:
            parts = tuple(each_of(node.nameParts()))
            if kind == _VARIABLE and len(parts) == 1:
                found.variables.add(parts[0].lower())
        elif kind in _STARS and node.target().isDefined():
            parts = (*each_of(node.target().get()), "*")
        elif kind == "In" and node.inSetConvertible():
            pending.append(node.value())  # literals, which may be many: each is some calls of the JVM
            continue
        else:
            pending += list(each_of(node.children()))
            continue
        place = _place(node)
        if len(parts) >= 3 and place is not None:
            found.columns.append(QualifiedColumn(parts[:2], place[0]))


def _collect_star(star: Any, found: StatementNames) -> list[Any]:
    """Collect the columns that a star leaves out, of which Spark keeps no place; return the expressions that replace some."""
    excepts = [tuple(each_of(parts)) for parts in each_of(star.excepts())]
    found.columns += [QualifiedColumn(parts[:2], None) for parts in excepts if len(parts) >= 3]
    return list(each_of(star.replacements().get())) if star.replacements().isDefined() else []


def _place(node: Any) -> tuple[int, int] | None:
    """Return where a node stands in the text, ``[start, stop)`` in characters; None when Spark does not say."""
    origin = node.origin()
    if origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
        return None
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1
