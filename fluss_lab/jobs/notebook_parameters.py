"""The parameters of a notebook: the types, ranges and defaults that its cell tagged ``parameters`` declares.

The cell has one assignment of a literal for each, and may annotate it; a comment behind may limit it::

    table: str = "nyc.flights"
    days: int = 7  # 1 to 365
    how: str = "inner"  # one of inner, left
    since: str | None = None

Values are checked against the cell before anything runs: papermill itself writes names verbatim into the code that it
injects, and only warns of those that the notebook does not have.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import math
import os
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from fluss_lab.errors import InvalidRequestError
from fluss_lab.jobs.notebook_library import Notebook
from fluss_lab.model.values.casts import is_unicode, value_text

TAG: Final = "parameters"
#: Of the cell with a run's values, which papermill puts behind the one with that tag, or in the place of another such.
_INJECTED_TAG: Final = "injected-parameters"
#: All values together, as JSON: they are kept in the history and in each output notebook.
VALUES_LENGTH_MAX: Final = 64 << 10
DEPTH_MAX: Final = 8

_NUMBER: Final = r"(-?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_RANGE: Final = re.compile(rf"#\s*{_NUMBER}\s+to\s+{_NUMBER}(?!\w|\.\w)")
_CHOICE: Final = r"""(?:[\w.+-]+|"[^"]*"|'[^']*')"""
_CHOICES: Final = re.compile(rf"#\s*one of\s+({_CHOICE}(?:\s*,\s*{_CHOICE})*)")
_SECRET_NAME: Final = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|token|credentials?|api_?key|access_?key|private_?key)(_|$)", re.IGNORECASE
)
_NO_SECRET: Final = re.compile(r"_(file|path|name|names|id|env|count)$", re.IGNORECASE)

#: Whether a value is of a type.
_Test: TypeAlias = Callable[[Any], bool]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


_TESTS: Final[Mapping[str, _Test]] = {
    "int": _is_int,
    "float": _is_float,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "None": lambda value: value is None,
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "Any": lambda _: True,
}


@dataclass(frozen=True, slots=True)
class NotebookParameter:
    """One parameter.

    Attributes:
        name: Its name.
        type: Its type, as Python writes it.
        default: The value that the notebook has.
        low: The smallest number allowed, of a list those of its members; None without a limit.
        high: The largest number allowed.
        choices: The values allowed, as texts; of a list, those of its members; empty: any.
    """

    name: str
    type: str
    default: Any
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        limits = f", {self._range}" if self.low is not None and self.high is not None else ""
        choices = f", one of {', '.join(self.choices)}" if self.choices else ""
        return f"{self.name}: {self.type}{limits}{choices}"

    def check(self, value: Any) -> Any:
        """Return a value in plain Python if the parameter may have it.

        Raises:
            InvalidRequestError: It may not.
        """
        plain = _plain(self.name, value, DEPTH_MAX)
        if isinstance(plain, str) and plain and _SECRET_NAME.search(self.name) and not _NO_SECRET.search(self.name):
            raise InvalidRequestError(
                f"parameter {self.name}: parameters are kept in the output notebook; give a secret by the name of an "
                "environment variable (secrets=[...]), and read it in the notebook by os.environ"
            )
        test = _type_test(ast.parse(self.type, mode="eval").body)
        if test is None or not test(plain):
            raise InvalidRequestError(f"parameter {self.name}: expected {self.type}, found {_short_text(value)}")
        if (allowed := self._passed_limit(plain)) is not None:
            raise InvalidRequestError(f"parameter {self.name}: expected {allowed}, found {_short_text(value)}")
        return plain

    def check_default(self) -> None:
        """Check that the notebook's own value is within its own limits: it counts where none is given.

        Raises:
            InvalidRequestError: It is not.
        """
        if (allowed := self._passed_limit(_as_lists(self.default))) is not None:
            raise InvalidRequestError(
                f"parameter {self.name}: its default is {_short_text(self.default)}, and its comment says {allowed}: give a value, or "
                "mend the notebook"
            )

    def _passed_limit(self, value: Any) -> str | None:
        """Return the limit that a value is outside of, in words; None: it is within."""
        if not self._is_in_range(value):
            return self._range
        if self.choices and value is not None and not self._is_choice(value):
            return f"one of {', '.join(self.choices)}"
        return None

    @property
    def _range(self) -> str:
        return f"{_number_text(self.low)} to {_number_text(self.high)}"

    def _is_in_range(self, value: Any) -> bool:
        if isinstance(value, list):
            return all(map(self._is_in_range, value))
        return not _is_float(value) or self.low is None or self.high is None or self.low <= value <= self.high

    def _is_choice(self, value: Any) -> bool:
        if isinstance(value, list):
            return all(map(self._is_choice, value))
        if isinstance(value, str):
            return value in self.choices
        return any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in map(_literal, self.choices)
        )

    def value_of(self, text: str) -> Any:
        """Return the value that a text of a command line means: as it is for a text, else read as JSON."""
        test = _type_test(ast.parse(self.type, mode="eval").body)
        if test is not None and test(text):
            return None if text == "null" and test(None) else text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text


def notebook_parameters(notebook: Notebook) -> dict[str, NotebookParameter]:
    """Return the parameters of a notebook by name, in the order of its cell; empty without such a cell.

    Raises:
        InvalidRequestError: The cell is not plain Python, or is not where papermill sees it: values would be set before it, and
            its own would count.
    """
    tagged = [(place, cell) for place, cell in enumerate(notebook.cells) if TAG in _tags(cell)]
    found = next(((place, cell) for place, cell in tagged if cell["cell_type"] == "code"), None)
    if found is None:
        return {}
    place, cell = found
    if place != tagged[0][0]:
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: cell {tagged[0][0] + 1}, which is no code, is tagged {TAG!r} before the code cell that "
            f"is: take the tag off it"
        )
    if any(_INJECTED_TAG in _tags(each) for each in notebook.cells[:place]):
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: a cell tagged {_INJECTED_TAG!r}, left by an earlier run, stands before the one tagged "
            f"{TAG!r}: remove it"
        )
    source = cell["source"]
    return _of_source(notebook, source if isinstance(source, str) else "".join(source))


def _tags(cell: Mapping[str, Any]) -> Sequence[Any]:
    return (cell.get("metadata") or {}).get("tags") or ()


def check_parameters(notebook: Notebook, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values, in plain Python, that a notebook can be run with.

    Args:
        notebook: The notebook.
        values: By name; what is not given keeps the notebook's default.

    Raises:
        InvalidRequestError: A name that is no parameter of the notebook, or a value that is not of its type or range.
    """
    known = notebook_parameters(notebook)
    found = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name not in known:
            listed = f"it has {', '.join(known)}" if known else f"it has no cell tagged {TAG!r} with any"
            raise InvalidRequestError(
                f"notebook {notebook.path.name}: {_short_text(name)} is no parameter of it; {listed}"
            )
        found[name] = known[name].check(value)
    for parameter in known.values():
        if parameter.name not in found:
            parameter.check_default()
    if (length := len(json.dumps(found))) > VALUES_LENGTH_MAX:
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: parameters of {length:,} characters as JSON, expected at most "
            f"{VALUES_LENGTH_MAX:,}; put large values in a table or a file"
        )
    return found


def _of_source(notebook: Notebook, source: str) -> dict[str, NotebookParameter]:
    try:
        body = ast.parse(source).body
        comments = _comments(source)
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError) as error:
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: the cell tagged {TAG!r} is not plain Python: {error}"
        ) from None
    found = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, annotation = statement.targets[0], None
        elif isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, statement.annotation
        else:
            continue
        if isinstance(target, ast.Name) and statement.value is not None:
            comment = comments.get(statement.end_lineno or statement.lineno, "")
            found[target.id] = _parameter(notebook, target.id, annotation, statement.value, comment)
    return found


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _parameter(
    notebook: Notebook, name: str, annotation: ast.expr | None, value: ast.expr, comment: str
) -> NotebookParameter:
    try:
        default = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: parameter {name}: expected a literal as its default, found {ast.unparse(value)[:60]}"
        ) from None
    kind = _infer_type(default) if annotation is None else ast.unparse(annotation)
    if annotation is not None and _type_test(annotation) is None:
        raise InvalidRequestError(
            f"notebook {notebook.path.name}: parameter {name}: expected a type made of int, float, str, bool, None, list and "
            f"dict, found {kind[:60]}"
        )
    ranged, chosen = _RANGE.match(comment), _CHOICES.match(comment)
    return NotebookParameter(
        name,
        kind,
        default,
        low=_number(ranged[1]) if ranged else None,
        high=_number(ranged[2]) if ranged else None,
        choices=tuple(each.strip("\"'") for each in re.findall(_CHOICE, chosen[1])) if chosen else (),
    )


def _number(text: str) -> int | float:
    """Return the number of a comment; whole ones exactly, as floats are not beyond 2**53."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _number_text(number: float | None) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _literal(text: str) -> Any:
    """Return the value that a text is in Python; one that is none stays a text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _infer_type(default: Any) -> str:
    kind = type(default).__name__
    if default is None:
        return "Any"
    return "list" if kind == "tuple" else kind if kind in _TESTS else "Any"


def _type_test(annotation: ast.expr) -> _Test | None:
    """Return the test of an annotation; None for a type that is not known."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return _TESTS["None"]
    if isinstance(annotation, ast.Name):
        return _TESTS.get(annotation.id)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        left, right = _type_test(annotation.left), _type_test(annotation.right)
        return None if left is None or right is None else lambda value: left(value) or right(value)
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        return _generic_test(annotation.value.id, annotation.slice)
    return None


def _generic_test(name: str, inner: ast.expr) -> _Test | None:
    inside = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    tests = [test for test in map(_type_test, inside) if test is not None]
    if len(tests) != len(inside):
        return None
    if len(tests) == 1:
        (one,) = tests
        if name == "Optional":
            return lambda value: value is None or one(value)
        if name == "list":
            return lambda value: isinstance(value, list) and all(map(one, value))
    if len(tests) == 2 and name == "dict":
        of_key, of_value = tests
        return lambda value: (
            isinstance(value, dict) and all(map(of_key, value)) and all(map(of_value, value.values()))
        )  # fmt: skip
    return None


def _plain(name: str, value: Any, depth: int) -> Any:
    """Return a value as JSON has it, and papermill writes it."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str) and "\0" not in value and is_unicode(value):
        return str.__str__(value)  # what it is, whatever a subclass shows of it
    if isinstance(value, list | tuple) and depth:
        return [_plain(name, each, depth - 1) for each in value]
    if isinstance(value, Mapping) and depth and all(isinstance(key, str) for key in value):
        return {str(_plain(name, key, 0)): _plain(name, each, depth - 1) for key, each in value.items()}
    raise InvalidRequestError(
        f"parameter {name}: expected text (without the character of code 0, or half of one), whole numbers of 64 bits, finite numbers, "
        f"booleans, None, or lists and dicts of them (at most {DEPTH_MAX} deep), found {_short_text(value)}"
    )


def _short_text(value: Any) -> str:
    text = value_text(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
