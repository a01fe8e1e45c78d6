"""The curated notebooks, each run once by papermill, and what its cells show.

They run in one kernel, one after another: half of the time would be the start of kernels and Sparks. The numbered ones in kernels of
their own: the quickstart's test, and `tests/campaigns/test_notebooks_again.py`.
"""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest

from fluss_lab.workbench import Lab
from tests.notebooks.papermill_run import outputs_of, summary_of, text_of, text_shown
from tests.notebooks.readme_run import fluss_lab_lines
from tests.notebooks.shared_kernel import SharedKernel
from tests.unit.jobs.job_kit import write_notebook

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("[0-9a-z]*.ipynb"))
CODE_LINES_MAX = 10

#: What the cells of a notebook say, as patterns, each at least once.
SAYS = {
    "00_welcome": [r"hello"],
    "02_tables_and_tiering": [r"([\d,]+) planes = 3,322 less (\d+): True"],
    "03_union_read_and_time_travel": [
        r"168,388 rows then, 336,776 now; all of them: True",
        r"168,388 rows in the snapshot, 168,388 at its time",
        r"InvalidTimestampError - ",
        r"^336776$",
    ],
    "04_changelog_replay": [
        r"the fold of the log is the table at 12 of 12 snapshots",
        r"([\d,]{6,}) old images, 0 of them not what was written before",
        r"2 buckets \(2 lake\)",
    ],
    "05_streaming": [
        r"killed with [\d,]+ rows written",
        r"([\d,]+) late flights, \1 in the sink, 0 of them twice",
        r"30,000 flights counted of 30,000",
    ],
    "06_lookup_join": [
        r"custom shuffle: BucketPartitioner",
        r"the same: True",
        r"each batch has what the one before it wrote: True",
    ],
    "07_maintenance": [r"the rows are the same: True", r"gone: True"],
    "08_operations": [r"lag: 0 records", r"30,000 rows, 30,000 different: True"],
    "09_your_own_data": [r"336,776 rows", r"29,425 flights in July, as pyiceberg reads it; 29,425 as we do"],
}

#: Parameters beside the folder; the defaults are run by `tests/campaigns/test_notebooks_again.py`.
PARAMETERS = {"02_tables_and_tiering": {"table": "nyc.named"}}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with SharedKernel(tmp_path_factory.mktemp("kernel")) as shared:
        yield shared


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAYS))
def test_a_notebook_shows_what_it_claims(kernel, tmp_path, name):
    """In a folder with a space in its name."""
    lab_folder = str(tmp_path / "a lab")
    executed = kernel.run(
        FOLDER / f"{name}.ipynb", tmp_path / "out.ipynb", lab_folder=lab_folder, **PARAMETERS.get(name, {})
    )
    text = text_shown(executed)
    missing = [pattern for pattern in SAYS[name] if not re.search(pattern, text, re.MULTILINE)]
    assert not missing, text
    noise = [text_of(each) for each in outputs_of(executed) if each.get("name") == "stderr"]
    assert not noise


@pytest.mark.spark
@pytest.mark.slow
def test_the_job_notebooks_run_again_and_again(kernel, tmp_path):
    """A table is tiered and reported; the second report has only what came after the first."""

    def run(name, number, **parameters):
        path, output = FOLDER / "jobs" / f"{name}.ipynb", tmp_path / f"{name}-{number}.ipynb"
        return summary_of(kernel.run(path, output, **parameters))

    lab_folder, reports = tmp_path / "lab", tmp_path / "reports"
    with Lab.open(lab_folder) as lab:
        lab.create_database("db")
        table = lab.create_table(
            "db.t", schema={"id": "bigint", "x": "string"}, primary_key=["id"],
            properties={"table.datalake.enabled": True},
        )  # fmt: skip
        changes = []
        for round_number in range(2):
            table.upsert([{"id": key, "x": f"{round_number}"} for key in range(round_number * 10, 40)])
            tiering = run("tier_and_maintain", round_number, lab_folder=str(lab_folder))
            assert (tiering["tables"], tiering["lag"]) == (1, 0)
            assert tiering["rows"] > 0
            arguments = {"table": "db.t", "report_folder": str(reports)}
            report = run("daily_change_report", round_number, lab_folder=str(lab_folder), **arguments)
            changes.append(report["changes"])
            assert Path(report["report"]).read_text().startswith("<!doctype html>")
        again = run("daily_change_report", 9, lab_folder=str(lab_folder), **arguments)
        idle = run("tier_and_maintain", 9, lab_folder=str(lab_folder))
        lab.drop_table("db.t")
        lab.create_table("db.t", schema={"id": "bigint"}).append([{"id": 1}])
        anew = run("daily_change_report", 10, lab_folder=str(lab_folder), **arguments)
    assert changes == [40, 2 * 30]  # new rows, then the images before and after of those that changed
    assert again["changes"] == 0, "the last report is where it begins, not the first"
    assert idle["rows"] == 0
    assert anew["changes"] == 1, "of another table of its path all of it"


_README_CELL = """
import os, sys
from pathlib import Path
os.chdir(folder)
os.environ |= {"HOME": folder, "XDG_CACHE_HOME": cache}
sys.path.insert(0, root)
from tests.notebooks.readme_run import run_readme
run_readme(Path(root) / "README.md")
"""


@pytest.mark.spark
@pytest.mark.slow
def test_every_code_line_of_the_readme_runs(kernel, tmp_path):
    """The last test of this kernel: it moves into an empty folder and home."""
    notebook = write_notebook(
        tmp_path / "readme.ipynb", 'folder: str = ""\nroot: str = ""\ncache: str = ""', [_README_CELL]
    )
    (tmp_path / "home").mkdir()
    # Of this run's Sparks: in a cache of its own it would make another archive of Spark's classes, for half a minute.
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = {"folder": str(tmp_path / "home"), "root": str(FOLDER.parent), "cache": str(cache)}
    text = text_shown(kernel.run(notebook, tmp_path / "out.ipynb", **places))
    assert text.count("\n$ fluss-lab ") == len(fluss_lab_lines((FOLDER.parent / "README.md").read_text())) > 5, text
    tail = text.partition("$ fluss-lab tail")[2].partition("$ fluss-lab")[0]
    assert re.search(r"\+A +2013-01 ", tail), f"tail shows what the blocks wrote: {tail}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_fit_to_be_kept(name):
    """No outputs, short cells, typed parameters, only public names, and a list of what to try."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count]
    assert not [cell.source for cell in code if len(cell.source.splitlines()) > CODE_LINES_MAX]
    assert notebook.cells[0].source.startswith("# ")
    parameters = [cell.source for cell in code if "parameters" in cell.metadata.get("tags", ())]
    assert len(parameters) == 1
    assert all(re.match(r"\w+: \w+ = \S", line) for line in parameters[0].splitlines()), parameters
    text = "\n".join(cell.source for cell in code)
    assert not re.search(r"fluss_lab\.(?!cli\b)\w+|\._(?!_)\w", text), "private or inner names"
    assert not re.search(r"https?://", text), "nothing is downloaded"


def test_the_welcome_lists_every_notebook():
    text = (FOLDER / "00_welcome.ipynb").read_text()
    listed = set(re.findall(r"\]\(([\w/]+)\.ipynb\)", text))
    assert listed == set(NOTEBOOKS) - {"00_welcome"}
    assert json.loads(text)["nbformat"] == 4
