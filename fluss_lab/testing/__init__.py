"""Tools for tests of what is built on fluss_lab: a clock to move, clusters in and out of the process."""

from fluss_lab.testing.clusters import EmbeddedCluster, ServerProcess
from fluss_lab.testing.mock_clock import MockClock, wait_until

__all__ = ["EmbeddedCluster", "MockClock", "ServerProcess", "wait_until"]
