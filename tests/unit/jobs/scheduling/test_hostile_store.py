"""What somebody wrote into the store of jobs, past all checks of their entry, is refused when it is due."""

import json
from dataclasses import replace

import pytest

from tests.unit.jobs.job_kit import write_notebook
from tests.unit.jobs.test_lab_jobs import HOSTILE_NAMES
from tests.unit.jobs.test_notebook_library import HOSTILE as HOSTILE_PATHS
from tests.unit.jobs.test_notebook_parameters import HOSTILE as HOSTILE_PARAMETERS

pytestmark = pytest.mark.slow


def is_json(value):
    """Return whether the store can hold it at all: bytes and lone surrogates it cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return not (
        isinstance(value, dict) and any(isinstance(each, int) and abs(each) >= 1 << 63 for each in value.values())
    )


def refused(scene, job, task):
    """Let a job be due that somebody wrote into the store, past all checks of its entry; return its run."""
    scene.store.add_job(replace(job, task=task), replaces=True)
    scene.advance()
    scene.settle()
    (run, *_) = scene.store.runs()
    assert run.state == "failed"
    assert run.error.startswith("not started: ")
    assert run.started_ms is None
    assert not list(scene.lab.rglob("*.log"))
    return run


@pytest.mark.parametrize(
    "values", [each for each in HOSTILE_PARAMETERS if is_json(each)], ids=lambda values: repr(values)[:40]
)
def test_hostile_parameters_in_the_store_are_refused(scene, values):
    write_notebook(scene.notebook, 'n: int = 3  # 1 to 10\ntext: str = ""')
    job = scene.add()
    refused(scene, job, replace(job.task, parameters=values))


@pytest.mark.parametrize("path", [each for each in HOSTILE_PATHS if is_json(each)], ids=lambda path: repr(path)[:40])
def test_hostile_paths_in_the_store_are_refused(scene, monkeypatch, path):
    monkeypatch.chdir(scene.lab.parent)
    job = scene.add()
    refused(scene, job, replace(job.task, notebook=path))


@pytest.mark.parametrize("name", [each for each in HOSTILE_NAMES if is_json(each)])
def test_hostile_names_in_the_store_are_refused(scene, name):
    job = scene.add(name)
    before = {path for path in scene.lab.parent.rglob("*") if path.is_dir()}
    refused(scene, job, job.task)
    assert {path for path in scene.lab.parent.rglob("*") if path.is_dir()} == before


@pytest.mark.parametrize("secret", ["PATH", "LD_PRELOAD", "a=b", ""])
def test_hostile_secrets_in_the_store_are_refused(scene, secret):
    job = scene.add()
    assert "names of environment variables" in refused(scene, job, replace(job.task, secrets=(secret,))).error
