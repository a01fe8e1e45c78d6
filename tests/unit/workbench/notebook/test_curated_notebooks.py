"""The curated notebooks' copies: what is missing comes, what is there stays."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.workbench.notebook.curated_notebooks import WELCOME, copy_notebooks, notebooks_folder
from tests.unit.cli.test_commands import run

pytestmark = pytest.mark.slow

SETTINGS = Path(__file__).parents[4] / "fluss_lab" / "workbench" / "notebook" / "jupyterlab_settings" / "overrides.json"


def test_what_is_missing_is_copied_and_what_is_there_stays(tmp_path):
    folder = tmp_path / "new" / "mine"
    copies = copy_notebooks(folder)
    shipped = {path.relative_to(notebooks_folder()) for path in notebooks_folder().rglob("*.ipynb")}
    assert {path.relative_to(folder) for path in copies} == shipped - {
        p for p in shipped if "ipynb_checkpoints" in str(p)
    }
    assert folder / "jobs" / "tier_and_maintain.ipynb" in copies
    (folder / WELCOME).write_text("mine")
    (folder / "01_quickstart.ipynb").unlink()
    assert copy_notebooks(folder) == [folder / "01_quickstart.ipynb"]
    assert (folder / WELCOME).read_text() == "mine"
    assert copy_notebooks(notebooks_folder()) == []


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="expected a folder for notebooks, found a file"):
        copy_notebooks(tmp_path / "file")


def test_the_command_starts_jupyterlab_on_copies(tmp_path):
    done = run("lab", tmp_path / "mine", "--", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, version("jupyterlab"))
    assert (tmp_path / "mine" / WELCOME).is_file()
    assert f"copied {WELCOME}" in done.stderr


def test_settings_are_those_that_jupyterlab_knows():
    """A name that JupyterLab does not know would be passed over without a word."""
    import jupyterlab.commands

    app = Path(jupyterlab.commands.get_app_dir())
    for plugin, settings in json.loads(SETTINGS.read_text()).items():
        package, name = plugin.split(":")
        # JupyterLab's own, and those of an extension that another package brings.
        folders = (app / "schemas", app.parent / "labextensions" / package / "schemas")
        schema = next(path for each in folders if (path := each / package / f"{name}.json").exists())
        known = json.loads(schema.read_text())["properties"]
        assert set(settings) <= set(known)
