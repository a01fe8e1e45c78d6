"""Completion: its scripts, and tables of a lab whose server runs; nothing is started for it."""

import shutil
import subprocess

import pytest
from click.shell_completion import ShellComplete

from fluss_lab.cli.commands import commands
from fluss_lab.cli.table_argument import table_paths
from fluss_lab.server import cluster
from tests.unit.cli.shell_kit import assert_refused, call

TABLES = ["nyc.empty", "nyc.flights", "nyc.planes"]


def completed(words, incomplete):
    found = ShellComplete(commands, {}, "fluss-lab", "_FLUSS_LAB_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_the_shell(shell, tmp_path):
    shown = call("completion", shell)
    assert (shown.code, shown.err) == (0, "")
    assert f"_FLUSS_LAB_COMPLETE={shell}_complete" in shown.out
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(shown.out)
        subprocess.run([program, "-n", tmp_path / "script"], check=True)


def test_an_unknown_shell_is_refused():
    assert_refused(call("completion", "tcsh"), 2)


def test_tables_are_completed_where_a_server_runs(shell_lab):
    folder = str(shell_lab.folder)
    for name in ("show", "head", "tail", "changelog", "diff", "seek", "export", "tier"):
        assert completed([name, "-f", folder], "nyc.") == TABLES, name
    assert completed(["head", "-f", folder], "nyc.f") == ["nyc.flights"]
    assert completed(["load", "-f", folder, "orders.csv"], "nyc.p") == ["nyc.planes"]
    assert completed([], "he") == ["head"]
    assert completed(["head"], "--wh") == ["--where"]


def test_completion_starts_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def started(*_args, **_kwargs):
        raise AssertionError("a server was started")

    monkeypatch.setattr(cluster, "ensure_server", started)
    monkeypatch.setattr(cluster, "start_server", started)
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "none", tmp_path, tmp_path / "file", tmp_path / "a\0b"):
        assert table_paths(folder) == []
    assert completed(["head"], "") == []
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
