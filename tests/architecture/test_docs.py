"""The documents are true where that can be looked up: files, folders, links and errors that they name."""

import inspect
import re

import pytest

from fluss_lab import errors
from tests.architecture import laws
from tests.mutants.mutants import PROMISES

DOCS = sorted([*laws.ROOT.glob("*.md"), *(laws.ROOT / "docs").glob("*.md"), laws.ROOT / "tests" / "README.md"])
README_LINES_MAX = 200
_TEXTS = (".py", ".md", ".ipynb", ".proto", ".js", ".css")
_OUTSIDE = re.compile(
    r"\b(?:design|spec)(?:\.md|,? section)\b|\bdetails\.md|\bissue #?\d|\bof the issue\b|(?<!\w)facts/|§ ?\d",
    re.IGNORECASE,
)
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


def test_every_promise_is_defined_with_tests_that_try_to_break_it():
    text = (laws.ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (P\d+) \| .+? \| (.+) \|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == list(PROMISES)
    assert [name for name, tests in rows if not re.search(r"`tests/\S+/test_\w+\.py`", tests)] == []


def test_no_text_refers_to_documents_outside_the_repository():
    folders = ("fluss_lab", "tests", "docs", "benchmarks", "tools", "notebooks", "proto")
    texts = [each for folder in folders for each in (laws.ROOT / folder).rglob("*.*") if each.suffix in _TEXTS]
    assert len(texts) > 500
    found = {
        f"{path.relative_to(laws.ROOT)}: {match[0]}"
        for path in [*texts, *laws.ROOT.glob("*.md")]
        if path.name != "test_docs.py"
        for match in _OUTSIDE.finditer(path.read_text())
    }
    assert found == set()


def test_a_text_that_refers_to_the_outside_is_caught():
    for text in ("as the design, section 6, says", "see details.md", "(facts/spark.md)", "spec section 4", "issue 11"):
        assert _OUTSIDE.search(text), text
    assert not _OUTSIDE.search("by design; the issue; `docs/spark.md`; artifacts/")


def test_the_readme_is_short():
    assert len((laws.ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX
