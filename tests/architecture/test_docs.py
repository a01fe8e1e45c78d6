"""The documents are true where that can be looked up: files, folders, links and errors that they name."""

import inspect
import re

import pytest

from fluss_lab import errors
from tests.architecture import laws

DOCS = sorted([*laws.ROOT.glob("*.md"), *(laws.ROOT / "docs").glob("*.md"), laws.ROOT / "tests" / "README.md"])
README_LINES_MAX = 200
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
_FILE = re.compile(r"`((?:fluss_lab|tests|proto|docs|[a-z_]+(?:/[a-z_]+)*)?/?[a-z_]+\.(?:py|proto|md))`")
_FOLDER = re.compile(r"`((?:fluss_lab|tests)/[a-z_/]+)`")


def _missing(path):
    text = path.read_text()
    stands = {
        each.relative_to(laws.ROOT).as_posix()
        for each in laws.ROOT.glob("[!.]*/**/*")
        if "__pycache__" not in each.parts
    }
    for link in _LINK.findall(text):
        if not (path.parent / link).exists():
            yield f"{path.name}: link to {link}"
    for name in _FILE.findall(text):
        # The file alone is enough where its folder was named just before.
        if not any(each == name or each.endswith(f"/{name}") for each in stands | {doc.name for doc in DOCS}):
            yield f"{path.name}: file {name}"
    for name in _FOLDER.findall(text):
        if name.rstrip("/") not in stands:
            yield f"{path.name}: folder {name}"


@pytest.mark.parametrize("path", DOCS, ids=[path.relative_to(laws.ROOT).as_posix() for path in DOCS])
def test_what_a_document_names_is_there(path):
    assert list(_missing(path)) == []


def test_a_document_that_names_what_is_not_there_is_caught(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "[a](nowhere.md) `fluss_lab/read/nothing.py` `nothing_here.py` `fluss_lab/attic` `fluss_lab/errors.py`"
    )
    assert len(list(_missing(path))) == 4


def test_every_error_has_its_remedy():
    named = set(re.findall(r"^\| `(\w+)` \|", (laws.ROOT / "docs" / "operations.md").read_text(), re.MULTILINE))
    known = {
        name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, errors.FlussError)
    }
    assert named == known


def test_every_room_is_on_the_map():
    text = (laws.ROOT / "docs" / "architecture.md").read_text()
    rooms = {
        module.removeprefix("fluss_lab.").replace(".", "/")
        for module, _, package in laws.modules("fluss_lab")
        if package
    }
    assert [room for room in sorted(rooms - {"fluss_lab"}) if f"`{room}`" not in text] == []


def test_the_readme_is_short():
    assert len((laws.ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX
