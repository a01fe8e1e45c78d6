"""The script of the view: its modules joined into one, as a notebook's front end takes it."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from importlib.resources import files
from typing import Final

from fluss_lab.errors import InternalError

_ENTRY: Final = "explorer_view.js"
_STYLE: Final = "explorer_style.css"
#: One import a line, of names, from a file of the view: all that the modules use.
_IMPORT: Final = re.compile(r'^import \{ [\w, ]+ \} from "(\.\.?/[\w/]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=const|function|class|async)", re.MULTILINE)
#: A string or a template, which stays as it is; or punctuation between spaces. Signs are none of it: ``a - -b`` needs its spaces.
_SPACED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)| *([{}()\[\],;:?=<>&|!]+) *""")
#: A template within another one, whose parts no pattern tells apart.
_NESTED: Final = re.compile(r"\$\{[^}]*`")
_COMMENT: Final = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
_DEFINED: Final = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)


@cache
def view_script() -> str:
    """Return the script: every module once, behind those that it imports.

    Raises:
        InternalError: Two modules define one name, which would be one in the joined script.
    """
    order: dict[str, str] = {}
    _add(_ENTRY, order)
    owners: dict[str, str] = {}
    for module, text in order.items():
        for name in _DEFINED.findall(text):
            if owners.setdefault(name, module) != module:
                raise InternalError(f"view: {name} is defined in {owners[name]} and in {module}")
    return "\n".join(_short(_EXPORT.sub("", _IMPORT.sub("", text))) for text in order.values())


def _short(text: str) -> str:
    """Return a module without indents, comment lines, empty lines, and spaces that part nothing: it travels into every notebook."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(_strip_spaces(line) for line in lines if line and not line.startswith(("//", "/**", "*")))


def _strip_spaces(line: str) -> str:
    """Return a line without the spaces around its punctuation; as it is where there may be nested templates, a regex or a comment."""
    return line if "/" in line or _NESTED.search(line) else _SPACED.sub(lambda found: found[1] or found[2], line)


def _add(module: str, order: dict[str, str]) -> None:
    if module in order:
        return
    text = _text(module)
    for imported in _IMPORT.findall(text):
        _add(posixpath.normpath(posixpath.join(posixpath.dirname(module), imported)), order)
    order[module] = text


@cache
def view_style() -> str:
    """Return the style sheet, without its comments and the ends of its lines."""
    return "".join(line.strip() for line in _COMMENT.sub("", _text(_STYLE)).splitlines())


def _text(name: str) -> str:
    return files("fluss_lab.explorer").joinpath("view", name).read_text(encoding="utf-8")
