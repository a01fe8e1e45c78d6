"""Notebooks are files of this machine, found by path or by name in known places; nothing else is."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fluss_lab.errors import FlussError, InvalidRequestError, NotFoundError
from fluss_lab.jobs.notebook_library import find_notebook, read_notebook
from tests.architecture.laws import ROOT
from tests.unit.jobs.job_kit import write_notebook


def test_by_name_in_the_labs_folder_and_in_the_checkout(tmp_path):
    mine = write_notebook(tmp_path / "lab" / "notebooks" / "jobs" / "mine.ipynb")
    assert find_notebook("jobs/mine", tmp_path / "lab") == mine
    assert find_notebook("jobs/mine.ipynb", tmp_path / "lab") == mine
    assert find_notebook("01_quickstart", tmp_path / "lab") == ROOT / "notebooks" / "01_quickstart.ipynb"


def test_by_path_also_from_the_home(tmp_path, monkeypatch):
    path = write_notebook(tmp_path / "a {b} c" / "x.ipynb")
    assert find_notebook(path, tmp_path) == path
    assert find_notebook(str(path), tmp_path) == path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_notebook("~/a {b} c/x.ipynb", tmp_path) == path
    monkeypatch.chdir(tmp_path / "a {b} c")
    assert find_notebook("x.ipynb", tmp_path) == path


#: Also used at the other entries.
HOSTILE = [
    "", " ", ".", "..", "/", "~", "-", "a\0b", "a\nb", "http://127.0.0.1:1/x.ipynb", "https://x/y.ipynb", "s3://bucket/x.ipynb",
    "file:///etc/passwd", "gs://a/b.ipynb", "abs://x.blob.core.windows.net/x.ipynb", "adl://x/y.ipynb", "hdfs://x/y.ipynb",
    "github.com:x/y.ipynb", "data:text/plain,x", "../../../etc/passwd", "/etc/passwd", "/dev/stdin", "/proc/self/environ",
    "notebooks/../../escape", "x" * 5000, "{pm.__class__}", "jobs/../../../tmp/x", "~nobody-there/x.ipynb", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_notebook_here_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidRequestError, NotFoundError)) as refused:
        find_notebook(name, tmp_path / "lab")
    assert len(str(refused.value)) < 600


def test_a_name_that_is_no_text_is_said_to_be_that(tmp_path, monkeypatch):
    """Bytes of another encoding: it was said not to end in .ipynb, and was a raw error where a link or a folder has them."""
    named = os.path.join(os.fsencode(tmp_path), b"caf\xe9.ipynb")
    os.replace(write_notebook(tmp_path / "x.ipynb"), named)
    (tmp_path / "link.ipynb").symlink_to(os.fsdecode(named))
    folder = os.path.join(os.fsencode(tmp_path), b"d\xe9")
    os.mkdir(folder)
    shutil.copy(named, os.path.join(folder, b"y.ipynb"))
    monkeypatch.chdir(os.fsdecode(folder))
    for name in (os.fsdecode(named), Path(os.fsdecode(named)), tmp_path / "link.ipynb", "y.ipynb"):
        with pytest.raises(InvalidRequestError, match="it has bytes that are no text in utf-8; rename it") as refused:
            find_notebook(name, tmp_path / "lab")
        str(refused.value).encode()


def test_a_link_leads_out_of_no_place(tmp_path):
    write_notebook(tmp_path / "outside.ipynb")
    (tmp_path / "lab" / "notebooks").mkdir(parents=True)
    (tmp_path / "lab" / "notebooks" / "link.ipynb").symlink_to(tmp_path / "outside.ipynb")
    with pytest.raises(NotFoundError):
        find_notebook("link", tmp_path / "lab")


def test_a_pipe_or_folder_is_no_notebook(tmp_path):
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    for name in ("pipe.ipynb", "folder.ipynb"):
        with pytest.raises(NotFoundError):
            find_notebook(tmp_path / name, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "1", "{}", '{"cells": {}, "nbformat": 4, "nbformat_minor": 5}', '{"cells": [], "nbformat": 3, "nbformat_minor": 5}', "[" * 100_000,
        '{"cells": [1], "nbformat": 4, "nbformat_minor": 5}', '{"cells": [{"cell_type": "code"}], "nbformat": 4, "nbformat_minor": 5}',
        '{"cells": [{"cell_type": "code", "source": [1]}], "nbformat": 4, "nbformat_minor": 5}',
        '{"cells": [{"cell_type": "code", "source": "", "metadata": {"tags": "x"}}], "nbformat": 4, "nbformat_minor": 5}',
        '{"cells": [{"cell_type": "code", "source": "", "metadata": {"tags": null}}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        '{"cells": [{"cell_type": "code", "source": ""}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', '{"cells": [], "nbformat": 4, "nbformat_minor": 5}',
        '{"cells": [{"cell_type": "code", "source": "", "metadata": {}, "outputs": null}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "bash", "language": "bash"}}}),
        json.dumps({"cells": [], "nbformat": 4, "metadata": {}}), json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": "5", "metadata": {}}),
        json.dumps({"cells": [], "nbformat": 4.0, "nbformat_minor": 5, "metadata": {}}),
        json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {"language_info": {"name": "R"}}}),
    ],
)  # fmt: skip
def test_what_is_no_python_notebook_is_refused(tmp_path, text):
    (tmp_path / "x.ipynb").write_text(text)
    with pytest.raises(InvalidRequestError, match=r"x\.ipynb"):
        read_notebook(tmp_path / "x.ipynb")


def test_half_of_a_character_is_refused_before_it_runs_but_in_outputs(tmp_path):
    """An editor that cuts an emoji leaves it; the run failed when it wrote its output."""
    half = json.loads(r'"print(\ud83d)"')
    output = {"output_type": "stream", "name": "stdout", "text": half}
    path = write_notebook(tmp_path / "x.ipynb", cells=["1"])
    content = json.loads(path.read_text())
    content["cells"][1]["outputs"] = [output]
    path.write_text(json.dumps(content))
    assert read_notebook(path).cells[1]["source"] == "1"
    for place in (content["cells"][1], content["metadata"]):
        kept = dict(place)
        place["source"] = half
        path.write_text(json.dumps(content))
        with pytest.raises(
            InvalidRequestError, match=r"x\.ipynb: a cell or its metadata cannot be written: it holds half"
        ):
            read_notebook(path)
        place.clear()
        place.update(kept)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "x.ipynb").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FlussError, match="cannot be read"):
        read_notebook(tmp_path / "x.ipynb")
    with pytest.raises(NotFoundError):
        read_notebook(tmp_path / "none.ipynb")
