"""Notebooks as jobs: run by papermill in processes of their own, on a schedule or now, with typed parameters and a history."""

from fluss_lab.jobs.job_handle import Job
from fluss_lab.jobs.lab_jobs import Jobs
from fluss_lab.jobs.run_handle import Run, RunHistory
from fluss_lab.jobs.run_record import SUMMARY_MIME
from fluss_lab.jobs.scheduling.scheduler import Scheduler

__all__ = ["SUMMARY_MIME", "Job", "Jobs", "Run", "RunHistory", "Scheduler"]
