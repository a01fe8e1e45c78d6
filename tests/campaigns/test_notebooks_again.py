"""Each curated notebook on a lab that it has left behind before: run to its end, or killed in any of its cells.

``make campaign``; a notebook takes half a minute, and each of its cells as much again. ``FLUSS_LAB_KILLS``: at most so many cells of
a notebook, all without it.
"""

import copy
import os
import random
import re
import time
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError

from tests.notebooks.papermill_run import outputs_of, run_notebook, text_of, text_shown
from tests.notebooks.test_curated import FOLDER, NOTEBOOKS, SAYS

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.slow]
NUMBERED = [name for name in NOTEBOOKS if name[0].isdigit()]
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def code_cells(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return [number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def killed_after(name, cell, folder):
    """Return a copy of a notebook whose kernel is killed when a cell is done."""
    notebook = copy.deepcopy(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))
    notebook.cells = [*notebook.cells[: cell + 1], nbformat.v4.new_code_cell(KILL)]
    path = Path(folder) / f"{name}-killed.ipynb"
    nbformat.write(notebook, path)
    return path


def run_whole(name, output, lab_folder):
    """Run a notebook to its end; it says what it says on a new lab."""
    started = time.monotonic()
    executed = run_notebook(FOLDER / f"{name}.ipynb", output, lab_folder=lab_folder)
    text = text_shown(executed)
    assert not [pattern for pattern in SAYS.get(name, []) if not re.search(pattern, text, re.MULTILINE)], text
    assert not [text_of(each) for each in outputs_of(executed) if each.get("name") == "stderr"]
    print(f"{output.stem}: {time.monotonic() - started:.0f} s", flush=True)


@pytest.mark.parametrize("name", NUMBERED)
def test_a_notebook_runs_twice_on_one_lab(tmp_path, name):
    for number in range(2):
        run_whole(name, tmp_path / f"{name}-{number}.ipynb", str(tmp_path / "lab"))


@pytest.mark.parametrize("name", NUMBERED)
def test_a_notebook_runs_after_it_was_killed_in_each_cell(tmp_path, name, seed):
    """One lab lives through all of it; the order of the cells is random."""
    cells = code_cells(name)[1:]
    random.Random(seed).shuffle(cells)
    lab_folder = str(tmp_path / "lab")
    for cell in cells[: int(os.environ.get("FLUSS_LAB_KILLS") or len(cells))]:
        with pytest.raises(DeadKernelError):
            run_notebook(killed_after(name, cell, tmp_path), tmp_path / f"killed-{cell}.ipynb", lab_folder=lab_folder)
        run_whole(name, tmp_path / f"{name}-after-{cell}.ipynb", lab_folder)
