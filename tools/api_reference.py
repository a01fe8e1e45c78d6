"""The API reference: HTML pages that pdoc makes from the docstrings of what users import, and of what calls return to them.

``python -m tools.api_reference FOLDER``
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

#: What users import.
PUBLIC_MODULES: Final = (
    "fluss_lab", "fluss_lab.client", "fluss_lab.errors", "fluss_lab.jobs", "fluss_lab.lake", "fluss_lab.model",
    "fluss_lab.spark", "fluss_lab.testing", "fluss_lab.testing.conformance", "fluss_lab.workbench",
)  # fmt: skip
_HOUSE: Final = "fluss_lab"
#: Rooms that no user holds an object of, though `fluss_lab.testing` names some.
_HIDDEN: Final = ("fluss_lab.server.", "fluss_lab.rpc.")
_CLASS_NAME: Final = re.compile(r"\b[A-Z]\w*")


def public_names(module: Any) -> list[str]:
    """Return what a module offers: its ``__all__``, else the public classes and functions that it defines."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return sorted(named)
    return sorted(
        name for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", None) == module.__name__
        and (inspect.isclass(each) or inspect.isfunction(each))
    )  # fmt: skip


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that a class of ours defines for its users, as functions."""
    for base in cls.__mro__:
        if base.__module__.split(".")[0] != _HOUSE:
            continue
        for name, member in vars(base).items():
            found = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
            if not name.startswith("_") and inspect.isfunction(found):
                yield name, found


def _named_classes(annotation: Any, module: str) -> Iterator[type]:
    for name in _CLASS_NAME.findall(
        annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    ):
        found = getattr(sys.modules[module], name, None)
        if inspect.isclass(found) and found.__module__.split(".")[0] == _HOUSE:
            yield found


def public_classes() -> list[type]:
    """Return the classes that users import, and those of the values that their calls and attributes give."""
    modules = [import_module(name) for name in PUBLIC_MODULES]
    waiting = [
        each for module in modules for name in public_names(module) if inspect.isclass(each := getattr(module, name))
    ]
    found: dict[type, None] = {}
    while waiting:
        cls = waiting.pop()
        if cls in found or cls.__module__.split(".")[0] != _HOUSE or cls.__module__.startswith(_HIDDEN):
            continue
        found[cls] = None
        for _, member in public_members(cls):
            waiting.extend(_named_classes(member.__annotations__.get("return", ""), member.__module__))
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if not name.startswith("_"):
                waiting.extend(_named_classes(annotation, cls.__module__))
    return sorted(found, key=lambda each: (each.__module__, each.__qualname__))


def pages() -> dict[str, list[str]]:
    """Return each page's module with the names on it: the public modules, and the homes of what calls return."""
    shown = {name: public_names(import_module(name)) for name in PUBLIC_MODULES}
    there = {getattr(import_module(module), name) for module, names in shown.items() for name in names}
    for cls in public_classes():
        if cls not in there:
            shown.setdefault(cls.__module__, []).append(cls.__qualname__)
    return shown


def write_reference(folder: Path) -> None:
    """Write the pages into a folder; they need no network.

    Raises:
        RuntimeWarning, UserWarning: An object that pdoc cannot show.
    """
    import pdoc
    import pdoc.render

    warnings.simplefilter("error")
    for name, names in pages().items():
        module = import_module(name)
        # A page shows these and no other; some are loaded on first use.
        vars(module).update({each: getattr(module, each) for each in names}, __all__=names)
    pdoc.render.configure(docformat="google", show_source=False, footer_text="fluss_lab")
    pdoc.pdoc(*pages(), output_directory=folder)


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
