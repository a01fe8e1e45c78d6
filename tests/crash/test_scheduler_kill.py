"""The scheduler over thirty hours of a moved clock, with a change of the zone in them, killed anywhere: each due run happened once, or is recorded as missed."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from fluss_lab.files import write_atomic
from fluss_lab.jobs import Jobs
from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.run_processes import identity, run_processes
from fluss_lab.jobs.run_record import RunTask
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder
from fluss_lab.spark.session.java_home import find_java
from fluss_lab.testing import wait_until
from tests.unit.jobs.job_kit import make_job, write_notebook

ROOT = Path(__file__).parents[2]
MINUTE = 60_000
HOURS_30 = 30 * 60 * MINUTE
ZONE = "Europe/Berlin"
POINTS = (
    "jobs.due.planned", "jobs.due.decided", "jobs.run.started", "jobs.run.recorded", "jobs.run.ended", "jobs.run.settled",
    "jobs.notice.started",
)  # fmt: skip
#: Notes each start, takes a moment; of the job "fails" each first attempt fails.
CODE = (
    "import os, time\n"
    "run = task['output'].rpartition('/')[2].removesuffix('.ipynb')\n"
    "fd = os.open({ledger!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)\n"
    "os.write(fd, f'{{run}}\\n'.encode())\n"
    "time.sleep({seconds})\n"
    "report(end=True, **({{'error': 'no'}} if {fails} and hash(run) % 2 else {{}}))\n"
)


class Scene:
    """A lab with four jobs, the clock, and the process that forks schedulers."""

    def __init__(self, folder, start_ms, seed):
        self.random = random.Random(seed)
        self.lab, self.clock, self.ledger = folder / "lab", folder / "clock", folder / "ledger"
        self.notices = folder / "notices"
        self.notices.touch()
        self.store = JobStore(self.lab)
        self.now_ms = start_ms
        self.set_clock(start_ms)
        self.notebook = write_notebook(folder / "x.ipynb", 'code: str = ""')
        self.add("often", "*/30 * * * *", overlap="queue", catch_up="all")
        self.add("nightly", "30 2 * * *", catch_up="one")
        self.add("hourly", "0 * * * *", overlap="skip", catch_up="none", seconds=0.05)
        self.add("fails", "15 */3 * * *", catch_up="one", retries=1, fails=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.scheduler_scene", str(self.lab), str(self.clock)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self.pid = None
        self.kills = Counter()

    def add(self, name, cron, *, seconds=0.0, fails=False, **policies):
        code = CODE.format(ledger=str(self.ledger), seconds=seconds, fails=fails)
        task = RunTask(notebook=str(self.notebook), parameters={"code": code}, timeout_ms=60_000, memory_bytes=1 << 30)
        job = make_job(
            name=name,
            cron=cron,
            zone=ZONE,
            next_due_ms=Schedule(cron, ZONE).next_due(self.now_ms),
            keep=10_000,
            on_failure=("/bin/sh", "-c", f"echo $0 >> {str(self.notices)!r}", "{run}"),
            **policies,
        )
        self.store.add_job(replace(job, task=task), replaces=False)

    def set_clock(self, now_ms):
        self.now_ms = now_ms
        write_atomic(self.clock, str(now_ms).encode(), durable=False)

    def start(self, failpoints=""):
        self.process.stdin.write(f"{failpoints}\n")
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())

    def is_alive(self):
        return identity(self.pid) != ""

    def await_end(self):
        assert self.process.stdout.readline() == "ended\n"
        self.pid = None

    def kill(self):
        with suppress(ProcessLookupError):  # at a point, a moment ago
            os.kill(self.pid, signal.SIGKILL)
        self.await_end()

    def is_settled(self):
        if any(job.next_due_ms <= self.now_ms for job in self.store.jobs()):
            return False
        pending = self.store.runs(limit=-1, states=("queued", "running"))
        return not [run for run in pending if run.state == "running" or run.not_before_ms <= self.now_ms]

    def is_at_rest(self):
        """Return whether it is settled, and every failure's notice on its way: what ends now loses none."""
        return self.is_settled() and not any(run.is_notice_due for run in self.store.runs(limit=-1))

    def go_on(self):
        """Let a while pass, in which the scheduler may be killed, and be away for hours."""
        random_ = self.random
        # To the next due time, or retry: what is found late was missed.
        ahead = [job.next_due_ms for job in self.store.jobs() if job.next_due_ms > self.now_ms]
        self.set_clock(min([self.now_ms + 15 * MINUTE, *ahead]))
        if random_.random() < 0.25:
            threading.Event().wait(random_.random() * 0.1)
            if self.is_alive():
                self.kill()
                self.kills["anywhere"] += 1
        if self.pid is not None:
            wait_until(lambda: not self.is_alive() or self.is_settled())
            if not self.is_alive():
                self.await_end()
                self.kills["at a point"] += 1
        if self.pid is None:
            if random_.random() < 0.3:
                self.set_clock(self.now_ms + random_.choice([1, 2, 5]) * 60 * MINUTE)
            self.start(f"{random_.choice(POINTS)}=kill@{random_.randint(1, 5)}" if random_.random() < 0.6 else "")

    def close(self):
        if self.pid is not None:
            self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "seed"), [("2026-03-28T05:00:00+01:00", 1), ("2026-10-24T05:00:00+02:00", 2)], ids=["gap", "twice"]
)
def test_every_due_run_happened_once_or_is_recorded_as_missed(tmp_path, start, seed):
    start_ms = int(datetime.fromisoformat(start).timestamp() * 1000)
    scene = Scene(tmp_path, start_ms, seed)
    try:
        scene.start()
        while scene.now_ms < start_ms + HOURS_30:
            scene.go_on()
        # Without points now: until everything is at rest, retries included.
        scene.kill() if scene.is_alive() else scene.await_end()
        for _ in range(3):
            scene.set_clock(scene.now_ms + MINUTE // 2)
            scene.pid is None and scene.start()
            wait_until(scene.is_at_rest)
    finally:
        scene.close()
    check(scene, start_ms)
    assert sum(scene.kills.values()) > 10
    assert min(scene.kills["anywhere"], scene.kills["at a point"]) > 3


def check(scene, start_ms):
    started = Counter(scene.ledger.read_text().split())
    assert set(started.values()) == {1}, "a run began twice"
    runs = scene.store.runs(limit=-1)
    assert {run.state for run in runs} <= {"succeeded", "failed", "missed"}
    assert started.keys() <= {run.id for run in runs}, "a run that nobody knows of"
    for job in scene.store.jobs():
        own = [run for run in runs if run.job == job.name]
        first = sorted(run.due_ms for run in own if run.attempt == 1)
        assert first == Schedule(job.cron, job.zone).due_times(start_ms, scene.now_ms), job.name
        for run in own:
            if run.state == "missed":
                assert run.error, "without a reason"
                assert started[run.id] == 0
            elif run.state == "succeeded":
                assert started[run.id] == 1
            else:
                assert run.error == "no" or "ended while it was under way" in run.error, run.error
        assert max(run.attempt for run in own) <= job.retries + 1
        attempts = {(run.due_ms, run.attempt) for run in own}
        failed = [run for run in own if run.state == "failed"]
        assert all((run.due_ms, run.attempt + 1) in attempts for run in failed if run.attempt <= job.retries), job.name
        wait_until(lambda: {run.id for run in failed if run.attempt > job.retries} <= noticed(scene))  # noqa: B023
        counted = Counter(run.state for run in own)
        assert counted["succeeded"] > counted["missed"] / 10, counted
    assert [run for run in runs if run_processes(run.id)] == []


def noticed(scene):
    return set(scene.notices.read_text().split())


@pytest.mark.slow
def test_a_killed_scheduler_leaves_no_kernel_and_no_jvm(tmp_path):
    """With a real notebook, whose cell has a Java program and a Python in a session of its own under way."""
    (tmp_path / "Sleeper.java").write_text(
        "public class Sleeper { public static void main(String[] a) throws Exception { Thread.sleep(600000); } }"
    )
    java = find_java().java
    cell = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([{str(java)!r}, '-XX:TieredStopAtLevel=1', {str(tmp_path / 'Sleeper.java')!r}])\n"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print('under way', flush=True)\ntime.sleep(600)\n"
    )
    lab = tmp_path / "lab"
    jobs = Jobs(lab)
    jobs.schedule("spark", write_notebook(tmp_path / "x.ipynb", None, [cell]), cron="* * * * *", time_zone="UTC")
    job = jobs.store.job("spark")
    with jobs.store._write() as db:
        db.execute("UPDATE jobs SET record = json_set(record, '$.next_due_ms', 0)")
    assert jobs.store.job("spark") == replace(job, next_due_ms=0)
    command = [sys.executable, "-m", "fluss_lab.cli", "jobs", "run", "-f", str(lab)]
    (lab / "metadata.db").write_text("")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    try:
        wait_until(lambda: len(jobs.history()) > 0 and any("under way" in run.log for run in jobs.history()))
        (run,) = [run for run in jobs.history() if run.state == "running"]
        names = {each.name() for each in run_processes(run.id)}
        assert "java" in names
        assert len(run_processes(run.id)) >= 4, "papermill, kernel, Java, Python"
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: run_processes(run.id) == [])
    assert lease_holder(lab) is None
    assert run.state == "running", "nobody could say so yet"
    assert [(each.id, each.state) for each in jobs.history() if each.id == run.id] == [(run.id, "failed")]
