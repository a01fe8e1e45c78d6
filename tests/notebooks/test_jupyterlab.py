"""Each notebook opened and run in a real JupyterLab in a headless browser without a network, in light and dark."""

import os
from pathlib import Path

import pytest

from tests.notebooks.jupyterlab_server import run_page
from tests.notebooks.test_curated import NOTEBOOKS

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("NOTEBOOK_PICTURES")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != "jobs/daily_change_report"])
def test_a_notebook_runs_without_a_network_or_an_error(lab_place, tmp_path, name, theme):
    url, _ = lab_place
    pictures = Path(PICTURES or tmp_path)
    found = run_page("jupyterlab_page", url, f"{name}.ipynb", theme, pictures / f"{Path(name).name}-{theme}.png")
    assert [cell["error"] for cell in found["cells"] if cell["error"]] == []
    assert all(cell["count"] for cell in found["cells"])
    assert {kind: found.get(kind) for kind in ("failed", "elsewhere", "console")} == dict.fromkeys(
        ("failed", "elsewhere", "console")
    )
    assert found["theme"] == theme, "JupyterLab follows the system"
    assert found["pop_ups"] == 0
