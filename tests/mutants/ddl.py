"""Mutants of what changes: columns, partitions, and the lake that has to follow them."""

from tests.mutants.mutant import CHECKS, IN_SERVICE, PLANNER, Mutant

LAKE_SIDE = "fluss_lab/server/coordinator/ddl/lake_table_ddl.py"
PARTITIONS = "fluss_lab/server/coordinator/ddl/partition_ddl.py"
PARTITION_DROP = "fluss_lab/lake/iceberg/commit/bucket_removal.py"
EVOLUTION = "fluss_lab/lake/iceberg/table/schema_evolution.py"
OFFSETS = "fluss_lab/lake/snapshot_summary.py"
LIFECYCLE = "fluss_lab/server/coordinator/ddl/table_ddl.py"
LEAVING = "fluss_lab/server/coordinator/tiering/leaving_tierers.py"

IN_ALTER = "tests/unit/server/coordinator/ddl/test_alter_columns.py"
IN_CLOCK = "tests/unit/server/coordinator/ddl/test_auto_partitioner.py"
IN_TIERING_ALTER = "tests/unit/tiering/round/test_tiering_alter.py"
IN_TIERING_DROP = "tests/unit/tiering/round/test_tiering_partition_drop.py"
IN_EVOLUTION = "tests/unit/lake/iceberg/table/test_schema_evolution.py"
IN_READ = "tests/unit/read/test_altered.py"
IN_OPTIONS = "tests/unit/model/config/test_table_options.py"
IN_LAKE_DDL = "tests/unit/server/coordinator/ddl/test_lake_table_ddl.py"
IN_LEADERSHIP = "tests/unit/server/coordinator/tablets/test_leadership.py"

DDL = (
    Mutant(
        "rows_of_others_dropped_with_a_creation_that_failed", "P13", "fluss_lab/lake/iceberg/catalog.py",
        "        if _has_rows(lake):\n            _LOG.warning(",
        "        if lake is None:\n            _LOG.warning(",
        (f"{IN_LAKE_DDL}::test_rows_that_came_into_a_lake_table_while_it_was_created_stay",),
    ),
    Mutant(
        "rows_of_others_dropped_with_a_creation_that_was_cut_off", "P13", LAKE_SIDE,
        "        if row.state == lake_snapshots.MAKING:\n",
        "        if row.state is None:\n",
        (f"{IN_LAKE_DDL}::test_rows_that_came_into_a_lake_table_while_it_was_created_stay",),
    ),
    Mutant(
        "notification_lost_with_what_could_not_be_read", "P11", "fluss_lab/server/coordinator/tablets/retrying_notifier.py",
        "    return False\n",
        "    return True\n",
        (
            f"{IN_LEADERSHIP}::test_a_drop_is_reported_though_the_metadata_could_not_be_read_then",
            f"{IN_LEADERSHIP}::test_a_definition_is_reported_though_the_metadata_could_not_be_read_then[table]",
        ),
    ),
    Mutant(
        "lake_table_dropped_under_its_tierers_hands", "P3", LIFECYCLE,
        "if not self._tiering.leaving.wait(info.table_id):",
        "if False:",
        (f"{IN_LAKE_DDL}::test_a_lake_table_is_not_dropped_under_the_hands_of_its_tierer",),
    ),
    Mutant(
        "tierer_whose_process_is_gone_waited_for", "P12", LEAVING,
        "if holder.session_id == session_id:",
        "if False:",
        (f"{IN_LAKE_DDL}::test_a_lake_table_is_not_dropped_under_the_hands_of_its_tierer",),
    ),
    Mutant(
        "round_planned_with_columns_that_are_outdated", "P2", PLANNER,
        "if (schema_id := assigned_table(self._connection, self._assignment).schema_id) != table.schema_id:",
        "if (schema_id := assigned_table(self._connection, self._assignment).schema_id) < table.schema_id:",
        (f"{IN_TIERING_ALTER}::test_columns_added_while_a_round_is_planned",),
    ),
    Mutant(
        "batches_of_unknown_schemas_taken", "P8", CHECKS,
        "if header.schema_id not in schemas:",
        "if header.schema_id in ():",
        (f"{IN_SERVICE}::test_a_bad_payload_is_refused_whole_and_the_others_are_appended",),
    ),
    Mutant(
        "alteration_not_noted_beforehand", "P6", LAKE_SIDE,
        "        self._ledger.set_state(new.table_id, new.path, lake_snapshots.ALTERING)\n",
        "",
        (f"{IN_ALTER}::test_columns_that_a_crash_left_in_the_lake_are_cleared",),
    ),
    Mutant(
        "columns_not_taken_back_from_the_lake", "P6", LAKE_SIDE,
        "            self._take_back(old)\n",
        "",
        (f"{IN_ALTER}::test_columns_are_taken_back_from_the_lake_when_the_metadata_refuse",),
    ),
    Mutant(
        "left_columns_stay_in_the_lake", "P6", EVOLUTION,
        "if key not in columns and key not in SYSTEM_COLUMNS}",
        "if key in columns and key in SYSTEM_COLUMNS}",
        (f"{IN_EVOLUTION}::test_columns_taken_back_leave_nothing_and_are_not_taken_for_others",),
    ),
    Mutant(
        "field_ids_used_again", "P4", EVOLUTION,
        "count(lake.metadata.last_column_id + 1)",
        "count(lake.schema().highest_field_id + 1)",
        (f"{IN_EVOLUTION}::test_columns_taken_back_leave_nothing_and_are_not_taken_for_others",),
    ),
    Mutant(
        "names_taken_in_the_lake_not_looked_at", "P4", EVOLUTION,
        "        if field.name.lower() in names:\n",
        "        if not names:\n",
        (f"{IN_EVOLUTION}::test_names_that_are_taken_in_the_lake",),
    ),
    Mutant(
        "read_point_in_other_columns", "P4", "fluss_lab/read/union/read_columns.py",
        "if point.schema_id == info.schema_id:",
        "if point.schema_id <= info.schema_id:",
        (f"{IN_READ}::test_a_read_point_keeps_its_columns",),
    ),
    Mutant(
        "empty_partition_drop_not_committed", "P3", PARTITION_DROP,
        "        if commit_in(main_line(lake.metadata), summary[COMMIT_ID_KEY]) is not None:\n",
        "        if commit_in(main_line(lake.metadata), summary[COMMIT_ID_KEY]) is not None or not lake.metadata.snapshots:\n",
        (f"{IN_TIERING_DROP}::test_dropped_during_a_round", f"{IN_EVOLUTION}::test_a_commit_planned_before_a_partition_was_deleted_fails"),
    ),
    Mutant(
        "partition_drop_looks_foreign", "P2", OFFSETS,
        "        COMMIT_USER_KEY: COMMIT_USER,\n        COMMIT_ID_KEY: f",
        "        COMMIT_ID_KEY: f",
        (f"{IN_TIERING_DROP}::test_its_rows_leave_the_lake_and_its_name_is_free",),
    ),
    Mutant(
        "offsets_of_a_partition_that_is_gone_taken", "P2", OFFSETS,
        "if partition_id is not None and snapshot.partition_ids.get(partition, partition_id) == partition_id:",
        "if partition_id is not None:",
        (f"{IN_TIERING_DROP}::test_dropped_between_lake_and_cluster",),
    ),
    Mutant(
        "partition_made_again_before_the_lake_let_go", "P2", PARTITIONS,
        "        self._lake.settle(info.path)\n        return self._catalog.find_partition(info.table_id, name)\n",
        "        return None\n",
        (f"{IN_TIERING_DROP}::test_a_lake_that_refuses_is_asked_again",),
    ),
    Mutant(
        "partitions_past_keeping_made", "P8", PARTITIONS,
        "                auto.check(name, now_ms)\n",
        "                str(auto)\n",
        (f"{IN_CLOCK}::test_rows_of_another_time_or_of_none_are_refused",),
    ),
    Mutant(
        "retention_off_by_one", "P2", "fluss_lab/model/auto_partition.py",
        "self.is_time(value) and value < earliest",
        "self.is_time(value) and value <= earliest",
        (f"{IN_OPTIONS}::test_what_is_past_keeping_is_refused_and_dropped",),
    ),
    Mutant(
        "definition_of_any_size_taken", "P8", "fluss_lab/model/descriptor.py",
        "> DEFINITION_BYTES_MAX:",
        "> DEFINITION_BYTES_MAX * 1000:",
        (f"{IN_OPTIONS}::test_definitions_beyond_the_limits_are_refused",),
    ),
    Mutant(
        "types_of_any_depth_read", "P8", "fluss_lab/model/types.py",
        "def _from_json(value: Mapping[str, Any], depth: int) -> DataType:\n    if depth > NESTING_MAX:",
        "def _from_json(value: Mapping[str, Any], depth: int) -> DataType:\n    if depth > NESTING_MAX * 1000:",
        (f"{IN_OPTIONS}::test_a_type_in_json_that_nests_too_deeply",),
    ),
)  # fmt: skip
