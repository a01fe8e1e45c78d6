"""A lab of several tablet servers, from a notebook and from a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fluss_lab as fl
from fluss_lab.server import cluster
from fluss_lab.server.process.server_process import wait_until_gone


def run(*arguments: str | Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fluss_lab.cli", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def test_a_lab_of_two_servers_is_opened_shown_and_opened_again_without_a_word_about_it(tmp_path):
    config = {"server.grace": "100ms"}
    with fl.Lab.open(tmp_path / "lab", tablet_servers=2, config=config) as lab:
        lab.create_database("d")
        table = lab.create_table("d.t", {"a": "int"}, buckets=2)
        table.append([{"a": number} for number in range(4)])
        table.append([{"a": number} for number in range(4, 8)])
        assert [row["leader"] for row in table.buckets()] == [0, 1]
        servers = list(lab.status().servers)
        assert [(row["id"], row["state"], row["restarts"]) for row in servers] == [(0, "running", 0), (1, "running", 0)]
        before = cluster.read_discovery(lab.folder)
        assert {row["process"] for row in servers} == {each.pid for each in before.servers[1:]}
    wait_until_gone(before)
    with fl.Lab.open(tmp_path / "lab", config=config) as lab:
        assert len(lab.status().servers) == 2
        assert sorted(lab.table("d.t").scan().to_arrow()["a"].to_pylist()) == list(range(8))
        after = cluster.read_discovery(lab.folder)
    wait_until_gone(after)


def test_arguments_that_a_running_server_does_not_have_are_warned_of(tmp_path):
    with fl.Lab.open(tmp_path / "lab", durability="ack", tablet_servers=1, config={"server.grace": "100ms"}) as lab:
        before = cluster.read_discovery(lab.folder)
        with pytest.warns(
            UserWarning, match=r"keeps its options.*: log\.durability \(expected fsync, found ack\);"
        ) as said:
            fl.Lab.open(lab.folder, durability="fsync", tablet_servers=1).close()
        assert said[0].filename == __file__
        with pytest.warns(UserWarning, match=r"others: server\.tablet-servers \(expected 2, found 1\);"):
            fl.Lab.open(lab.folder, tablet_servers=2).close()
        fl.Lab.open(lab.folder, durability="ack", tablet_servers=1).close()
        fl.Lab.open(lab.folder, config={"log.segment.file-size": "1mb"}).close()  # documented to be kept
    wait_until_gone(before)


def test_the_shell_starts_shows_and_stops_several(tmp_path):
    folder = tmp_path / "lab"
    try:
        up = run("up", folder, "--tablet-servers", "2")
        assert (up.returncode, up.stderr) == (0, "")
        status = run("status", folder)
        assert status.returncode == 0
        for number in (0, 1):
            (line,) = [line for line in status.stdout.splitlines() if line.startswith(f"tablet {number} ")]
            assert "running" in line
        with fl.Lab.open(folder) as lab:
            lab.create_database("d")
            lab.create_table("d.t", {"a": "int"}, buckets=2)
        before = cluster.read_discovery(folder)
        down = run("down", folder)
        assert (down.returncode, down.stdout) == (0, f"{folder}: stopped\n")
        assert not any(cluster.is_alive(each) for each in before.servers)
        fewer = run("up", folder, "--tablet-servers", "1")
        assert fewer.returncode == 1
        assert "start with 2 or more" in fewer.stderr
    finally:
        cluster.stop_server(folder)
