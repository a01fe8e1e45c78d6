"""The data source `fluss` on a lake in MinIO: primary-key tables, changelogs, options, tasks that die; the tests of a lake here, again."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.spark.conftest import clock  # noqa: F401
from tests.spark.test_table_source import (  # noqa: F401
    history,
    session,
    test_a_frame_gives_the_same_rows_when_all_has_moved,
    test_a_frame_s_rows_do_not_depend_on_what_was_asked_of_it_before,
    test_a_log_table_and_its_changelog,
    test_a_worker_that_dies_in_the_middle_changes_nothing,
    test_changelogs_of_every_change_and_net,
    test_every_type_is_the_tables_own,
    test_filters_limits_partitions_and_buckets,
    test_narrow_scans_and_counts,
    test_options_say_what_is_read,
    test_spark_equals_arrow_at_every_moment,
    test_tables_of_sparks_catalog_are_fresh_and_frames_stay,
    test_what_a_filter_computes_is_sent_to_tasks,
)

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock, backends):  # noqa: F811
    folder = tmp_path_factory.mktemp("a lab [x] {y}")
    with EmbeddedCluster(folder / "l ab", backends.cluster("sqlite", folder), clock=clock) as running:
        yield running
