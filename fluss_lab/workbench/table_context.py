"""The part of a lab that its tables use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fluss_lab.client import Connection
from fluss_lab.lake import LakeStorage
from fluss_lab.workbench.compute import Compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableContext(Protocol):
    """A lab as its tables use it; see `fluss_lab.workbench.lab.Lab`."""

    @property
    def connection(self) -> Connection:
        """Return the connection to the cluster."""

    @property
    def compute(self) -> Compute:
        """Return where tiering and maintenance run."""

    @property
    def session_id(self) -> int | None:
        """Return the lab's session at the coordinator."""

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; the first call starts it."""

    def lake_storage(self) -> LakeStorage:
        """Return the lake that the cluster is configured with."""
