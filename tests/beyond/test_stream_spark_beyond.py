"""Streams from and into tables whose lake is in MinIO: the tests of a lake on this machine, again."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.spark.conftest import clock  # noqa: F401
from tests.spark.test_stream_spark import (  # noqa: F401
    history,
    session,
    test_a_frame_is_written_whole_or_not,
    test_a_query_that_fails_and_starts_again_gives_every_event_once,
    test_a_running_query_picks_up_what_comes,
    test_a_stream_is_written_into_another_table_once,
)
from tests.unit.read.kit import OPTIONS

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock, backends):  # noqa: F811
    folder = tmp_path_factory.mktemp("a lab")
    with EmbeddedCluster(folder / "lab", OPTIONS | backends.cluster("sqlite", folder), clock=clock) as running:
        yield running
