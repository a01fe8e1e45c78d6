"""gRPC, imported with its log level set.

Whenever a process forks (Spark's launcher does) gRPC prints a line about other threads, into the notebook. It reads the
variable when it is imported; a value from outside is kept.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

__all__ = ["grpc"]
