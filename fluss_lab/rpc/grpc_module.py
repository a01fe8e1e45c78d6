"""gRPC, imported once it is told to be quiet.

Whenever a process forks (Spark's launcher does) gRPC prints a line about other threads, into the notebook. It reads the
variable when it is imported; one that somebody set is left alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

__all__ = ["grpc"]
