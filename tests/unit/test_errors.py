"""The error tree: its drawing, its wire codes, its statuses."""

import inspect
import re

import grpc
import pytest

from fluss_lab import errors
from fluss_lab.errors import ERROR_CODES, FlussError, error_code, error_from_code
from fluss_lab.rpc.error_status import status_of

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, FlussError)]


def test_the_drawing_is_the_tree():
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            stack = [(d, name) for d, name in stack if d < depth]
            if stack:
                drawn[match[2]] = stack[-1][1]
            stack.append((depth, match[2]))
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES if cls is not FlussError}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_crosses_the_wire(cls):
    back = error_from_code(error_code(cls("what, where")), "what, where")
    assert isinstance(back, FlussError)
    assert issubclass(cls, type(back))
    assert str(back) == "what, where"
    assert back.retriable == cls.retriable
    assert isinstance(status_of(cls("x")), grpc.StatusCode)


def test_codes_are_not_used_twice():
    assert len(set(ERROR_CODES.values())) == len(ERROR_CODES)


def test_an_unknown_code_is_ours_to_mend():
    assert isinstance(error_from_code(4711, "strange"), errors.InternalError)


def test_only_unavailable_errors_are_retried():
    assert {cls for cls in CLASSES if cls.retriable} == {
        cls for cls in CLASSES if issubclass(cls, errors.UnavailableError)
    }
