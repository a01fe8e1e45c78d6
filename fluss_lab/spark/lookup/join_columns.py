"""The meaning of a lookup join's conditions, once the columns of both sides are known: its keys, and what else a match must fulfil."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_lab.errors import InvalidRequestError, UnsupportedError
from fluss_lab.spark.lookup.lookup_sql import ColumnName, Conjunct, LookupJoin
from fluss_lab.spark.lookup.statement_tree import Place
from fluss_lab.spark.source.spark_columns import quote

_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class StreamColumn:
    """A column of a join's left side.

    Attributes:
        qualifier: The names before its own: of its table, or alias.
        name: Its name in the statement.
        alias: Its name in the frame, where no two are the same.
    """

    qualifier: tuple[str, ...]
    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """What a lookup join is made of.

    Attributes:
        keys: By the table's columns: the frame's column (True), or an expression of SQL over the left side (False).
        where: What else must be true of a match: of the frame's columns and of ``row.column``; None: nothing.
    """

    keys: dict[str, tuple[str, bool]]
    where: str | None


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a name means: a column of the table, or of the stream; and how many of its parts say so."""

    parts: int
    table: str | None = None
    stream: StreamColumn | None = None


class JoinReader:
    """Reads the conditions of one join.

    Args:
        join: Of a statement.
        written: Returns the text of a part of the statement.
        stream: The columns of the left side.
        table: The table's columns.
        keys: Those of them that its rows are found by best: where one is joined on, no other is a key.
        row: What the table's row is called in the condition.
    """

    def __init__(
        self,
        join: LookupJoin,
        written: Callable[[Place], str],
        stream: Sequence[StreamColumn],
        table: Sequence[str],
        keys: Collection[str],
        row: str,
    ) -> None:
        self._join, self._written, self._stream, self._keys, self._row = join, written, stream, keys, row
        self._name = ".".join(join.path)
        names = join.renamed or tuple(table)
        if len(names) != len(table):
            raise InvalidRequestError(
                f"sql: lookup join with {self._name}: its alias names {len(names)} columns; it has {len(table)}: "
                f"{_list_names(table)}"
            )
        #: The table's columns by what the statement calls them.
        self.names = dict(zip(names, table, strict=True))
        self._folded = {name.lower(): column for name, column in self.names.items()}
        alias = (join.alias or join.path[-1]).lower()
        self._qualifiers = {(alias,)} if join.alias else {(alias,), tuple(part.lower() for part in join.path)}

    @property
    def wanted(self) -> dict[str, str]:
        """Return the table's columns that the statement may mean, by what it calls them, in the table's order."""
        words = self._join.names
        return {name: column for name, column in self.names.items() if words is None or name.lower() in words}

    def columns(self) -> JoinColumns:
        """Return keys and condition.

        Raises:
            InvalidRequestError: No column of the table is equal to an expression of the stream; a name that both have, or none.
            UnsupportedError: A subquery in a condition that is no key.
        """
        equal = [(each, self._equality(each)) for each in self._join.on]
        found = {found[0] for _, found in equal if found is not None}
        allowed = found & set(self._keys) or found
        keys: dict[str, tuple[str, bool]] = {}
        rest: list[Conjunct] = []
        used: set[str] = set()
        for conjunct, equality in equal:
            if equality is None or equality[0] not in allowed or equality[0] in keys:
                rest.append(conjunct)
                continue
            column, text, is_column = equality
            # A frame's column is the key of one of the table's.
            if is_column and text in used:
                assert conjunct.sides is not None
                text, is_column = self._written(self._other_side(conjunct)), False
            used.add(text)
            keys[column] = text, is_column
        if not keys:
            example = next(iter(self._keys), next(iter(self.names), "key"))
            raise InvalidRequestError(
                f"sql: lookup join with {self._name}: ON has no equality of one of its columns with the stream: expected "
                f"ON stream.column = {self._join.alias or self._join.path[-1]}.{example}, found "
                + (" AND ".join(self._written(each.place) for each in self._join.on) or "nothing")
            )
        conditions = [self._condition(each) for each in rest]
        return JoinColumns(keys, " and ".join(f"({each})" for each in conditions) or None)

    def _equality(self, conjunct: Conjunct) -> tuple[str, str, bool] | None:
        """Return the table's column that is equal to an expression of the stream, that, and whether it is the frame's column."""
        for place, other in () if conjunct.sides is None else (conjunct.sides, conjunct.sides[::-1]):
            column = self._whole_column(conjunct, place)
            if column is None or column.table is None:
                continue
            beside = [self._meaning(each) for each in conjunct.columns if each.place.is_within(other)]
            if any(each is not None and each.table is not None for each in beside):
                continue
            whole = self._whole_column(conjunct, other)
            if whole is not None and whole.stream is not None:
                return column.table, whole.stream.alias, True
            return column.table, self._written(other), False
        return None

    def _other_side(self, conjunct: Conjunct) -> Place:
        assert conjunct.sides is not None
        first = self._whole_column(conjunct, conjunct.sides[0])
        return conjunct.sides[1 if first is not None and first.table is not None else 0]

    def _whole_column(self, conjunct: Conjunct, place: Place) -> _Meaning | None:
        """Return what a part of a condition means, if it is a column and nothing else."""
        for each in conjunct.columns:
            if each.place == place:
                meaning = self._meaning(each)
                return meaning if meaning is not None and meaning.parts == len(each.parts) else None
        return None

    def _condition(self, conjunct: Conjunct) -> str:
        """Return a condition in the names of the frame and of the row."""
        if conjunct.has_query:
            raise UnsupportedError(
                f"sql: lookup join with {self._name}: {self._written(conjunct.place)}: a subquery in ON is not offered; "
                "put it into WHERE, or join its result"
            )
        text, start = self._written(conjunct.place), conjunct.place.start
        for each in reversed(conjunct.columns):
            if (meaning := self._meaning(each)) is None:
                continue
            if meaning.stream is not None:
                new = quote(meaning.stream.alias)
            else:
                assert meaning.table is not None
                new = f"{quote(self._row)}.{quote(meaning.table)}"
            text = text[: each.start - start] + new + text[each.stops[meaning.parts - 1] - start :]
        return text

    def _meaning(self, column: ColumnName) -> _Meaning | None:
        """Return what a name means as Spark finds it: by the longest qualifier; None: nothing here."""
        parts = tuple(part.lower() for part in column.parts)
        for length in range(len(parts) - 1, -1, -1):
            qualifier, name = parts[:length], parts[length]
            found = [
                _Meaning(length + 1, stream=each)
                for each in self._stream
                if each.name.lower() == name and _ends_with(each.qualifier, qualifier)
            ]
            if (not qualifier or qualifier in self._qualifiers) and name in self._folded:
                found.append(_Meaning(length + 1, table=self._folded[name]))
            if len(found) > 1:
                raise InvalidRequestError(
                    f"sql: lookup join with {self._name}: ON: {'.'.join(column.parts)} may be a column of "
                    f"{' or of '.join(self._owner(each) for each in found)}; write which"
                )
            if found:
                return found[0]
            if qualifier in self._qualifiers:
                raise InvalidRequestError(
                    f"sql: lookup join with {self._name}: ON: it has no column {column.parts[length]!r}; its columns are "
                    f"{_list_names(self.names)}"
                )
        return None

    def _owner(self, meaning: _Meaning) -> str:
        if meaning.stream is None:
            return self._join.alias or self._name
        return ".".join(meaning.stream.qualifier) or "the stream"


def _ends_with(qualifier: Sequence[str], end: Sequence[str]) -> bool:
    return not end or tuple(part.lower() for part in qualifier[-len(end) :]) == tuple(end)


def _list_names(names: Iterable[str]) -> str:
    shown = list(names)
    more = f", ... ({len(shown)} in all)" if len(shown) > _SHOWN_MAX else ""
    return ", ".join(shown[:_SHOWN_MAX]) + more
