"""The README's code, run as it stands in an empty folder, and what it calls."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.laws import ROOT
from tests.notebooks.readme_run import code_blocks, fluss_lab_lines

README = ROOT / "README.md"


@pytest.mark.spark
@pytest.mark.slow
def test_every_code_line_runs(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    # Of this run's Sparks: in a cache of its own it would make another archive of Spark's classes, for half a minute.
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.notebooks.readme_run", README],
        cwd=tmp_path, env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    assert done.stdout.count("\n$ fluss-lab ") == len(fluss_lab_lines(README.read_text())) > 5
    tail = done.stdout.partition("$ fluss-lab tail")[2].partition("$ fluss-lab")[0]
    assert re.search(r"\+A +2013-01 ", tail), f"tail shows what the blocks wrote: {tail}"


def test_a_block_is_where_the_text_has_it():
    text = "a\n\n```python\nx = 1\n```\n\n```sh\nmake demo\nfluss-lab up  # now\n```\n```python\ny\n```\n"
    assert list(code_blocks(text, "python")) == [(3, "x = 1\n"), (11, "y\n")]
    assert fluss_lab_lines(text) == [["up"]]


def test_what_make_is_asked_for_is_there():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = {
        shlex.split(line, comments=True)[1]
        for path in (README, ROOT / "CONTRIBUTING.md")
        for _, block in code_blocks(path.read_text(), "sh")
        for line in block.splitlines()
        if line.startswith("make ")
    }
    assert asked > {"test"}
    assert asked <= set(targets)


def test_the_code_is_formatted(tmp_path):
    path = tmp_path / "block.py"
    for line, block in code_blocks(README.read_text(), "python"):
        path.write_text(block)
        command = [sys.executable, "-m", "ruff", "format", "--config", ROOT / "pyproject.toml", "--diff", path]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"README.md, line {line}:\n{done.stdout}{done.stderr}"
