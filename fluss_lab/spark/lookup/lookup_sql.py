"""The lookup joins of a SQL statement: where each stands in the text, what it joins with what, and what hints ask of it.

The text stays as it is typed, for Spark to read; a tree of it only says where its parts begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from fluss_lab.errors import InvalidRequestError, UnsupportedError
from fluss_lab.spark.lookup.lookup_hint import LookupHint, may_look_up, read_hints
from fluss_lab.spark.lookup.statement_tree import Place, SelectHints, StatementText, span

_TIMES: Final = frozenset({"SYSTEM_TIME", "TIMESTAMP"})
_PROCTIME: Final = "PROCTIME"
_PARAMETER: Final = "fluss_lab_parameter_"
_HOW: Final = "[LEFT] JOIN table FOR SYSTEM_TIME AS OF PROCTIME() AS name ON stream.column = name.key"


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column that a condition names, maybe a field of it too.

    Attributes:
        parts: ``alias.column.field``.
        start: Where it begins.
        stops: Where each part ends.
    """

    parts: tuple[str, ...]
    start: int
    stops: tuple[int, ...]

    @property
    def place(self) -> Place:
        """Return where all of it stands."""
        return Place(self.start, self.stops[-1])


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that ON joins by AND.

    Attributes:
        place: Where it stands.
        columns: What it names, in the order of the text.
        sides: Of ``a = b``: where both stand.
        has_query: There is a subquery in it.
    """

    place: Place
    columns: tuple[ColumnName, ...]
    sides: tuple[Place, Place] | None
    has_query: bool


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """A join of what stands left of it with the rows that a table has under its keys.

    Attributes:
        place: All of it: from the first sign of its left side to the last one of ON.
        left: Its left side; other lookup joins may be in it.
        bare: Tables with two name parts and no alias of the left side: their names.
        path: The name of the table, in its parts.
        alias: The name by which the statement knows its columns; None: its own.
        renamed: The names that the alias gives its columns, in their order; empty: their own.
        is_outer: A row of the left side without a match stays, with nulls.
        moment: The expression of ``TIMESTAMP AS OF`` and the one of ``VERSION AS OF``; both None: the time of processing.
        on: The conditions.
        names: The words, in lower case, by which the statement may mean a column of the table; None: it may mean any.
        ctes: What the left side needs of the statement's WITH clauses, in order.
        is_recursive: One of these is WITH RECURSIVE.
        hint: What hints ask for.
    """

    place: Place
    left: Place
    bare: tuple[tuple[str, ...], ...]
    path: tuple[str, ...]
    alias: str | None
    renamed: tuple[str, ...]
    is_outer: bool
    moment: tuple[str | None, str | None]
    on: tuple[Conjunct, ...]
    names: frozenset[str] | None
    ctes: tuple[Place, ...]
    is_recursive: bool
    hint: LookupHint


@dataclass(frozen=True, slots=True)
class LookupStatement:
    """A statement with lookup joins, or with LOOKUP hints.

    Attributes:
        text: As it was given.
        joins: In the order in which they are to be made: what is in another's left side before that.
        edits: What the blocks with LOOKUP hints become.
        warnings: What of the hints is ignored, and why.
    """

    text: str
    joins: tuple[LookupJoin, ...]
    edits: tuple[tuple[Place, str], ...]
    warnings: tuple[str, ...]

    def render(self, place: Place | None = None, made: Sequence[tuple[Place, str]] = ()) -> str:
        """Return the text, or a part of it, without LOOKUP hints, and with the joins made so far as what they are called."""
        start, stop = (0, len(self.text)) if place is None else (place.start, place.stop)
        found = [(at, new) for at, new in (*self.edits, *made) if at.is_within(Place(start, stop))]
        # Of what is in another, only the other.
        outer = [(at, new) for at, new in found if not any(at != other and at.is_within(other) for other, _ in found)]
        text = self.text[:stop]
        for at, new in sorted(outer, key=lambda each: each[0].start, reverse=True):
            text = text[: at.start] + new + text[at.stop :]
        return text[start:]


def parse_statement(
    text: str, source_options: Mapping[str, Callable[[str], object]] | None = None
) -> LookupStatement | None:
    """Return the lookup joins of a statement; None: it has neither any nor a LOOKUP hint, and is Spark's alone.

    Args:
        text: One statement.
        source_options: By name, the options that a hint may give the table's source, with what checks a value.

    Raises:
        InvalidRequestError: A lookup join that cannot be read, or has no ON.
        UnsupportedError: One that is neither inner nor left, or whose time is a column's.
    """
    if not may_look_up(text):
        return None
    try:
        statement = StatementText(text)
    except InvalidRequestError:
        return None  # Spark shows where
    hints = [each for each in statement.hints() if any(block.lookups for _, block in each.blocks)]
    timed = any(_is_timed(statement, index) for index in range(len(statement.tokens)))
    if not hints and not timed:
        return None
    edits = tuple((place, block.rest or " ") for each in hints for place, block in each.blocks if block.lookups)
    try:
        tree = statement.tree()
    except InvalidRequestError:
        if timed:
            raise
        # Spark shows what is wrong with it, if anything is.
        _, ignored = read_hints([block for each in hints for _, block in each.blocks], {}, {})
        return LookupStatement(text, (), edits, tuple(ignored))
    joins, warnings = _JoinFinder(statement, tree, hints, source_options or {}).joins()
    return LookupStatement(text, tuple(joins), edits, tuple(warnings))


def with_named_parameters(text: str, args: Sequence[object]) -> tuple[str, dict[str, object]]:
    """Return a statement whose parameters have names in place of places, so that parts of it can be run with the same ones.

    Args:
        text: One that `parse_statement` has read.
        args: The values of its ``?``, in the order of the text. One more or less than there are stays so.
    """
    marks = [token for token in StatementText(text).tokens if token.token_type == TokenType.PLACEHOLDER]
    names = [f"{_PARAMETER}{number}" for number in range(max(len(marks), len(args)))]
    for token, name in reversed(list(zip(marks, names[: len(marks)], strict=True))):
        text = f"{text[: token.start]}:{name}{text[token.end + 1 :]}"
    return text, dict(zip(names, args, strict=False))


def _is_timed(statement: StatementText, index: int) -> bool:
    """Return whether a token begins ``AS OF PROCTIME()``, or ``AS OF name.column`` of a time."""
    if (statement.word(index), statement.word(index + 1)) != ("AS", "OF") or statement.word(index - 1) not in _TIMES:
        return False
    if statement.word(index + 3) == ".":
        return statement.word(index + 5) != "("
    return statement.word(index + 2) == _PROCTIME and statement.word(index + 3) == "("


class _JoinFinder:
    """Finds the lookup joins in a tree."""

    def __init__(
        self,
        statement: StatementText,
        tree: exp.Expr,
        hints: Sequence[SelectHints],
        source_options: Mapping[str, Callable[[str], object]],
    ) -> None:
        self._statement = statement
        self._tree = tree
        self._hints = {each.token: each for each in hints}
        self._source_options = source_options
        self._words = frozenset(token.text.lower() for token in statement.tokens)

    def joins(self) -> tuple[list[LookupJoin], list[str]]:
        """Return them in the order in which they are to be made, and what of the hints is ignored."""
        found: list[LookupJoin] = []
        warnings: list[str] = []
        by_select: dict[int | None, list[exp.Table]] = {hint: [] for hint in self._hints}
        for table in self._tree.find_all(exp.Table):
            if isinstance(version := table.args.get("version"), exp.Version) and version.args.get("kind") == "AS OF":
                by_select.setdefault(_select_token(table), []).append(table)
        for token, tables in by_select.items():
            names = _names_of(tables)
            blocks = [block for _, block in self._hints[token].blocks] if token in self._hints else []
            hints, ignored = read_hints(blocks, names, self._source_options)
            warnings += ignored
            found += [
                self._join(table, hints.get(number, LookupHint()))
                for number, table in enumerate(tables)
                if number in hints or _is_processing(table) or _has_time_of_column(table)
            ]
        return sorted(found, key=lambda each: (each.place.stop, -each.place.start)), warnings

    def _join(self, table: exp.Table, hint: LookupHint) -> LookupJoin:
        path = tuple(each.name for each in table.parts)
        name = ".".join(path)
        join = table.parent
        if not isinstance(join, exp.Join) or (on := join.args.get("on")) is None or join.args.get("using"):
            raise InvalidRequestError(f"sql: {name} FOR SYSTEM_TIME AS OF ...: a lookup join needs ON: {_HOW}")
        kind = " ".join(each for each in (join.args.get("method"), join.side, join.kind) if each).upper()
        if kind not in {"", "INNER", "LEFT", "LEFT OUTER"}:
            raise UnsupportedError(f"sql: a lookup join of {name} can be INNER or LEFT, found {kind} JOIN")
        for unknown in ("sample", "pivots", "joins", "laterals"):
            if table.args.get(unknown):
                raise UnsupportedError(f"sql: {name} of a lookup join takes an alias and nothing else: {_HOW}")
        left, bare = self._left_side(join)
        ctes, is_recursive = self._ctes(join, left)
        alias = table.args.get("alias")
        stop = self._place(on).stop
        return LookupJoin(
            place=Place(left.start, stop),
            left=left,
            bare=bare,
            path=path,
            alias=table.alias or None,
            renamed=tuple(each.name for each in alias.columns) if alias is not None else (),
            is_outer=kind.startswith("LEFT"),
            moment=self._moment(table, name),
            on=tuple(self._conjunct(each) for each in _conjuncts(on)),
            names=None if _means_any(join, table) else self._words,
            ctes=ctes,
            is_recursive=is_recursive,
            hint=hint,
        )

    def _place(self, node: exp.Expr) -> Place:
        found = span(node)
        assert found is not None, repr(node)
        return self._statement.place(*found)

    def _left_side(self, join: exp.Join) -> tuple[Place, tuple[tuple[str, ...], ...]]:
        """Return where the left side of a join stands: from the beginning, or from the last comma, up to it; and its bare tables."""
        owner = join.parent
        assert owner is not None
        first = owner.args["from_"].this if "from_" in owner.args and owner.args["from_"] is not None else owner
        relations, begin = [first], span(first)
        assert begin is not None, repr(first)
        start = begin[0]
        for other in owner.args["joins"]:
            if other is join:
                break
            place = span(other)
            assert place is not None, repr(other)
            if self._statement.word(place[0]) == ",":
                relations, start = [], place[0] + 1
            relations.append(other.this)
        stop = span(join)
        assert stop is not None, repr(join)
        bare = tuple(
            tuple(part.name for part in each.parts)
            for each in relations
            if isinstance(each, exp.Table) and each.db and not each.catalog and not each.alias
        )
        return self._statement.place(start, stop[0]), bare

    def _moment(self, table: exp.Table, name: str) -> tuple[str | None, str | None]:
        """Return the texts of the time, or of the version, at which a table is looked up."""
        if _is_processing(table):
            return None, None
        version = table.args["version"]
        clause = span(version)
        assert clause is not None, repr(version)
        first = next(index for index in range(*clause) if self._statement.word(index) == "OF") + 1
        text = self._statement.text_at(self._statement.place(first, clause[1]))
        if _has_time_of_column(table):
            raise UnsupportedError(
                f"sql: {name} FOR SYSTEM_TIME AS OF {text}: the time of a column is not offered; a lookup join finds the rows of "
                "the time at which it runs, FOR SYSTEM_TIME AS OF PROCTIME(), or of one time given as text"
            )
        return (None, text) if version.this == "VERSION" else (text, None)

    def _conjunct(self, node: exp.Expr) -> Conjunct:
        sides = None
        if isinstance(node, exp.EQ):
            left, right = node.this.unnest(), node.expression.unnest()
            if span(left) is not None and span(right) is not None:
                sides = self._place(left), self._place(right)
        columns = [
            ColumnName(
                tuple(part.name for part in each.parts),
                each.parts[0].meta["start"],
                tuple(part.meta["end"] + 1 for part in each.parts),
            )
            for each in node.find_all(exp.Column)
            if all("start" in part.meta for part in each.parts)
        ]
        return Conjunct(
            self._place(node),
            tuple(sorted(columns, key=lambda each: each.start)),
            sides,
            node.find(exp.Query) is not None,
        )

    def _ctes(self, join: exp.Join, left: Place) -> tuple[tuple[Place, ...], bool]:
        """Return what the left side needs of the WITH clauses around it."""
        visible: dict[str, tuple[exp.CTE, bool]] = {}
        shadowed: set[str] = set()
        within: exp.Expr = join
        while (parent := within.parent) is not None:
            if isinstance(parent, exp.With):
                # In a WITH clause, the ones before it.
                earlier = parent.expressions[: next(i for i, each in enumerate(parent.expressions) if each is within)]
            else:
                around = parent.args.get("with_")
                earlier = around.expressions if around is not None and around is not within else []
            for cte in reversed(earlier):
                name = cte.alias.lower()
                if name in visible:
                    shadowed.add(name)
                visible.setdefault(name, (cte, bool(cte.parent.args.get("recursive"))))
            within = parent
        needed: dict[str, exp.CTE] = {}
        pending = [left]
        tables = [(each, place) for each in self._tree.find_all(exp.Table) if (place := span(each)) is not None]
        while pending:
            around_place = pending.pop()
            for table, tokens in tables:
                name = table.name.lower()
                if table.db or name not in visible or name in needed:
                    continue
                if self._statement.place(*tokens).is_within(around_place):
                    needed[name] = visible[name][0]
                    pending.append(self._place(needed[name]))
        if both := sorted(shadowed & needed.keys()):
            raise UnsupportedError(f"sql: two WITH clauses around a lookup join have {both[0]}: give one another name")
        places = sorted((self._place(each) for each in needed.values()), key=lambda each: each.start)
        return tuple(places), any(visible[name][1] for name in needed)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _is_processing(table: exp.Table) -> bool:
    """Return whether a table is read as of PROCTIME()."""
    time = table.args["version"].expression
    return table.args["version"].this != "VERSION" and isinstance(time, exp.Func) and time.name.upper() == _PROCTIME


def _has_time_of_column(table: exp.Table) -> bool:
    return table.args["version"].expression.find(exp.Column) is not None


def _names_of(tables: Sequence[exp.Table]) -> dict[str, int]:
    """Return by which names hints may mean tables: the alias, else the name; the path where no alias is the same."""
    names: dict[str, int] = {}
    for number, table in enumerate(tables):
        names.setdefault((table.alias or table.name).lower(), number)
    for number, table in enumerate(tables):
        for name in (table.name, ".".join(each.name for each in table.parts)):
            names.setdefault(name.lower(), number)
    return names


def _select_token(node: exp.Expr) -> int | None:
    """Return the number of the SELECT in whose FROM a table stands."""
    select = node.find_ancestor(exp.Select)
    hint = None if select is None else select.args.get("hint")
    found = None if hint is None else span(hint)
    return None if found is None else found[0]


def _means_any(join: exp.Join, table: exp.Table) -> bool:
    """Return whether the statement may mean columns of a joined table that it does not name: by a star, or as all that are left."""
    select = join.find_ancestor(exp.Select)
    if select is None or _select_token(join) is None:
        return True
    if select.find(exp.Pivot) is not None or any(each.args.get("method") for each in select.find_all(exp.Join)):
        return True
    name = (table.alias or table.name).lower()
    for star in select.find_all(exp.Star):
        if star.find_ancestor(exp.Select) is not select or isinstance(star.parent, exp.Count):
            continue
        qualifier = star.parent.table.lower() if isinstance(star.parent, exp.Column) else ""
        if qualifier in {"", name}:
            return True
    return False
