"""The places where a notebook is found by name, and its text."""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import InvalidRequestError, NotFoundError
from fluss_lab.model.named_paths import name_fault

SUFFIX: Final = ".ipynb"
#: A stored notebook with pictures has a few megabytes.
NOTEBOOK_BYTES_MAX: Final = 64 << 20
#: Of a lab's folder, and of a checkout.
NOTEBOOKS_FOLDER: Final = "notebooks"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CHECKOUT: Final = Path(__file__).parents[2]
#: Under the environment's data folder, as `pyproject.toml` says.
_INSTALLED: Final = Path("share") / "fluss-lab" / NOTEBOOKS_FOLDER


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook as it was when it was read: what is checked is what runs.

    Attributes:
        path: Its file, absolute and without links.
        text: Its JSON, of format 4.
    """

    path: Path
    text: str

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Return its cells, in the form of nbformat 4."""
        found: list[dict[str, Any]] = json.loads(self.text)["cells"]
        return found


def find_notebook(name: str | Path, folder: Path) -> Path:
    """Return the file of a notebook.

    Args:
        name: A path to an existing ``.ipynb`` file (``~`` is the home), or a name like ``01_quickstart`` or
            ``jobs/tier_and_maintain``: then it is looked for in ``notebooks`` of the lab's folder, then among the
            curated ones.
        folder: The lab's folder.

    Raises:
        InvalidRequestError: The name has a URL scheme, or characters that no path has.
        NotFoundError: There is no such notebook; the text has the places.
    """
    text = str(name)
    shown = repr(text if len(text) <= 140 else text[:140] + "...")
    if text.strip() and (fault := name_fault(text)) is not None:
        raise InvalidRequestError(f"notebook {shown}: {fault}")
    if not text.strip() or not text.isprintable():
        raise InvalidRequestError(f"notebook {shown}: expected a name, or the path of a file that ends in {SUFFIX}")
    if _SCHEME.match(text):
        raise InvalidRequestError(f"notebook {shown}: expected a file of this machine, found a URL; download it first")
    places = [folder / NOTEBOOKS_FOLDER, *shipped_places()]
    try:
        path = Path(text).expanduser()
        if path.suffix == SUFFIX and path.is_file():
            found: Path | None = path.resolve()
        else:
            found = None if path.is_absolute() else _find_named(path, places)
    except (OSError, RuntimeError) as error:
        raise InvalidRequestError(f"notebook {shown}: {getattr(error, 'strerror', None) or error}") from None
    if found is None:
        looked = ", ".join(str(place) for place in places)
        raise NotFoundError(f"notebook {shown}: no such {SUFFIX} file, and none of that name in {looked}")
    if (fault := name_fault(str(found))) is not None:  # of a folder above it, or of what a link leads to
        raise InvalidRequestError(f"notebook {shown}: its file is {str(found)!r}: {fault}")
    return found


def shipped_places() -> list[Path]:
    """Return the folders with the curated notebooks: of the checkout that this package is run from, else as installed."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        return [_CHECKOUT / NOTEBOOKS_FOLDER]
    return [installed] if (installed := Path(sysconfig.get_path("data")) / _INSTALLED).is_dir() else []


def _find_named(name: Path, places: Iterable[Path]) -> Path | None:
    if not name.name or ".." in name.parts:
        return None
    relative = name if name.suffix == SUFFIX else name.with_name(name.name + SUFFIX)
    for place in places:
        path = (place / relative).resolve()
        # A link in a place may lead anywhere.
        if path.is_file() and path.is_relative_to(place.resolve()):
            return path
    return None


def read_notebook(path: Path) -> Notebook:
    """Read a notebook.

    Raises:
        NotFoundError: The file does not exist.
        InvalidRequestError: It is no notebook of format 4, too large, or not for Python.
    """
    try:
        if path.suffix != SUFFIX or not path.is_absolute():
            raise InvalidRequestError(f"notebook {path}: expected the absolute path of an {SUFFIX} file")
        if not path.is_file():
            raise NotFoundError(f"notebook {path}: the file does not exist")
        if path.stat().st_size > NOTEBOOK_BYTES_MAX:
            raise InvalidRequestError(f"notebook {path}: larger than {NOTEBOOK_BYTES_MAX >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"notebook {path}: it cannot be read: {error}") from None
    _check_content(path, text)
    return Notebook(path, text)


def _check_content(path: Path, text: str) -> None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"notebook {path}: it is not JSON: {error}") from None
    if not _is_notebook(content):
        raise InvalidRequestError(f"notebook {path}: expected a notebook of format 4; open and save it in JupyterLab")
    cells, metadata = content["cells"], content["metadata"]
    try:
        # Not of outputs, which a run leaves out.
        json.dumps([metadata, *({**cell, "outputs": []} for cell in cells)], ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        what = "half of a character, as of an emoji that was cut" if isinstance(error, UnicodeError) else error
        raise InvalidRequestError(
            f"notebook {path}: a cell or its metadata cannot be written: it holds {what}"
        ) from None
    language = _member(_member(metadata, "kernelspec"), "language") or _member(
        _member(metadata, "language_info"), "name"
    )
    if language not in {None, "python"}:
        raise InvalidRequestError(f"notebook {path}: expected one for Python, found one for {language!r}")


def _is_notebook(content: Any) -> bool:
    """Return whether it is a notebook of format 4, whichever minor one: without a whole number for that nothing reads it."""
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        return False
    numbers, cells = (content.get("nbformat"), content.get("nbformat_minor")), content.get("cells")
    is_format_4 = numbers[0] == 4 and all(type(number) is int for number in numbers)
    return is_format_4 and isinstance(cells, list) and all(_is_cell(cell) for cell in cells)


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict):
        return False
    source = cell.get("source")
    is_text = isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))
    metadata = cell.get("metadata")
    is_whole = isinstance(metadata, dict) and isinstance(metadata.get("tags", []), list)
    has_outputs = isinstance(cell.get("outputs", []), list)
    return isinstance(cell.get("cell_type"), str) and is_text and is_whole and has_outputs


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
