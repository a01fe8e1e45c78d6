"""The README's code as it stands in the text, and what it calls; it is run in `test_curated.py`."""

import re
import shlex
import subprocess
import sys

from tests.architecture.laws import ROOT
from tests.notebooks.readme_run import code_blocks, fluss_lab_lines

README = ROOT / "README.md"


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
