"""What Spark reads of log tables whose lake is in MinIO equals what Arrow reads: the tests of a lake on this machine, again."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.spark.conftest import clock  # noqa: F401
from tests.spark.test_altered_spark import test_spark_equals_arrow_on_a_table_that_grows  # noqa: F401
from tests.spark.test_union_spark import (  # noqa: F401
    history,
    session,
    test_a_changelog_in_spark_equals_the_one_in_arrow,
    test_a_column_that_somebody_renamed_in_the_lake_is_found_by_its_id,
    test_a_filtered_scan_gives_the_same_rows,
    test_a_zero_s_sign_and_nan_mislead_nobody_in_a_file,
    test_every_type_is_the_tables_own_from_files_and_log,
    test_infinities_and_numbers_between_floats_are_compared_exactly,
    test_limits_columns_partitions_and_buckets,
    test_records_that_leave_the_cluster_are_read_from_the_lake_by_the_same_frame,
    test_spark_equals_arrow_at_every_read_point,
    test_times_finer_than_sparks_are_refused_by_name,
    test_what_a_filter_computes_is_the_same_in_spark,
)
from tests.unit.read.kit import OPTIONS

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock, backends):  # noqa: F811
    folder = tmp_path_factory.mktemp("a lab [x] {y}")
    with EmbeddedCluster(folder / "l ab", OPTIONS | backends.cluster("sqlite", folder), clock=clock) as running:
        yield running


@pytest.fixture
def lake(backends, tmp_path):
    return backends.cluster("sqlite", tmp_path)
