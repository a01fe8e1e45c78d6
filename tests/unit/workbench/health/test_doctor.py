"""The doctor: what is wrong with machine, folder, options and server; and with ``--deep`` with every file."""

import json
import os
import signal
import socket
import time

import pytest

from fluss_lab.jobs import Jobs
from fluss_lab.jobs.scheduling.scheduler_lease import SchedulerLease
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.server import cluster
from fluss_lab.server.process.server_process import save_options
from fluss_lab.testing import EmbeddedCluster, ServerProcess
from fluss_lab.workbench import Lab
from fluss_lab.workbench.health import doctor
from fluss_lab.workbench.health.doctor import Check, checks, findings
from tests.unit.cli.test_commands import run
from tests.unit.jobs.job_kit import write_notebook
from tests.unit.server.disks import read_only

METRICS_KEY = "metrics.reporter.prometheus.port"


@pytest.fixture
def lab(tmp_path):
    """A lab with a log of one batch, stopped cleanly."""
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False) as running:
        admin = running.connection.admin()
        admin.create_database("db")
        admin.create_table(TablePath("db", "t"), make_descriptor({"a": "bigint"}))
        with running.connection.append_writer(TablePath("db", "t")) as writer:
            writer.append([{"a": 1}])
    return folder


def found(folder):
    return {check.name: check for check in checks(folder)}


def test_a_lab_in_order_is_ok(lab):
    bad = [check for check in checks(lab) if not check.is_ok]
    assert bad == []
    assert {"python", "pyarrow", "java", "open files", "options", "lab", "token", "disk", "clock", "server"} <= set(
        found(lab)
    )


def test_a_folder_that_does_not_exist_is_ok(tmp_path):
    assert "created when a server starts" in found(tmp_path / "none")["folder"].found


@pytest.mark.parametrize("name", ["lab", "token"])
def test_what_others_may_read_is_reported(lab, name):
    path = lab if name == "lab" else lab / name
    path.chmod(0o755)
    check = found(lab)[name]
    assert not check.is_ok
    assert "expected none for others" in check.found


def test_files_of_options_with_secrets_that_others_may_read_are_reported(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "fluss-lab.toml"
    path.write_text('log.durability = "fsync"\n')
    path.chmod(0o644)
    assert "fluss-lab.toml" not in found(lab)
    path.write_text('datalake.iceberg.uri = "postgresql://me:SUPERSECRET@db/lake"\n')
    check = found(lab)["fluss-lab.toml"]
    assert (check.is_ok, check.command) == (False, f"chmod go= {path}")
    assert "SUPERSECRET" not in str(check)
    path.chmod(0o600)
    assert found(lab)["fluss-lab.toml"].is_ok


def test_options_that_the_server_was_started_with_are_named(lab, monkeypatch):
    for name in [name for name in os.environ if name.startswith("FLUSS_LAB_SERVER_")]:
        monkeypatch.delenv(name)  # of all tests
    save_options(lab, {})
    assert found(lab)["options"].found == "all are the defaults"
    monkeypatch.setenv("FLUSS_LAB_LOG_DURABILITY", "fsync")
    started_with = {"log.durability": "fsync", "kv.snapshot.interval": "7s", "datalake.iceberg.token": "SUPERSECRET"}
    save_options(lab, started_with)
    check = found(lab)["options"]
    assert check.is_ok
    assert check.found == (
        "log.durability (environment FLUSS_LAB_LOG_DURABILITY), datalake.iceberg.token (its server's, as it was started), "
        "kv.snapshot.interval (its server's, as it was started)"
    )


def test_options_that_do_not_exist_are_reported(lab, monkeypatch):
    monkeypatch.setenv("FLUSS_LAB_LOG_DURABILTY", "ack")
    assert "FLUSS_LAB_LOG_DURABILTY" in found(lab)["options"].found
    assert not found(lab)["options"].is_ok
    monkeypatch.delenv("FLUSS_LAB_LOG_DURABILTY")
    (lab / "fluss-lab.toml").write_text('log.segment.fil-size = "1mb"\n')
    check = found(lab)["options"]
    assert not check.is_ok
    assert "did you mean 'log.segment.file-size'" in check.found


def test_remote_storage_that_is_gone_or_another_lab_s_is_reported(lab, tmp_path):
    assert found(lab)["remote storage"].found == f"{lab / 'remote'} is there, and this lab's"
    owner = lab / "remote" / "owner.json"
    own = owner.read_text()
    owner.unlink()
    check = found(lab)["remote storage"]
    assert (check.is_ok, check.severity, check.error_class) == (False, "problem", "StorageError")
    assert "is not there: expected the lab's owner.json in it. Mount it" in check.found
    owner.write_text(own.replace("-", "0"))
    check = found(lab)["remote storage"]
    assert (check.is_ok, check.error_class) == (False, "LabError")
    assert "this remote.data.dir is another lab's" in check.found
    deep = run("doctor", lab, "--deep")
    assert deep.returncode == 1
    assert f"BAD  {owner}: {lab / 'remote'}: this remote.data.dir is another lab's" in deep.stdout
    owner.write_text(own)
    assert found(lab)["remote storage"].is_ok
    (lab / "metadata.db").rename(tmp_path / "kept")
    assert "this remote.data.dir is another lab's" in found(lab)["remote storage"].found
    (lab / "metadata.db").write_bytes(b"x" * 4096)
    assert f"{lab / 'metadata.db'}: the lab's metadata cannot be read" in found(lab)["remote storage"].found


def test_remote_storage_is_looked_at_beside_a_running_server(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", {"remote.data.dir": str(tmp_path / "mount")}, lake=False):
        assert found(tmp_path / "lab")["remote storage"].is_ok
        (tmp_path / "mount" / "owner.json").unlink()
        assert not found(tmp_path / "lab")["remote storage"].is_ok


def test_files_from_the_future_tell_of_the_clock(lab):
    ahead = time.time() + 3_600
    os.utime(lab / "metadata.db", (ahead, ahead))
    check = found(lab)["clock"]
    assert not check.is_ok
    assert "in the future" in check.found


def test_a_disk_that_failed_is_reported(lab):
    (lab / "tablet" / "data" / "t1" / "b0" / "fsync-failed").write_text("EIO")
    check = found(lab)["disk fault"]
    assert not check.is_ok
    assert "t1/b0" in check.found


def test_a_folder_that_cannot_be_written_is_reported_as_that(lab):
    """Seen: it was a failed check that said "400 GB free, expected at least 1"."""
    with read_only(lab):
        check = found(lab)["disk"]
    assert not check.is_ok
    assert "it cannot be written: the lab is read, and takes no writes" in check.found


def test_links_that_lead_nowhere_and_folders_that_are_none_do_not_end_the_doctor(lab):
    (lab / ".#fluss-lab.toml").symlink_to("me@host.4711")  # as an editor locks a file
    assert all(check.is_ok for check in checks(lab))
    data = lab / "tablet-7" / "data"
    data.parent.mkdir()
    assert all(check.is_ok for check in checks(lab)), "a bucket may be dropped meanwhile"
    data.write_text("")
    assert found(lab)["disk fault"].found == f"{data} cannot be looked at: Not a directory"


def test_the_logs_of_several_tablet_servers_are_no_faults_of_the_disk(lab):
    for name in ("tablet-1.log", "tablet-1.out"):
        (lab / name).write_text("")
    assert all(check.is_ok for check in checks(lab))


def test_half_written_files_are_reported_and_harmless(lab):
    (lab / ".server.json.x").write_text("")
    check = found(lab)["leftovers"]
    assert (check.is_ok, check.severity) == (True, "note")
    assert ".server.json.x" in check.found


def test_a_port_that_somebody_took_is_reported(lab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (lab / "fluss-lab.toml").write_text(f'{METRICS_KEY} = "{port}"\n')
        check = found(lab)["metrics port"]
        assert not check.is_ok
        assert f"127.0.0.1:{port} is not free" in check.found
    assert found(lab)["metrics port"].is_ok


def test_a_server_that_runs_is_asked_and_one_that_was_killed_is_reported(tmp_path):
    with ServerProcess(tmp_path / "lab") as server:
        assert found(server.folder)["server"].found == f"process {server.pid} answers"
        os.kill(server.pid, signal.SIGSTOP)
        os.kill(server.pid, signal.SIGCONT)
        deep = run("doctor", server.folder, "--deep")
        assert deep.returncode == 1
        assert "stop it with `fluss-lab down" in deep.stderr
        server.kill()
        check = found(server.folder)["server"]
        assert check.is_ok
        assert "was killed; the next process that opens the lab restarts it" in check.found
        assert found(server.folder)["port"].is_ok


def test_the_deep_look_reads_every_file_and_its_exit_code_tells(lab):
    deep = run("doctor", lab, "--deep")
    assert (deep.returncode, deep.stderr) == (0, "")
    assert f"read {lab}/tablet/data/t1/b0: 0 findings" in deep.stdout
    segment = next((lab / "tablet" / "data" / "t1" / "b0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    segment.write_bytes(bytes(data) + b"\0" * 9)
    point = segment.parent / "recovery-point"
    known = point.read_bytes()
    point.unlink()
    torn = run("doctor", lab, "--deep")
    assert torn.returncode == 0, torn.stdout
    assert f"note {segment} at byte {len(data)}: a torn tail" in torn.stdout
    data[60] ^= 1
    segment.write_bytes(bytes(data))
    point.write_bytes(known)
    bad = run("doctor", lab, "--deep")
    assert bad.returncode == 1
    assert f"BAD  {segment} at byte 0: " in bad.stdout
    rows = [json.loads(line) for line in run("doctor", lab, "--deep", "--json").stdout.splitlines()]
    assert {tuple(row) for row in rows} == {tuple(doctor.COLUMNS)}
    assert {row["severity"] for row in rows if row["check"] == "read"} == {"ok"}
    *_, damage, lost = [row for row in rows if row["check"] == "finding"]
    assert (damage["severity"], damage["error_class"], damage["table"]) == ("problem", "CorruptDataError", "db.t")
    assert damage["command"] is None
    assert "offsets [0, 1) cannot be read" in lost["found"]
    assert lost["command"] == f"fluss-lab repair db.t --skip-corrupt --folder {lab}"
    assert cluster.read_discovery(lab) is None


def test_status_tells_where_the_metrics_are(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False):
        status = run("status", tmp_path / "lab")
        assert status.returncode == 0, status.stderr
        assert "metrics, with the token in" in status.stdout
        assert "http://127.0.0.1:" in status.stdout


def test_damage_of_a_bucket_is_shown_by_status_and_doctor(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        info = admin.create_table(TablePath("db", "t"), make_descriptor({"id": "bigint"}))
        with cluster.connection.append_writer(info.path) as writer:
            for first in (0, 10):
                writer.append({"id": list(range(first, first + 10))}).result()
        cluster.stop()
        (segment,) = (tmp_path / "lab").glob("tablet/data/t*/b0/*.log")
        segment.write_bytes(segment.read_bytes()[:-1])
        cluster.start()
        (bucket,) = cluster.connection.admin().buckets(info)
        said = (str(bucket.error), run("status", tmp_path / "lab").stdout, found(tmp_path / "lab")["buckets"].found)
        for text in said:
            assert "db.t, bucket 0" in text
            assert f"{segment}: offsets [10, 20) cannot be read" in text
        check = found(tmp_path / "lab")["buckets"]
        assert (check.is_ok, check.severity, check.error_class, check.table) == (
            False, "problem", "CorruptDataError", "db.t",
        )  # fmt: skip
        assert check.command == f"fluss-lab repair db.t --skip-corrupt --folder {tmp_path / 'lab'}"
        assert run("doctor", tmp_path / "lab").returncode == 1


def test_jobs_that_nothing_runs_are_reported(lab, tmp_path):
    assert "jobs" not in found(lab)
    jobs = Jobs(lab)
    jobs.schedule("refresh", write_notebook(tmp_path / "x.ipynb"), cron="@daily")
    assert (found(lab)["jobs"].severity, found(lab)["jobs"].is_ok) == ("warning", False)
    assert found(lab)["jobs"].command == f"fluss-lab up {lab} --jobs"
    assert found(lab)["jobs"].found.startswith("1 job, and no scheduler runs: none is run until `fluss-lab up --jobs`")
    with SchedulerLease(lab):
        assert found(lab)["jobs"] == Check("jobs", True, f"1 job, scheduled by process {os.getpid()}")
    jobs.pause("refresh")
    assert "jobs" not in found(lab)
    jobs.store.path.write_bytes(b"x" * 4096)
    assert not found(lab)["jobs"].is_ok
    assert str(jobs.store.path) in found(lab)["jobs"].found


def test_an_open_lab_says_what_is_wrong_with_it_first(tmp_path, monkeypatch):
    def refuse(folder):
        raise AssertionError(f"{folder}: the lab has a connection")

    monkeypatch.setattr(doctor, "running_connection", refuse)
    with Lab.open(tmp_path / "lab") as lab:
        well = lab.doctor()
        assert all(well.column("ok"))
        assert well.title == f"doctor: all {len(well)} checks passed"
        assert {"python", "java", "disk", "server", "buckets"} <= set(well.column("check"))
        (tmp_path / "lab").chmod(0o755)
        ill = lab.doctor()
        elsewhere = findings(None, lab.connection)
    assert (ill[0]["check"], ill[0]["ok"], ill[0]["severity"]) == ("lab", False, "problem")
    assert ill[0]["command"] == f"chmod go= {tmp_path / 'lab'}"
    assert "expected none for others" in ill[0]["found"]
    assert ill.title == f"doctor: 1 of {len(ill)} checks failed"
    assert {"buckets", "java"} <= set(elsewhere.column("check"))
    assert "disk" not in elsewhere.column("check")


def test_a_server_that_does_not_answer_is_waited_for_once(tmp_path):
    with ServerProcess(tmp_path / "lab", client={"client.request-timeout": "1s"}) as server:
        known_connection = server.connection
        os.kill(server.pid, signal.SIGSTOP)
        try:
            for known in (checks(server.folder, known_connection), findings(None, known_connection)):
                rows = [each.row() if isinstance(each, Check) else each for each in known]
                assert [row["error_class"] for row in rows if row["check"] == "server"] == ["ServerUnavailableError"]
                assert not {"buckets", "tiering"} & {row["check"] for row in rows}
        finally:
            os.kill(server.pid, signal.SIGCONT)
