"""Tables from the shell: what is printed is what is there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster


def run(*arguments: str | Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", "fluss_lab.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A running lab with a lake-enabled table of three rows, in a folder with a space in its name."""
    path = tmp_path_factory.mktemp("cli") / "my lab"
    with EmbeddedCluster(path) as running:
        admin = running.connection.admin()
        admin.create_database("nyc")
        enabled = {"table.datalake.enabled": True}
        admin.create_table(
            TablePath("nyc", "flights"), make_descriptor({"a": "bigint", "s": "string"}, properties=enabled)
        )
        with running.connection.append_writer("nyc.flights") as writer:
            writer.append([{"a": 1, "s": "ä"}, {"a": 2, "s": None}, {"a": 3, "s": "c"}]).result()
        yield path


def test_tables_and_show(folder):
    assert run("tables", "-f", folder).stdout == "nyc.flights\n"
    assert run("tables", "nyc", "-f", folder).stdout == "nyc.flights\n"
    shown = run("show", "nyc.flights", "-f", folder).stdout
    for expected in (
        "log table",
        "BIGINT",
        "table.datalake.enabled",
        "buckets of nyc.flights",
        "snapshots of nyc.flights",
    ):
        assert expected in shown


def test_tail_prints_records_as_json(folder):
    lines = run("tail", "nyc.flights", "--from", "earliest", "--rows", "2", "-f", folder).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"_bucket": 0, "_log_offset": 0, "a": 1, "s": "ä"},
        {"_bucket": 0, "_log_offset": 1, "a": 2, "s": None},
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nyc.none"), "nyc.none"),
        (("tail", "flights"), "database.table"),
        (("tables", "none"), "none"),
        (("tier", "--continuous", "nyc.flights"), "leave the paths out"),
        (("tier", "--for", "1s"), "belong to tier --continuous"),
        (("tier", "--continuous", "--for", "soon"), "expected a duration"),
        (("tier", "--spark", "no value"), "expected KEY=VALUE"),
        (("run", "none.ipynb"), "no such file"),
    ],
)
def test_errors_are_one_line(folder, arguments, says):
    where = () if arguments[0] == "run" else ("-f", folder)
    failed = run(*arguments, *where)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert says in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert "Traceback" not in failed.stderr
