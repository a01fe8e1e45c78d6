"""A job in the hand: its notebook and policies, as they were when it was listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluss_lab.display import html_table
from fluss_lab.jobs.job_store import parameter_text
from fluss_lab.jobs.run_record import JobRecord
from fluss_lab.model.times import format_duration, format_moment, format_size


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when it was listed.

    Attributes:
        name: Its name.
        notebook: The notebook.
        cron: When it runs, in `time_zone`.
        time_zone: Name of the time zone.
        parameters: Of each run.
        secrets: Names of environment variables that runs see.
        retries: Further attempts of a failed run.
        timeout: Longest time of a run.
        memory: Most memory of a run.
        overlap: ``skip`` or ``queue``.
        catch_up: ``one``, ``all`` or ``none``.
        keep: Runs whose output is kept.
        on_failure: A command; empty: none.
        is_paused: Whether it is paused.
        next_due: When it is due next (ISO-8601, UTC); None while it is paused.
    """

    name: str
    notebook: str
    cron: str
    time_zone: str
    parameters: Mapping[str, Any]
    secrets: tuple[str, ...]
    retries: int
    timeout: str
    memory: str
    overlap: str
    catch_up: str
    keep: int
    on_failure: tuple[str, ...]
    is_paused: bool
    next_due: str | None

    def __repr__(self) -> str:
        when = "paused" if self.is_paused else f"next {self.next_due}"
        return f"<Job {self.name}: {Path(self.notebook).name} at '{self.cron}' ({self.time_zone}), {when}>"

    def _repr_html_(self) -> str:
        rows = [
            ("notebook", self.notebook), ("cron", f"{self.cron} ({self.time_zone})"), ("next due", self.next_due or "paused"),
            ("parameters", parameter_text(self.parameters) or None), ("secrets", ", ".join(self.secrets) or None),
            ("limits", f"{self.timeout}, {self.memory}"), ("retries", self.retries), ("overlap", self.overlap),
            ("catch up", self.catch_up), ("keep", self.keep), ("on failure", " ".join(self.on_failure) or None),
        ]  # fmt: skip
        return html_table(f"job {self.name}", ["what", "value"], rows)


def listed_job(record: JobRecord) -> Job:
    """Return a job as people see it."""
    return Job(
        name=record.name,
        notebook=record.task.notebook,
        cron=record.cron,
        time_zone=record.zone,
        parameters=record.task.parameters,
        secrets=record.task.secrets,
        retries=record.retries,
        timeout=format_duration(record.task.timeout_ms),
        memory=format_size(record.task.memory_bytes),
        overlap=record.overlap,
        catch_up=record.catch_up,
        keep=record.keep,
        on_failure=record.on_failure,
        is_paused=record.paused_ms is not None,
        next_due=None if record.paused_ms is not None else format_moment(record.next_due_ms),
    )
