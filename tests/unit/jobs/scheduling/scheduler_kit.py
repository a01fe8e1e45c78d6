"""A lab with a scheduler, by a clock that tests move."""

from dataclasses import replace
from datetime import datetime

from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.run_record import RunTask
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.jobs.scheduling.scheduler import Scheduler
from fluss_lab.testing import MockClock, wait_until
from tests.unit.jobs.job_kit import SCRIPT_PROCESS, make_job, write_notebook

NOON = int(datetime.fromisoformat("2026-03-28T12:00:00+00:00").timestamp() * 1000)
MINUTE = 60_000
DONE = "report(end=True)"
FAILED = "report(end=True, error='no')"


class Scene:
    """A lab with a notebook, a scheduler, and a clock."""

    def __init__(self, folder):
        self.lab = folder / "lab"
        self.notebook = write_notebook(folder / "x.ipynb", 'code: str = ""')
        self.store = JobStore(self.lab)
        self.clock = MockClock(NOON)
        self.events = []
        self.start()

    def start(self, **options):
        self.scheduler = Scheduler(
            self.lab, clock=self.clock, command=SCRIPT_PROCESS, on_event=self.events.append, **options
        )

    def add(self, name="job", code=DONE, cron="* * * * *", **changes):
        task = RunTask(
            notebook=str(self.notebook),
            parameters={"code": code},
            timeout_ms=changes.pop("timeout_ms", 60_000),
            memory_bytes=1 << 30,
        )
        job = make_job(name=name, cron=cron, next_due_ms=Schedule(cron, "UTC").next_due(self.clock.now_ms()), **changes)
        return self.store.add_job(replace(job, task=task), replaces=False)

    def advance(self, ms=MINUTE):
        self.clock.advance(ms)
        self.scheduler.step()

    def settle(self):
        """Look until nothing is queued that may start, and nothing runs."""

        def is_done():
            self.scheduler.step()
            now = self.clock.now_ms()
            return not [run for run in self.store.runs(states=("queued", "running")) if run.not_before_ms <= now]

        wait_until(is_done)

    def states(self, job=None):
        return [
            (run.state, None if run.due_ms is None else (run.due_ms - NOON) // MINUTE) for run in self.store.runs(job)
        ][::-1]
