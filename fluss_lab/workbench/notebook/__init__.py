"""What ``%load_ext fluss_lab`` adds to IPython: SQL in cells."""

from fluss_lab.workbench.notebook.sql_magic import load_ipython_extension

__all__ = ["load_ipython_extension"]
