"""What the tests of jobs share."""

import pytest

from fluss_lab.jobs import Jobs
from tests.unit.jobs.job_kit import SCRIPT_PROCESS, write_notebook


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path / "lab")


@pytest.fixture
def scripts(tmp_path):
    """Jobs whose notebooks are scripts: the parameter ``code``."""
    return Jobs(tmp_path / "lab", SCRIPT_PROCESS), write_notebook(tmp_path / "s.ipynb", 'code: str = ""')
