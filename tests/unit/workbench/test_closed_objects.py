"""Every public member that needs no argument, of objects whose connection is closed: an answer or a `FlussError`, at once."""

import inspect
import itertools

import pytest

from tests.unit.workbench.test_arguments import CLASSES, judged, lab, things, use

__all__ = ["lab", "things"]
#: They begin a server, Spark or threads that only wait, or are lazy: what DuckDB says then is its own.
_OTHERS = {"open", "spark", "start_spark", "stream", "explore", "to_spark", "to_duckdb"}
_BEGUN = {("TieringService", "__enter__"), ("TieringService", "start")}
#: What Python calls: for a loop, a card, a with-statement, a length.
_HIDDEN = ("__iter__", "__len__", "__repr__", "_repr_html_", "__enter__", "__next__", "__arrow_c_stream__")


def members(kind):
    """Yield the names of a class's public members that are asked without an argument."""
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "__func__", member)
        if name in _OTHERS or (kind.__name__, name) in _BEGUN or (name.startswith("_") and name not in _HIDDEN):
            continue
        if isinstance(member, property) or (inspect.isfunction(function) and not _needed(function)):
            yield name


def _needed(function):
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.name != "self" and each.default is each.empty and each.kind < 2]


def ask(subject, name):
    found = getattr(subject, name)
    found = use(found() if inspect.ismethod(found) or inspect.isfunction(found) else found)
    if isinstance(found, itertools.chain) or (hasattr(type(found), "__next__")):
        return next(found, None)
    return found


@pytest.mark.slow
def test_members_of_closed_objects_answer_or_are_refused(lab, things):
    objects, _ = things
    lab.connection.close()
    odd, asked, refused = [], 0, 0
    for kind in CLASSES:
        for subject, name in itertools.product(objects[kind.__name__], list(members(kind))):
            # Twice: with-statements and iterators too.
            for turn in ("once", "twice"):
                what, asked = f"{kind.__name__}.{name} {turn}", asked + 1
                with judged(what, odd) as refusals:
                    ask(subject, name)
                refused += len(refusals)
    assert not odd, "\n".join(odd)
    assert asked > 200
    assert refused > 50
