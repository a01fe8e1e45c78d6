"""The checks of public callables' arguments, in one place: by the types that their signatures name.

A class marked by `check_arguments` has every public method's arguments brought to the annotated types before anything else is
done: numbers of numpy and pandas become Python's, a frame's column index a list of names, ``"shop.orders"`` a table path.
What is of another type is refused with the argument's name. Rules that need more than a type (which columns, which
buckets, which time) are the callee's own.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from fluss_lab.errors import (
    FlussError,
    InvalidBucketsError,
    InvalidNameError,
    InvalidPropertyError,
    InvalidRequestError,
    InvalidSchemaError,
)
from fluss_lab.model.names import TablePath
from fluss_lab.model.times import whole_number
from fluss_lab.model.values.casts import is_unicode, value_text

KindT = TypeVar("KindT")

#: Returns a value in its type, `_OTHER` for a value that is not of it.
_Check = Callable[[Any], Any]
_OTHER: Final = object()

#: What cannot be sent in any message.
_INT64: Final = (-(2**63), 2**63 - 1)
#: By the argument's name, the whole numbers that it may be, where the callee has no rule of its own.
_BOUNDS: Final = {
    "rows_max": (1, 2**31 - 1),
    "rows_per_file": (1, 2**63 - 1),
    "max_rows_per_trigger": (1, 2**63 - 1),
    "max_tables": (1, 2**10),
    "tasks": (1, 2**16),
    "keep": (0, 2**31 - 1),
    "schema_id": (-(2**31), 2**31 - 1),
}
#: By the argument's name, the error of a value of another type.
_ERRORS: Final[Mapping[str, type[FlussError]]] = {
    **dict.fromkeys(
        ("columns", "projection", "schema", "primary_key", "partitioned_by", "bucket_key", "add_columns", "comment"),
        InvalidSchemaError,
    ),
    **dict.fromkeys(("name", "database", "path"), InvalidNameError),
    **dict.fromkeys(("properties", "config", "options", "set", "reset"), InvalidPropertyError),
}
#: How types are called in messages.
_WORDS: Final = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number of at least 0",
    "str": "a text",
    "None": "None",
    "Path": "a path",
    "TablePath": "a path 'database.table'",
    "timedelta": "a timedelta",
}


def check_arguments(kind: type[KindT]) -> type[KindT]:
    """Mark a class: its own public methods check their arguments. Those that its bases have, these must mark.

    Cost: less than a microsecond a call whose values are of the types named already.
    """
    for name, member in list(vars(kind).items()):
        is_static = isinstance(member, staticmethod)
        function = member.__func__ if is_static else member
        if (name.startswith("_") and name != "__init__") or not callable(function) or not hasattr(function, "__code__"):
            continue
        what = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
        if arguments := _arguments(what, inspect.unwrap(function)):
            called = _checking(what, function, arguments)
            setattr(kind, name, staticmethod(called) if is_static else called)
    return kind


@dataclass(frozen=True, slots=True)
class _Argument:
    """How one argument is checked.

    Attributes:
        position: Among the callable's arguments.
        plain: Types whose own values are taken as they are; of these the check is not asked.
        check: Returns a value in its type, or raises.
    """

    position: int
    plain: frozenset[type]
    check: _Check


def _arguments(what: str, function: Any) -> dict[str, _Argument]:
    """Return how each argument that has a check is checked, by its name; ``**`` for those without one."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    found = {}
    for position, name in enumerate(code.co_varnames[: count + bool(code.co_flags & 0x08)]):
        annotation = function.__annotations__.get(name)
        check = None if annotation is None else _check(str(annotation), name, function.__globals__)
        if check is not None:
            key = "**" if position >= count else name
            plain = _plain_types(str(annotation), function.__globals__)
            found[key] = _Argument(position, plain, _refusing(check, f"{what}: {name}", str(annotation), name))
    return found


def _plain_types(annotation: str, scope: Mapping[str, Any]) -> frozenset[type]:
    """Return the types of an annotation whose own values its check returns as they are."""
    found: set[type] = set()
    for part in _split(annotation, "|"):
        kind = _PLAIN_TYPES.get(part, scope.get(part))
        if not isinstance(kind, type):
            continue
        # Collections are taken as lists.
        if not issubclass(kind, Iterable):
            found.add(kind)
    return frozenset(found)


def _checking(what: str, function: Any, arguments: Mapping[str, _Argument]) -> Any:
    code = inspect.unwrap(function).__code__
    named = {name: argument for name, argument in arguments.items() if name != "**"}
    placed = [(each.position, each.plain, each.check) for each in named.values() if each.position < code.co_argcount]
    others = arguments["**"].check if "**" in arguments else None
    takes_others = bool(code.co_flags & 0x08)
    by_name = frozenset(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount])

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        for at, plain, check in placed:
            if at >= count:
                break
            if type(args[at]) not in plain:
                args = (*args[:at], check(args[at]), *args[at + 1 :])
        if takes_others and (twice := by_name & kwargs.keys() & {*code.co_varnames[: min(count, code.co_argcount)]}):
            raise InvalidRequestError(
                f"{what}: {min(twice)!r} is an argument of the call itself, and given twice, by its place and by its name; expected other "
                "names here"
            )
        for name, value in kwargs.items():
            if name in by_name:
                if (argument := named.get(name)) is not None and type(value) not in argument.plain:
                    kwargs[name] = argument.check(value)
            elif others is not None:
                kwargs[name] = others(value)
        return function(*args, **kwargs)

    return call


def _refusing(check: _Check, what: str, annotation: str, name: str) -> _Check:
    def checking(value: Any) -> Any:
        if (found := check(value)) is _OTHER:
            kind = InvalidBucketsError if name == "buckets" and "[" not in annotation else InvalidRequestError
            words = _words(annotation, name, is_whole=isinstance(value, int) and not isinstance(value, bool))
            raise _ERRORS.get(name, kind)(f"{what}: expected {words}, found {value_text(value)}")
        return found

    return checking


def _words(annotation: str, name: str, *, is_whole: bool = False) -> str:
    """Return what is expected; of a whole number that is refused, why."""
    words = []
    for part in _split(annotation, "|"):
        head, _, inner = part.partition("[")
        if head in {"Sequence", "Iterable", "Collection", "list"}:
            words.append("a list of " + ("values" if "Any" in inner else "names" if inner == "str]" else inner[:-1]))
        elif head == "Mapping":
            words.append("a dict")
        elif part == "int":
            low, high = _BOUNDS.get(name, _INT64)
            words.append(f"a whole number in [{low}, {high}]" if name in _BOUNDS or is_whole else _WORDS[part])
        else:
            words.append(_WORDS.get(part, "a function" if head == "Callable" else f"a {head}"))
    return " or ".join(words)


def _split(text: str, mark: str) -> list[str]:
    """Return the parts of an annotation between marks that are outside of all brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == mark and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _check(annotation: str, name: str, scope: Mapping[str, Any]) -> _Check | None:
    """Return the check of an annotation; None for one that admits everything, or whose rules are the callee's."""
    parts = _split(annotation, "|")
    # Names of files, which titles have too, may have bytes that are no text, and filters say at which character they have one.
    is_lax = "Path" in parts or name in {"where", "title"}
    checks = [_any_text if part == "str" and is_lax else _check_one(part, name, scope) for part in parts]
    present = [check for check in checks if check is not None]
    if len(present) < len(checks):
        return None
    if len(present) == 1:
        return present[0]

    def either(value: Any) -> Any:
        for check in present:
            if (found := check(value)) is not _OTHER:
                return found
        return _OTHER

    return either


def _check_one(part: str, name: str, scope: Mapping[str, Any]) -> _Check | None:
    head, _, rest = part.partition("[")
    inner = rest.removesuffix("]")
    if head in {"Sequence", "Iterable", "Collection", "list"}:
        # The keys of a dict are a fine list of objects of ours; where names or numbers are meant it is a mistake.
        return _list_check(
            _check(inner, "", scope), takes_mapping=isinstance(scope.get(inner), type) and inner != "Any"
        )
    if head == "Mapping":
        key, value = _split(inner, ",")
        return _map_check(_check(key, "", scope), _check(value, "", scope))
    if head == "Callable":
        return lambda value: value if callable(value) else _OTHER
    if part == "int":
        low, high = _BOUNDS.get(name, _INT64)
        return lambda value: _whole(value, low, high)
    if (plain := _PLAIN.get(part)) is not None:
        return plain
    return _instance(scope.get(part))


def _instance(kind: Any) -> _Check | None:
    """Return the check of a class; None for an alias, and for an interface, which anything may have."""
    if not isinstance(kind, type) or kind is Any or getattr(kind, "_is_protocol", False):
        return None
    return lambda value: value if isinstance(value, kind) else _OTHER


def _whole(value: Any, low: int, high: int) -> Any:
    number = value if type(value) is int else whole_number(value)
    return number if number is not None and low <= number <= high else _OTHER


def _flag(value: Any) -> Any:
    return bool(value) if isinstance(value, bool | np.bool_) else _OTHER


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return _OTHER
    return min(float(value), threading.TIMEOUT_MAX) if value >= 0 else _OTHER


def _path(value: Any) -> Any:
    return value if isinstance(value, os.PathLike) else _OTHER


def _table_path(value: Any) -> Any:
    return TablePath.parse(value) if isinstance(value, str | TablePath) else _OTHER


def _any_text(value: Any) -> Any:
    return value if isinstance(value, str) else _OTHER


def _text(value: Any) -> Any:
    """Return a text as Python's own; half of a character, which no message can have, makes it none."""
    if not isinstance(value, str):
        return _OTHER
    text = value if type(value) is str else str.__str__(value)
    return text if text.isascii() or is_unicode(text) else _OTHER


#: Of these the values are taken as they are; a table path's own too, as of any other class.
_PLAIN_TYPES: Final[Mapping[str, Any]] = {
    "None": type(None),
    "bool": bool,
    # Theirs have bounds, or come in other forms, or may have halves of characters.
    "str": None,
    "int": None,
    "float": None,
    "Path": None,
}
_PLAIN: Final[Mapping[str, _Check]] = {
    "None": lambda value: None if value is None else _OTHER,
    "bool": _flag,
    "float": _number,
    "str": _text,
    "Path": _path,
    "TablePath": _table_path,
}


def _list_check(check: _Check | None, *, takes_mapping: bool = False) -> _Check:
    def check_list(value: Any) -> Any:
        if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
            return _OTHER
        if isinstance(value, Mapping) and not takes_mapping:
            return _OTHER
        if hasattr(value, "ndim") and value.ndim != 1:
            return _OTHER
        given: Collection[Any] = value if isinstance(value, list | tuple) else list(value)
        if check is None:
            return given
        found = [check(each) for each in given]
        return _OTHER if any(each is _OTHER for each in found) else found

    return check_list


def _map_check(check_key: _Check | None, check_value: _Check | None) -> _Check:
    def check_map(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _OTHER
        found = {}
        for key, inner in value.items():
            key_found = key if check_key is None else check_key(key)
            value_found = inner if check_value is None else check_value(inner)
            if key_found is _OTHER or value_found is _OTHER:
                return _OTHER
            found[key_found] = value_found
        return found

    return check_map
