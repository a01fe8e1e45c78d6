"""The workbench inside a notebook, beside its objects: SQL in cells (``%load_ext fluss_lab``), the curated notebooks, JupyterLab's settings."""

from fluss_lab.workbench.notebook.sql_magic import load_ipython_extension

__all__ = ["load_ipython_extension"]
