"""The command line, ``fluss-lab``."""

from fluss_lab.cli.commands import main

__all__ = ["main"]
