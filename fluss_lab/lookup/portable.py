"""The text in which partitioners and lookup functions travel to tasks: the name of their class, and their own JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from fluss_lab.errors import FlussError, InvalidError, UnsupportedError
from fluss_lab.lookup.lookup_interfaces import InputDataPartitioner, LookupFunction, Portable
from fluss_lab.model.json_codec import decode, encode

T = TypeVar("T", bound=Portable)

#: Of the text.
FORMAT: Final = 1
_WHAT: Final = "a partitioner or lookup function as text"


@dataclass(frozen=True)
class _Form:
    module: str
    name: str
    json: str


def portable_text(value: Portable) -> str:
    """Return an object as text, of which a task makes it again.

    Raises:
        UnsupportedError: Tasks could not import its class: it is of a notebook or script, made in a function, or not what
            its module has under its name. The text says where to put it.
        InvalidError: What `to_json` returned is no JSON text, or `from_json` does not take it.
    """
    kind = type(value)
    path = class_path(kind)
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        where = "a notebook or script" if kind.__module__ == "__main__" else "a function"
        raise UnsupportedError(
            f"{path} is defined in {where}, and tasks import classes by name; put it into a module that is installed where "
            "tasks run"
        )
    if _import_object(kind.__module__, kind.__qualname__) is not kind:
        raise UnsupportedError(
            f"{path}: the module has another class under that name; tasks import classes by name; define it at the top of a "
            "module that is installed where tasks run, and start Python again if the module was changed"
        )
    with faults_named(value, "to_json"):
        text = value.to_json()
    if not _is_json(text):
        raise InvalidError(f"{path}.to_json: expected a text of JSON, found {type(text).__name__}")
    form = _Form(kind.__module__, kind.__qualname__, text)
    _remade(form, kind, kind)
    return encode(form, version=FORMAT).decode()


def partitioner_of(text: str) -> InputDataPartitioner:
    """Return the partitioner that `portable_text` wrote.

    Raises:
        UnsupportedError: Its class cannot be imported here; the text has the reason.
        InvalidError: It is no partitioner, or its class does not take what `to_json` returned.
        CorruptDataError: `portable_text` did not write this.
    """
    return _portable(text, InputDataPartitioner)  # type: ignore[type-abstract] # only asked what derives from it


def function_of(text: str) -> LookupFunction:
    """Return the lookup function that `portable_text` wrote.

    Raises:
        UnsupportedError, InvalidError, CorruptDataError: As of `partitioner_of`.
    """
    return _portable(text, LookupFunction)  # type: ignore[type-abstract] # only asked what derives from it


@contextmanager
def faults_named(owner: object, call: str) -> Iterator[None]:
    """Have what code of third parties raises name its class: what is no `FlussError` becomes an `InvalidError` that does."""
    try:
        yield
    except FlussError:
        raise
    except Exception as error:
        kind = owner if isinstance(owner, type) else type(owner)
        raise InvalidError(f"{class_path(kind)}.{call} raised {type(error).__name__}: {error}") from error


def class_path(kind: type) -> str:
    """Return how a class is called in messages: its module and its name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _portable(text: str, expected: type[T]) -> T:
    form = decode(_Form, text, _WHAT, version=FORMAT, peer=True)
    path = f"{form.module}.{form.name}"
    found = _import_object(form.module, form.name)
    # Before anything of it is called.
    if not (isinstance(found, type) and issubclass(found, expected)):
        raise InvalidError(f"{path}: expected a class that derives from {class_path(expected)}, found {found!r}")
    return _remade(form, found, expected)


def _remade(form: _Form, kind: type[Portable], expected: type[T]) -> T:
    with faults_named(kind, "from_json"):
        made = kind.from_json(form.json)
    if not isinstance(made, expected):
        raise InvalidError(
            f"{class_path(kind)}.from_json: expected {class_path(expected)}, found {type(made).__name__}"
        )
    return made


def _import_object(module: str, name: str) -> object:
    """Return what a module has under a dotted name."""
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except Exception as error:
        raise UnsupportedError(
            f"{module}.{name} cannot be imported: {type(error).__name__}: {error}; put the class into a module that is "
            "installed where tasks run, and have that installed"
        ) from error


def _is_json(text: object) -> bool:
    try:
        json.loads(text if isinstance(text, str) else "")
    except (ValueError, RecursionError):
        return False
    return True
