"""The public face has its contracts, and the names in them and in the documents are there."""

import builtins
import inspect
import re
import sys
from importlib import import_module

import pytest

from fluss_lab.errors import WriteInterruptedError
from fluss_lab.lookup.lookup_options import UPDATE_STRATEGY
from fluss_lab.model.config.config_chain import OPTIONS
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.model.config.options import TABLE_OPTIONS
from fluss_lab.workbench import Lab, Table
from tests.architecture.test_docs import DOCS
from tools import api_reference

_CLASSES = {each.__name__: each for each in api_reference.public_classes()}
#: A name in a docstring that links to what it names.
_LINKED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
#: A dotted name in a document, called or not.
_DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[\w-]+)+)(?:\([^`]*\))?`")
#: What examples call the objects in the hand.
_HELD = {"lab": Lab, "table": Table, "flights": Table, "planes": Table, "error": WriteInterruptedError}
_KEYS = {*OPTIONS, *TABLE_OPTIONS, FORMAT_KEY, UPDATE_STRATEGY, "remote.data.dir"}


def _public_objects():
    """Yield each public object with its name, and the class that its docstring speaks of, if any."""
    for page, names in api_reference.pages().items():
        module = import_module(page)
        yield page, module, None
        for name in names:
            found = getattr(module, name)
            if inspect.isclass(found):
                yield name, found, found
            elif inspect.isfunction(found):
                yield name, found, None
    for owner in api_reference.public_classes():
        for name, member in api_reference.public_members(owner):
            yield f"{owner.__qualname__}.{name}", member, owner


def _has(found, names):
    for name in names:
        if not hasattr(found, name) and name not in inspect.get_annotations(
            found if inspect.isclass(found) else type(found)
        ):
            return False
        found = getattr(found, name, None)
    return True


def _arguments(found):
    try:
        return set(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        return set()


def _unknown_links(name, found, owner):
    text = found.__doc__ or ""
    home = vars(sys.modules[getattr(found, "__module__", name)])
    known = _arguments(found) | _arguments(owner) | set(home) | set(vars(builtins))
    for link in set(_LINKED.findall(text)):
        first, *rest = link.split(".")
        if first == "fluss_lab":
            if not _resolves(link):
                yield f"{name}: {link}"
        elif first in _CLASSES:
            if not _has(_CLASSES[first], rest):
                yield f"{name}: {link}"
        elif not (owner is not None and _has(owner, [first, *rest])) and first not in known:
            yield f"{name}: {link}"


def _resolves(dotted):
    """Return whether a full name is a module, or an attribute of one."""
    names = dotted.split(".")
    for end in range(len(names), 0, -1):
        try:
            found = import_module(".".join(names[:end]))
        except ImportError:
            continue
        return _has(found, names[end:])
    return False


def _unknown_names(text):
    for dotted in set(_DOTTED.findall(text)):
        first, *rest = dotted.split(".")
        if dotted in _KEYS:
            continue
        owner = _CLASSES.get(first) or _HELD.get(first)
        if not (_resolves(dotted) if first == "fluss_lab" else owner is None or _has(owner, rest[:1])):
            yield dotted


def test_every_public_object_has_a_docstring():
    objects = list(_public_objects())
    assert len(objects) > 500
    assert [name for name, found, _ in objects if not inspect.getdoc(found)] == []


def test_docstrings_link_to_what_is_there():
    assert sorted({complaint for each in _public_objects() for complaint in _unknown_links(*each)}) == []


def test_a_docstring_that_links_to_nothing_is_caught():
    def gone(rows):
        """Write `rows` as `Table.scan`, not as `Table.gone`, `nowhere` or `fluss_lab.attic`."""

    assert {each.split(": ")[1] for each in _unknown_links("gone", gone, None)} == {
        "Table.gone",
        "nowhere",
        "fluss_lab.attic",
    }


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_documents_name_calls_that_are_there(path):
    assert list(_unknown_names(path.read_text())) == []


def test_a_document_that_names_a_call_that_is_not_there_is_caught():
    text = "`lab.tier()` `lab.fly()` `Table.swim` `fluss_lab.errors.NoError` `table.log.ttl` `table.log.life` `pyarrow.dataset`"
    assert sorted(_unknown_names(text)) == ["Table.swim", "fluss_lab.errors.NoError", "lab.fly", "table.log.life"]
