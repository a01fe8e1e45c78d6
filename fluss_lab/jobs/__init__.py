"""Notebooks as jobs."""

from fluss_lab.jobs.notebook import SUMMARY_MIME, NotebookRun, run_notebook

__all__ = ["SUMMARY_MIME", "NotebookRun", "run_notebook"]
