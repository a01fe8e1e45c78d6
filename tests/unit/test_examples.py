"""The examples in docstrings, run."""

import doctest
from importlib import import_module

import pytest

from tests.architecture.laws import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "fluss_lab").rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    found = doctest.testmod(import_module(name), raise_on_error=False)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_there_are_examples():
    assert len(MODULES) >= 5
