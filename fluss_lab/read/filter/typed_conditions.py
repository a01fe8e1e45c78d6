"""Conditions over a table's columns, checked while they are made: literals come in their columns' own types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.filter_literals import fit_literal
from fluss_lab.read.filter.predicates import Among, Compare, Like, NotANumber, Null, Predicate, Reference

_LIKE: Final = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
_SPECIAL: Final = re.compile(r"([%_\\])")


class Conditions:
    """Makes the leaves of a tree of predicates over the columns of one table."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        """Make it.

        Args:
            types: The columns, of the user's and the system's.
        """
        self.types = types

    def column(self, path: Sequence[str], *, exactly: bool = False) -> Reference:
        """Return the column, or field within a ROW column, of a path of names.

        Args:
            path: Names from the outside in.
            exactly: Whether another case is another name; otherwise it is the same, unless two names differ by it only.

        Raises:
            InvalidFilterError: There is none.
        """
        found, dtype = _find(path[0], self.types.items(), exactly=exactly)
        if dtype is None:
            raise InvalidFilterError(
                f"filter names an unknown column {path[0]!r}; the columns are {', '.join(self.types)}"
            )
        names = [found]
        for name in path[1:]:
            fields = [(field.name, field.type) for field in dtype] if pa.types.is_struct(dtype) else []
            found, inner = _find(name, fields, exactly=exactly)
            if inner is None:
                shown = f"the fields are {', '.join(f[0] for f in fields)}" if fields else f"it is of type {dtype}"
                raise InvalidFilterError(f"filter names an unknown field {name!r} of {'.'.join(names)!r}; {shown}")
            names.append(found)
            dtype = inner
        return Reference(tuple(names), dtype)

    def compare(self, reference: Reference, operator: str, value: Any) -> Predicate:
        """Return ``column operator value``; the value is a Python or Arrow scalar and not null."""
        fitted = fit_literal(operator, value, reference.type, str(reference))
        if fitted.value is not None:
            return Compare(reference, fitted.operator, fitted.value)
        # Decided for every value; a null stays unknown, and so does its negation: (not) among nothing says just that.
        return Among(reference, (), negated=fitted.always)

    def among(self, reference: Reference, values: Iterable[Any], with_null: bool) -> Predicate:
        """Return ``column IN (values)``; `with_null`: NULL is one of them."""
        fitted = [fit_literal("=", value, reference.type, str(reference)) for value in values]
        scalars = tuple(dict.fromkeys(each.value for each in fitted if each.value is not None))
        return Among(reference, scalars, with_null)

    def like(self, reference: Reference, pattern: str) -> Predicate:
        """Return ``column LIKE pattern``."""
        if not pa.types.is_string(reference.type):
            raise InvalidFilterError(f"column {str(reference)!r} of type {reference.type}: LIKE is of text only")
        return Like(reference, checked_pattern(pattern))

    def starts_with(self, reference: Reference, prefix: str) -> Predicate:
        """Return that a column's text begins with another."""
        return self.like(reference, _SPECIAL.sub(r"\\\1", prefix) + "%")

    def null(self, reference: Reference) -> Predicate:
        """Return ``column IS NULL``."""
        return Null(reference)

    def nan(self, reference: Reference) -> Predicate:
        """Return ``column IS NAN``."""
        if not pa.types.is_floating(reference.type):
            raise InvalidFilterError(
                f"column {str(reference)!r} of type {reference.type}: only FLOAT and DOUBLE can be NaN"
            )
        return NotANumber(reference)


def checked_pattern(pattern: str) -> str:
    r"""Return a pattern of LIKE; ``\`` stands only before ``%``, ``_`` and itself."""
    if _LIKE.fullmatch(pattern) is None:
        raise InvalidFilterError(rf"pattern {pattern[:80]!r}: expected '\' only before '%', '_' or another '\'")
    return pattern


def _find(name: str, typed: Iterable[tuple[str, pa.DataType]], *, exactly: bool) -> tuple[str, pa.DataType | None]:
    """Return the name that is meant: exactly, or the only one in another case."""
    known = dict(typed)
    if name in known:
        return name, known[name]
    near = [] if exactly else [other for other in known if other.lower() == name.lower()]
    return (near[0], known[near[0]]) if len(near) == 1 else (name, None)
