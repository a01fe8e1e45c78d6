"""Mutants of identity: folders, labs and buckets that are taken for others, and what follows from the log and is not rebuilt."""

from tests.mutants.mutant import Mutant

IN_IDENTITY = "tests/unit/server/test_identity.py"
IN_METADATA = "tests/unit/server/coordinator/metadata/test_metadata_store.py"
IN_DDL = "tests/unit/server/coordinator/ddl/test_table_ddl.py"
IN_FOLDERS = "tests/unit/server/tablet/buckets/test_bucket_folders.py"
IN_CACHE = "tests/unit/client/cluster/test_metadata_cache.py"
IN_REBUILD = "tests/unit/server/tablet/log/test_previous_rebuild.py"

IDENTITY = (
    Mutant(
        "a_copied_discovery_file_is_believed", "P13", "fluss_lab/server/process/discovery.py",
        "found.folder is not None and found.folder != _folder_id(folder)",
        "found.folder is not None and not found.folder",
        (f"{IN_IDENTITY}::test_a_copy_of_a_running_lab_is_another_lab",),
    ),
    Mutant(
        "older_metadata_gives_ids_out_again", "P13", "fluss_lab/server/folder/metadata_checks.py",
        "        if int(match[1]) >= table_next:",
        "        if int(match[1]) < 0:",
        (f"{IN_IDENTITY}::test_older_metadata_is_refused_before_its_ids_are_given_out_again",),
    ),
    Mutant(
        "older_metadata_gives_partition_ids_out_again", "P13", "fluss_lab/server/folder/metadata_checks.py",
        "if found is not None and int(found[1]) >= partition_next:",
        "if found is not None and int(found[1]) < 0:",
        (f"{IN_IDENTITY}::test_older_metadata_is_refused_before_its_ids_are_given_out_again",),
    ),
    Mutant(
        "older_metadata_gives_schema_ids_out_again", "P13", "fluss_lab/server/folder/metadata_checks.py",
        "            Schema.from_json(kept)\n            return False",
        "            return True",
        (f"{IN_IDENTITY}::test_older_metadata_is_refused_before_it_reads_rows_by_the_columns_of_another_schema",),
    ),
    Mutant(
        "another_schema_of_the_number_is_taken", "P13", "fluss_lab/server/folder/metadata_checks.py",
        "return bool(kept == there) or Schema.from_json(kept) == Schema.from_json(there)",
        "return True",
        (f"{IN_IDENTITY}::test_older_metadata_is_refused_before_it_reads_rows_by_the_columns_of_another_schema",),
    ),
    Mutant(
        "older_metadata_gives_writer_ids_out_again", "P1", "fluss_lab/server/coordinator/coordinator_service.py",
        "max(FIRST_ID, self._clock.now_ms() * BLOCK_IDS)",
        "FIRST_ID",
        (f"{IN_IDENTITY}::test_rows_of_a_writer_under_older_metadata_are_not_taken_for_a_retry",),
    ),
    Mutant(
        "another_buckets_folder_is_taken", "P13", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "    if found or (names and not adopt):",
        "    if names and not found and not adopt:",
        (f"{IN_IDENTITY}::test_a_folder_that_is_another_buckets_is_refused_and_left_as_it_is",),
    ),
    Mutant(
        "a_nonempty_folder_is_taken_for_a_new_bucket", "P13", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "    if found or (names and not adopt):",
        "    if found:",
        (f"{IN_IDENTITY}::test_files_without_an_identity_are_refused_in_new_labs_and_adopted_in_older_ones",),
    ),
    Mutant(
        "folders_of_new_buckets_may_be_lost", "P1", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "            list(pool.map(files.fsync_folder, parents))",
        "            list(parents)",
        (f"{IN_FOLDERS}::test_every_folder_is_durable_with_one_write_of_what_it_lies_in",),
    ),
    Mutant(
        "folders_of_new_partitions_may_be_lost", "P1", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "        for folder in {parent.parent: None for parent in parents if parent.parent != within}:\n"
        "            files.fsync_folder(folder)\n",
        "",
        (f"{IN_FOLDERS}::test_every_folder_is_durable_with_one_write_of_what_it_lies_in",),
    ),
    Mutant(
        "deleted_buckets_may_come_back", "P13", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "            for folder in {_existing(folder): None for folder in left}:\n"
        "                files.fsync_folder(folder)\n",
        "            pass\n",
        (f"{IN_FOLDERS}::test_what_is_deleted_is_gone_with_one_write_of_what_is_left",),
    ),
    Mutant(
        "deletions_that_a_kill_cut_off_may_come_back", "P13", "fluss_lab/server/tablet/buckets/bucket_folders.py",
        "            self._left.append(folder.parent)\n",
        "            self._left += [] if aside is None else [folder.parent]\n",
        (f"{IN_FOLDERS}::test_a_deletion_that_a_kill_cut_off_is_made_durable_when_it_is_repeated",),
    ),
    Mutant(
        "what_was_not_released_is_forgotten", "P13", "fluss_lab/server/coordinator/tablets/leadership.py",
        "if group not in left and there",
        "if there",
        (f"{IN_DDL}::test_a_bucket_that_cannot_be_deleted_keeps_no_other_from_it_and_is_tried_again",),
    ),
    Mutant(
        "damaged_previous_offsets_stay", "P7", "fluss_lab/server/tablet/buckets/kv_bucket.py",
        "            self.rebuild_previous(start, stop, error)\n            return",
        "            raise error from None\n            return",
        (f"{IN_REBUILD}::test_previous_offsets_are_rebuilt_in_every_segment",),
    ),
    Mutant(
        "damaged_previous_offsets_keep_segments_from_remote_storage", "P7", "fluss_lab/server/tablet/remote/remote_task.py",
        "            return _is_mended(bucket, error)",
        "            return False",
        (f"{IN_REBUILD}::test_what_is_copied_to_remote_storage_is_rebuilt_first",),
    ),
    Mutant(
        "ids_of_a_transaction_that_was_taken_back", "P13", "fluss_lab/server/coordinator/metadata/metadata_store.py",
        "            if self._depth:\n                return self.next_id(name, first)",
        "            if self._depth < 0:\n                return self.next_id(name, first)",
        (f"{IN_METADATA}::test_quick_ids_within_a_transaction_that_is_taken_back_are_not_given_out_as_others",),
    ),
    Mutant(
        "definition_changed_for_others", "P13", "fluss_lab/model/descriptor.py",
        "        return replace(found, properties=dict(found.properties))\n",
        "        return found\n",
        ("tests/unit/model/test_descriptor.py::test_definitions_that_are_kept_are_parsed_once_and_changed_by_nobody",),
    ),
    Mutant(
        "table_that_is_kept_changed_for_others", "P13", "fluss_lab/client/cluster/metadata_cache.py",
        "properties=MappingProxyType(dict(descriptor.properties))",
        "properties=dict(descriptor.properties)",
        (f"{IN_CACHE}::test_a_table_that_is_shared_cannot_be_changed_and_a_copy_can",),
    ),
    Mutant(
        "table_kept_by_its_path", "P13", "fluss_lab/client/cluster/metadata_cache.py",
        "        self._infos = lru_cache(_TABLES_KEPT)(_table_info)\n",
        "        kept: dict[TablePath, TableInfo] = {}\n"
        "        self._infos = lambda path, *answer: kept.setdefault(path, _table_info(path, *answer))\n",
        (
            f"{IN_CACHE}::test_the_same_answer_gives_the_same_table_and_another_answer_another",
            f"{IN_CACHE}::test_a_table_that_others_alter_or_make_again_is_seen_at_once",
        ),
    ),
)  # fmt: skip
