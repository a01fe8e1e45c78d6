"""The tests of the tests: each safety check is taken out, and a test turns red."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS, PROMISES

ROOT = Path(__file__).parents[2]
#: The slowest set of tests takes 15 s on two busy cores; a mutant that hangs is a mutant badly made.
TIMEOUT_S = 100
#: What of the project the tests need.
PARTS = ("fluss_lab", "tests", "tools", "pyproject.toml")
#: Words of a mutant that is no program, rather than one without a check.
NONSENSE = re.compile(r"\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError)\b")


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended."""

    code: int
    passed: int
    failed: int
    output: str


class Workshop:
    """Copies of the project in which mutants are made, all of the same moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._controls: dict[tuple[str, ...], Outcome] = {}
        self._original = folder / "original"
        self._original.mkdir()
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, self._original / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, self._original / part)

    def control(self, tests: tuple[str, ...]) -> Outcome:
        """Run tests on the untouched copy, once for each set of them."""
        if tests not in self._controls:
            self._controls[tests] = self._run(self._original, tests)
        return self._controls[tests]

    def mutated(self, mutant: Mutant) -> Outcome:
        """Run a mutant's tests on a copy with the mutant."""
        copy = self._folder / mutant.name
        shutil.copytree(self._original, copy, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            path = copy / mutant.file
            path.write_text(mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
            return self._run(copy, mutant.tests)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _run(self, copy: Path, tests: tuple[str, ...]) -> Outcome:
        report = copy / "report.xml"
        # Short tracebacks: long ones quote whole functions, and `except ImportError` in one of them is no `NONSENSE`.
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            "-m",
            "",
            f"--junitxml={report}",
        ]
        # The copy goes before an installed fluss_lab; servers that tests start as processes inherit it.
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("FLUSS_LAB_SEED", "20130101")
        environment.pop("PYTEST_ADDOPTS", None)
        process = subprocess.Popen(
            [*words, f"--basetemp={copy}/tmp", *tests], cwd=copy, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = f"no end within {TIMEOUT_S} s:\n{process.communicate()[0]}"
        if not report.exists():
            return Outcome(process.returncode, 0, 0, output)
        suite = ElementTree.parse(report).getroot().find("testsuite")
        assert suite is not None
        total, failed, errors = (int(suite.attrib[name]) for name in ("tests", "failures", "errors"))
        return Outcome(process.returncode, total - failed - errors, failed, output)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("mutants"))


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_safety_check_that_is_taken_out_turns_a_test_red(workshop: Workshop, mutant: Mutant) -> None:
    control = workshop.control(mutant.tests)
    assert (control.code, control.failed) == (0, 0), f"red without the mutant:\n{control.output}"
    assert control.passed, f"no test was run:\n{control.output}"
    found = workshop.mutated(mutant)
    assert found.code != 0, f"nobody noticed the mutant {mutant.name}:\n{found.output}"
    # 1: tests were collected and run, and some failed.
    assert (found.code, found.failed > 0) == (1, True), f"red for another reason:\n{found.output}"
    assert NONSENSE.search(found.output) is None, f"the mutant is no program:\n{found.output}"


# -- the table stays true: these run with all other tests ---------------------------------------------------------------


@functools.cache
def _source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse(_source(file))


@functools.cache
def _tests_of(file: str) -> frozenset[str]:
    """Return the names of a file's tests and classes, and of the tests that a class has, by ``Class::test``."""
    found = set()
    for each in ast.parse(_source(file)).body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found.add(each.name)
        if isinstance(each, ast.ClassDef):
            own = {inner.name for inner in each.body if isinstance(inner, ast.FunctionDef)}
            found |= {f"{each.name}::{name}" for name in own | (_inherited() if each.bases else frozenset())}
    return frozenset(found)


@functools.cache
def _inherited() -> frozenset[str]:
    """Return the names of all tests of the suites that classes inherit."""
    suites = (ROOT / "fluss_lab" / "testing").rglob("*.py")
    nodes = (node for path in suites for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def _is_same(one: object, other: object) -> bool:
    """Return whether two pieces of programs say the same, whatever their layout and comments."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        return all(_is_same(getattr(one, name), getattr(other, name)) for name in one._fields)
    if isinstance(one, list):
        assert isinstance(other, list)
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other


def _misfits(mutant: Mutant) -> Iterator[str]:
    """Yield what is wrong with a mutant beside the code of today."""
    if not mutant.tests:
        yield f"{mutant.name}: it has no tests"
    for node in mutant.tests:
        file, _, name = node.partition("::")
        if not (ROOT / file).is_file() or name.partition("[")[0] not in _tests_of(file):
            yield f"{mutant.name}: {node} is gone"
    try:
        changed = ast.parse(mutant.applied(_source(mutant.file)))
    except (ValueError, SyntaxError, OSError) as error:
        yield f"{mutant.name}: {error}"
    else:
        if _is_same(changed, _tree(mutant.file)):
            yield f"{mutant.name}: it changes nothing"


def test_mutants_fit_the_code() -> None:
    # One test for all: as a test each, what pytest does around them took longer than they.
    misfits = [misfit for mutant in MUTANTS for misfit in _misfits(mutant)]
    assert not misfits, "\n".join(misfits)


def test_a_mutant_that_does_not_fit_the_code_is_found() -> None:
    fit = MUTANTS[0]
    unfit = {
        "has no tests": replace(fit, tests=()),
        "is gone": replace(fit, tests=(fit.tests[0] + "_no_more",)),
        "no_such_test.py::t is gone": replace(fit, tests=("tests/no_such_test.py::t",)),
        "expected its text once": replace(fit, text=fit.text + " no more"),
        "unmatched": replace(fit, replacement="    )"),
        "No such file": replace(fit, file="fluss_lab/no_such_module.py"),
        "it changes nothing": replace(fit, replacement=fit.text + "  # no program"),
    }
    assert list(_misfits(fit)) == []
    assert [len(list(_misfits(mutant))) for mutant in unfit.values()] == [1] * len(unfit)
    assert all(words in next(_misfits(mutant)) for words, mutant in unfit.items())


def test_mutants_are_distinct_and_break_every_promise() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    assert {mutant.promise for mutant in MUTANTS} == set(PROMISES)


def test_a_mutant_whose_text_is_not_there_once_is_refused() -> None:
    mutant = Mutant("m", "P1", "f.py", "x = 1", "x = 2", ("t",))
    assert mutant.applied("x = 1\n") == "x = 2\n"
    for source in ("", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match="expected its text once"):
            mutant.applied(source)
