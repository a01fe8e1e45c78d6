"""The command line as a shell sees it: output, exit codes, one clear line for what went wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.config.lake_options import ICEBERG_OPTIONS
from fluss_lab.server import cluster
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.clusters import RESERVE
from tests.unit.cli.shell_kit import call


def run(
    *arguments: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess:
    full = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **(env or {})}
    command = [sys.executable, "-m", "fluss_lab.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=full, cwd=cwd)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "my lab"
    yield path
    cluster.stop_server(path)


def test_up_status_down(folder):
    up = run("up", folder)
    assert (up.returncode, up.stderr) == (0, "")
    found = cluster.read_discovery(folder)
    assert found is not None
    assert f"{found.servers[0].host}:{found.servers[0].port}" in up.stdout
    assert not found.ephemeral
    again = run("up", folder)
    assert again.returncode == 0
    assert "already runs" in again.stdout
    status = run("status", folder)
    assert (status.returncode, status.stderr) == (0, "")
    assert "permanent" in status.stdout
    assert "no tables" in status.stdout
    down = run("down", folder)
    assert (down.returncode, down.stdout) == (0, f"{folder}: stopped\n")
    assert not cluster.is_alive(found.servers[0])
    down = run("down", folder)
    assert (down.returncode, down.stdout) == (0, f"{folder}: no server runs\n")


def test_status_shows_tables_lag_and_states(folder):
    with EmbeddedCluster(folder, options={"log.flush.interval": "50ms"}) as running:
        admin = running.connection.admin()
        admin.create_database("nyc")
        enabled = {"table.datalake.enabled": True}
        admin.create_table(TablePath("nyc", "flights"), make_descriptor({"a": "bigint"}, buckets=2, properties=enabled))
        admin.create_table(TablePath("nyc", "plain"), make_descriptor({"a": "bigint"}))
        with running.connection.append_writer("nyc.flights") as writer:
            writer.append([{"a": 1}, {"a": 2}, {"a": 3}])
        status, as_json = call("status", folder), call("status", folder, "--json")
    assert status.code == 0, status.err
    found = json.loads(as_json.out)
    assert {row["store"] for row in found["disk"]} >= {"log", "metadata", "reserve"}
    assert all(row["complete"] for row in found["disk"])
    assert [row["process"] for row in found["memory"]] == [os.getpid()]
    assert "\ndisk: " in status.out
    assert "–" not in status.out, "nothing is a dash, in every table of it"
    assert "\nmemory of 1 server processes: " in status.out
    lines = {line.split()[0]: line.split() for line in status.out.splitlines() if line}
    assert lines["nyc.flights"][1:3] == ["2", "3"]
    assert lines["nyc.flights"][4:8] == ["3", "0", "3", "Scheduled"]
    assert lines["nyc.plain"][5:] == ["-", "-", "-", "-", "-"]


def test_status_without_a_server_is_exit_code_3(folder):
    status = call("status", folder)
    assert (status.code, status.err) == (3, "")
    assert "no server runs" in status.out
    assert not folder.exists()


def test_where_the_working_directory_was_removed_a_relative_folder_is_refused(folder, monkeypatch):
    gone = folder.parent / "gone"
    gone.mkdir(parents=True)
    monkeypatch.chdir(gone)
    gone.rmdir()
    for words in (("status",), ("up", "mine"), ("tables", "-f", "mine"), ("doctor",)):
        refused = call(*words)
        assert refused.code == 2
        assert "the working directory was removed" in refused.err
    assert call("status", folder).code == 3


@pytest.mark.parametrize("words", [("up",), ("status",), ("tables", "-f")])
def test_a_folder_whose_name_is_no_text_is_refused_and_not_made(words, folder, monkeypatch):
    folder.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder.parent)
    refused = call(*words, "bad\udcff")
    assert refused.code == 2
    assert "it has bytes that are no text in utf-8; rename it" in refused.err
    assert not [each for each in folder.parent.iterdir() if each.name.startswith("bad")]


def test_a_killed_server_is_no_server_and_up_starts_it_with_its_options(folder):
    run("up", folder, "--option", "log.segment.file-size=1mb")
    found, options = cluster.read_discovery(folder), cluster.read_options(folder)
    assert found is not None
    assert options["log.segment.file-size"] == "1mb"
    os.kill(found.servers[0].pid, signal.SIGKILL)
    cluster.wait_until_gone(found)
    assert run("status", folder).returncode == 3
    assert run("up", folder).returncode == 0
    assert cluster.read_options(folder) == options


@pytest.mark.parametrize("option", ["no.such=1", "log.durability=nope", "server.tablet-servers=5000"])
def test_up_makes_no_folder_for_options_that_it_refuses(folder, option):
    refused = call("up", folder, "--option", option)
    assert refused.code == 1
    assert option.partition("=")[0] in refused.err
    assert not folder.exists()


def test_up_refuses_options_that_the_running_server_does_not_have(folder):
    assert run("up", folder, "--option", "log.segment.file-size=1mb").returncode == 0
    has = cluster.read_options(folder)
    same = ["--option", "log.segment.file-size=1024kb", "--option", "server.grace=10s", "--tablet-servers", "1"]
    assert "already runs" in call("up", folder, *same).out
    others = [
        "--option",
        "log.segment.file-size=2mb",
        "--option",
        "log.durability=fsync",
        "--option",
        "datalake.iceberg.s3.region=x",
    ]
    refused = call("up", folder, *others, "--tablet-servers", "2", "--jobs")
    assert (refused.code, refused.out) == (1, "")
    for part in (
        "log.segment.file-size (expected 2mb, found 1mb)", "log.durability (expected fsync, found ", "server.tablet-servers (expected 2, found 1)",
        "datalake.iceberg.s3.region (expected x, found none)", "`fluss-lab down",
    ):  # fmt: skip
        assert part in refused.err
    assert call("up", folder, "--option", "log.durabilty=fsync").code == 1
    refused = call("up", folder, "--option", "client.time-zone=UTC")
    assert (refused.code, refused.out) == (1, "")
    assert "expected a cluster option, found one of clients" in refused.err
    assert "FLUSS_LAB_CLIENT_TIME_ZONE" in refused.err
    assert cluster.read_options(folder) == has
    assert lease_holder(folder) is None


def test_a_secret_stands_on_no_command_line_and_is_never_shown(folder):
    secrets = {
        "FLUSS_LAB_DATALAKE_ICEBERG_S3_SECRET_ACCESS_KEY": "SUPERSECRET1",
        "FLUSS_LAB_DATALAKE_ICEBERG_TOKEN": "SUPERSECRET2",
        "FLUSS_LAB_DATALAKE_ICEBERG_URI": "postgresql://me:SUPERSECRET4@127.0.0.1:1/lake",
        "FLUSS_LAB_REMOTE_S3_SECRET_ACCESS_KEY": "SUPERSECRET5",
    }
    refused = call("up", folder, "--option", "datalake.iceberg.uri=postgresql://me:SUPERSECRET6@db/lake")
    assert refused.code == 1
    assert "FLUSS_LAB_DATALAKE_ICEBERG_URI" in refused.err
    refused = run("up", folder, "--option", "datalake.iceberg.token=SUPERSECRET3")
    assert refused.returncode == 1
    assert "can be read by every user" in refused.stderr
    assert "FLUSS_LAB_DATALAKE_ICEBERG_TOKEN" in refused.stderr
    up = run("up", folder, "--option", "datalake.iceberg.s3.region=here", env=secrets)
    assert up.returncode == 0, up.stderr
    found = cluster.read_discovery(folder)
    words = Path(f"/proc/{found.servers[0].pid}/cmdline").read_text()
    assert "datalake" not in words
    options = json.loads((folder / "server-options.json").read_text())["options"]
    assert options["datalake.iceberg.s3.region"] == "here"
    assert options["datalake.iceberg.token"] == "SUPERSECRET2"
    shown = [run(*words, env=secrets) for words in (["config", folder], ["status", folder], ["doctor", folder])]
    reported = "".join(
        [
            refused.stderr,
            up.stdout,
            (folder / "server.log").read_text(),
            words,
            *(each.stdout + each.stderr for each in shown),
        ]
    )
    assert "SUPERSECRET" not in reported
    lines = [line.split() for line in shown[0].stdout.splitlines()]
    assert ["datalake.iceberg.token", "********", "environment", "FLUSS_LAB_DATALAKE_ICEBERG_TOKEN"] in lines
    assert ["datalake.format", "iceberg", "default"] in lines


def test_config_shows_every_lake_option_when_it_is_asked_for_all(folder):
    shown = {line.split()[0] for line in call("config", folder, "--all").out.splitlines()}
    assert shown >= set(ICEBERG_OPTIONS)


def test_a_lake_format_that_is_not_installed_is_refused_at_the_start(folder):
    failed = call("up", folder, "--option", "datalake.format=paimon")
    assert failed.code == 1
    assert "lake format 'paimon': not installed; installed are iceberg" in failed.err


def test_up_refuses_a_folder_that_others_may_write(folder):
    folder.mkdir()
    folder.chmod(0o777)
    failed = call("up", folder)
    assert (failed.code, failed.out) == (1, "")
    assert "others may write in it" in failed.err
    assert list(folder.iterdir()) == []


def test_a_server_in_the_foreground_is_refused_where_another_runs(folder):
    run("up", folder)
    second = run("server", "--folder", folder)
    assert second.returncode == 1
    assert "another server runs on this folder" in second.stderr


def test_config_tells_each_value_and_where_it_came_from(tmp_path):
    (tmp_path / "fluss-lab.toml").write_text('log.durability = "fsync"\nclient.request-timeout = "9s"\n')
    shown = run(
        "config", env={"FLUSS_LAB_CLIENT_REQUEST_TIMEOUT": "7s", "FLUSS_LAB_LOG_DURABILTY": "ack"}, cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.stdout.splitlines()}
    assert lines["log.durability"] == ["fsync", f"file {tmp_path / 'fluss-lab.toml'}"]
    assert lines["client.request-timeout"] == ["7s", "environment FLUSS_LAB_CLIENT_REQUEST_TIMEOUT"]
    assert lines["server.grace"] == ["10s", "default"]
    assert "FLUSS_LAB_LOG_DURABILTY" in shown.stderr


def test_a_server_follows_arguments_then_environment_then_file(folder):
    folder.mkdir(mode=0o700)
    (folder / "fluss-lab.toml").write_text('server.grace = "1s"\nmax.bucket.num = 7\nmax.partition.num = 5\n')
    env = {"FLUSS_LAB_MAX_BUCKET_NUM": "8", "FLUSS_LAB_MAX_PARTITION_NUM": "6"}
    assert run("up", folder, "--option", "max.partition.num=9", env=env).returncode == 0
    expected = {"server.grace": "1s", "max.bucket.num": "8", "max.partition.num": "9"}
    assert cluster.read_options(folder) == RESERVE | expected


def test_doctor_finds_a_folder_that_others_may_read(folder):
    with EmbeddedCluster(folder, lake=False):
        well = call("doctor", folder)
        assert "BAD" not in well.out.replace("BAD  java", "")
        assert "answers" in well.out
        folder.chmod(0o755)
        ill = call("doctor", folder)
    assert ill.code == 1
    assert "mode 755, expected none for others" in ill.out


def test_help_is_quick_because_nothing_heavy_is_loaded():
    program = (
        "import sys; from fluss_lab.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'grpc', 'pyarrow', 'numpy', 'pyspark', 'pandas', 'pyiceberg'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
    for name in ("server", "up", "down", "status", "config", "doctor"):
        assert f"  {name} " in shown.stdout


def test_the_server_imports_no_lake_library_at_its_start(folder):
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from fluss_lab.lake.format_plugin import load_lake\nfrom fluss_lab.server.process.node_host import make_node\n"
        f"with make_node(Path({str(folder)!r}), load_lake, options={{}}): pass\n"
        "print(sorted({'pyiceberg', 'sqlalchemy', 'pyspark', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
