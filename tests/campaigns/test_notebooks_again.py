"""Each curated notebook on a lab that it has left behind before: run to its end, or killed in any of its cells.

``make campaign``; a notebook takes a minute, and each of its cells one more.
"""

import copy
import random
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError

from tests.notebooks.papermill_run import run_notebook
from tests.notebooks.test_curated import FOLDER, SAYS

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.slow]
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


@pytest.mark.parametrize("name", sorted(SAYS))
def test_a_notebook_runs_twice_on_one_lab(tmp_path, name):
    for number in range(2):
        run_notebook(FOLDER / f"{name}.ipynb", tmp_path / f"{number}.ipynb", lab_folder=str(tmp_path / "lab"))


@pytest.mark.parametrize("name", sorted(SAYS))
def test_a_notebook_runs_after_it_was_killed_in_each_cell(tmp_path, name, seed):
    """One lab lives through all of it; the order of the cells is random."""
    cells = code_cells(name)[1:]
    random.Random(seed).shuffle(cells)
    lab_folder = str(tmp_path / "lab")
    for cell in cells:
        with pytest.raises(DeadKernelError):
            run_notebook(killed_after(name, cell, tmp_path), tmp_path / f"killed-{cell}.ipynb", lab_folder=lab_folder)
        run_notebook(FOLDER / f"{name}.ipynb", tmp_path / f"whole-{cell}.ipynb", lab_folder=lab_folder)
