"""What a lab does on a full disk and on one that cannot be written: its reserve and who may use it, its shadow."""

from tests.mutants.mutant import IN_STATES, LOG, Mutant

RESERVE = "fluss_lab/server/folder/disk_reserve.py"
LIFECYCLE = "fluss_lab/server/coordinator/ddl/table_ddl.py"
PARTITIONS = "fluss_lab/server/coordinator/ddl/partition_ddl.py"
IN_RESERVE = "tests/unit/server/folder/test_disk_reserve.py"
IN_READ_ONLY = "tests/unit/server/folder/test_read_only_lab.py"
READ_ONLY = "fluss_lab/server/folder/read_only_lab.py"
SHADOW = "fluss_lab/server/folder/read_only_lab.py"
_KILLED = (f"{IN_READ_ONLY}::test_a_lab_that_was_killed_is_read_as_it_lies_and_stays_as_it_is",)
_OTHER_LAB = (
    "tests/unit/server/test_identity.py::test_a_server_whose_folder_is_gone_changes_no_file_of_the_lab_in_its_place[removed]",
)
_CLUSTER = (f"{IN_RESERVE}::test_a_cluster_that_finds_its_disk_full_is_read_and_drops_only_until_it_is_not",)

#: P9: a full disk is read, refuses writes, lets tables be dropped, and heals. P1: a lab that cannot be written takes and
#: gives up nothing. P10: its shadow is private. P11, P13: it is read as it lies. P13: what took its folder's place stays as it is.
DISK_ROOM = (
    Mutant(
        "records_of_the_lab_in_its_place_given", "P13", "fluss_lab/server/tablet/tablet_service.py",
        "pool=HandlePool(check=self._reserve.check_place)",
        "pool=HandlePool()",
        ("tests/unit/server/test_identity.py::test_a_server_whose_folder_is_gone_gives_no_record_of_the_lab_in_its_place",),
    ),
    Mutant(
        "lent_room_taken_by_appends", "P9", LOG,
        '        self._options.check_disk(f"{self._log.title}: nothing was appended")\n',
        "",
        _CLUSTER,
    ),
    Mutant(
        "lent_room_taken_by_new_tables", "P9", LIFECYCLE,
        '        self._store.reserve.check(f"table {path} was not created")\n',
        "",
        _CLUSTER,
    ),
    Mutant(
        "lent_room_taken_by_new_databases", "P9", LIFECYCLE,
        '        self._store.reserve.check(f"database {name!r} was not created")\n',
        "",
        _CLUSTER,
    ),
    Mutant(
        "lent_room_taken_by_alterations", "P9", LIFECYCLE,
        '                self._store.reserve.check(f"table {path} was not altered")\n',
        "",
        _CLUSTER,
    ),
    Mutant(
        "lent_room_taken_by_new_partitions", "P9", PARTITIONS,
        '            self._store.reserve.check(f"no partition of table {path} was created")\n',
        "",
        _CLUSTER,
    ),
    Mutant(
        "no_room_lent_to_a_drop", "P9", LIFECYCLE,
        "            self._store.reserve.lend(lambda: self._remove(info, keep_lake=keep_lake))\n",
        "            self._remove(info, keep_lake=keep_lake)\n",
        (f"{IN_RESERVE}::test_without_a_reserve_a_full_disk_refuses_starts_and_drops_and_says_what_to_do",),
    ),
    Mutant(
        "reserve_of_holes", "P9", RESERVE,
        "        if os.fstat(fd).st_blocks * _STAT_BLOCK_BYTES >= stop:\n            return\n",
        "        return\n",
        (f"{IN_RESERVE}::test_where_a_file_system_promises_nothing_bytes_are_written",),
    ),
    Mutant(
        "holes_of_a_copy_taken_for_blocks", "P9", RESERVE,
        "            if found.st_blocks * _STAT_BLOCK_BYTES < found.st_size:\n",
        "            if found.st_blocks < 0:\n",
        (f"{IN_RESERVE}::test_a_copy_with_holes_instead_of_blocks_is_made_real",),
    ),
    Mutant(
        "reserve_restored_from_the_last_room", "P9", RESERVE,
        "self._has_room(self._size - (found or 0) + STEP_BYTES)",
        "self._has_room(self._size - (found or 0))",
        (f"{IN_RESERVE}::test_on_a_full_disk_it_gives_what_is_asked_and_is_short_until_there_is_room_for_all",),
    ),
    Mutant(
        "reserve_never_restored", "P9", "fluss_lab/server/process/server_node.py",
        "        self._reserve_ticker.start()\n",
        "",
        _CLUSTER,
    ),
    Mutant(
        "reserve_given_away_for_other_failures", "P9", RESERVE,
        "            return not is_full(error)\n",
        "            return False\n",
        (f"{IN_RESERVE}::test_what_fails_otherwise_costs_nothing_of_it",),
    ),
    Mutant(
        "a_larger_drop_gets_one_step", "P9", RESERVE,
        "                while room <= 2 * self._size:\n",
        "                while room < 0:\n",
        (f"{IN_RESERVE}::test_what_frees_room_is_run_again_with_as_much_as_it_needs",),
    ),
    Mutant(
        "link_followed_by_the_reserve", "P9", RESERVE,
        "os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDWR | os.O_CREAT | os.O_CLOEXEC",
        (f"{IN_RESERVE}::test_a_link_in_its_place_is_not_followed",),
    ),
    Mutant(
        "start_without_room", "P9", "fluss_lab/server/process/server_node.py",
        "            reserve.prepare()\n",
        "",
        ("tests/unit/server/folder/test_disk_faults.py::test_a_server_killed_on_a_full_disk_starts_on_it_is_read_and_drops",),
    ),
    Mutant(
        "a_lab_that_cannot_be_written_takes_rows", "P1", READ_ONLY,
        '    def check(self, what: str) -> None:\n        """Raise StorageError."""\n        raise self._refusal(what)\n',
        '    def check(self, what: str) -> None:\n        """Raise StorageError."""\n',
        _KILLED,
    ),
    Mutant(
        "spark_started_for_a_lab_that_cannot_be_written", "P9", "fluss_lab/workbench/lab_spark.py",
        "            self._check_writable()\n",
        "            pass\n",
        ("tests/unit/workbench/test_lab_spark.py::"
         "test_a_lab_that_cannot_be_written_refuses_rounds_before_spark_is_started",),
    ),
    Mutant(
        "codec_unpacked_in_the_midst_of_a_query", "P9", "fluss_lab/spark/source/parquet_frame.py",
        "    load_codecs(session)\n",
        "",
        ("tests/unit/workbench/test_spark_loss.py::"
         "test_a_full_disk_of_temporary_files_is_said_and_spark_goes_on_when_there_is_room",),
    ),
    Mutant(
        "a_jvm_started_without_the_files_that_it_needs", "P14", "fluss_lab/spark/session/jvm_surroundings.py",
        "most < needed:\n",
        "most < 0:\n",
        ("tests/unit/spark/session/test_jvm_surroundings.py::"
         "test_too_few_open_files_for_a_jvm_are_said_before_it_starts",),
    ),
    Mutant(
        "no_room_for_a_copy_taken_for_damage", "P11", "fluss_lab/server/folder/metadata_values.py",
        "        if not is_full(error):\n            raise\n",
        "        raise\n",
        ("tests/unit/server/folder/test_lab_inspection.py::"
         "test_no_room_for_a_copy_of_the_metadata_is_no_damage",),
    ),
    Mutant(
        "a_lab_that_cannot_be_written_drops_tables", "P1", READ_ONLY,
        '        raise self._refusal("nothing was dropped")\n',
        "        return action()\n",
        _KILLED,
    ),
    Mutant(
        "a_lab_that_cannot_be_written_forgets_by_age", "P1", "fluss_lab/server/tablet/tablet_service.py",
        "        if self._reserve.is_read_only:\n            return 0\n",
        "",
        _KILLED,
    ),
    Mutant(
        "a_lab_that_cannot_be_written_is_tiered", "P9", "fluss_lab/server/coordinator/tiering/tiering_manager.py",
        '        self._store.reserve.check_writable("nothing was begun in the lake")\n',
        "",
        (f"{IN_READ_ONLY}::test_no_round_is_given_out_where_nothing_can_be_committed",),
    ),
    Mutant(
        "metadata_copied_without_its_last_commits", "P11", SHADOW,
        '_METADATA: Final = (DATABASE_FILE, f"{DATABASE_FILE}-wal")\n',
        "_METADATA: Final = (DATABASE_FILE,)\n",
        _KILLED,
    ),
    Mutant(
        "shadow_of_another_moment", "P13", SHADOW,
        "identity = [str(folder.resolve()), *(_identity_of(folder / name) for name in _METADATA)]",
        "identity = [str(folder.resolve())]",
        (f"{IN_READ_ONLY}::test_a_lab_that_was_changed_has_another_shadow",),
    ),
    Mutant(
        "shadow_that_others_may_use", "P10", SHADOW,
        " or found.st_mode & 0o077:",
        ":",
        (f"{IN_READ_ONLY}::test_a_shadow_that_others_may_use_is_refused",),
    ),
    Mutant(
        "writes_into_a_folder_that_is_gone", "P13", "fluss_lab/server/folder/disk_reserve.py",
        "        if (trouble := self.folder_trouble) is not None:\n            raise StorageError",
        "        if (trouble := None) is not None:\n            raise StorageError",
        ("tests/unit/server/test_identity.py::test_a_lab_whose_folder_is_gone_takes_no_writes_and_leaves_the_lab_in_its_place_alone",),
    ),
    Mutant(
        "recovery_points_go_into_another_labs_folder", "P13", "fluss_lab/server/folder/disk_reserve.py",
        "        return self.folder_trouble is not None\n",
        "        return False\n",
        _OTHER_LAB,
    ),
    Mutant(
        "buckets_of_another_lab_deleted", "P13", "fluss_lab/server/tablet/tablet_service.py",
        '                self._reserve.check_place(f"{bucket} was not deleted")\n',
        "                pass\n",
        _OTHER_LAB,
    ),
    Mutant(
        "drops_where_the_folder_is_another_labs", "P13", "fluss_lab/server/folder/disk_reserve.py",
        '        self.check_place("nothing was dropped")\n',
        "",
        _OTHER_LAB,
    ),
    Mutant(
        "discovery_file_of_another_lab_written", "P13", "fluss_lab/server/process/server_node.py",
        "if self._is_public and self.folder_trouble is None and not",
        "if self._is_public and not",
        _OTHER_LAB,
    ),
    Mutant(
        "folder_that_is_gone_is_no_finding", "P13", "fluss_lab/workbench/health/doctor.py",
        "    if connection is not None and (trouble := _folder_trouble(connection)) is not None:\n",
        "    if connection is None and (trouble := _folder_trouble(connection)) is not None:\n",
        ("tests/unit/server/test_identity.py::test_a_lab_whose_folder_is_gone_takes_no_writes_and_leaves_the_lab_in_its_place_alone",),
    ),
    Mutant(
        "discovery_file_of_another_lab_removed", "P13", "fluss_lab/server/process/discovery.py",
        "    if own is not None:\n",
        "    if False:\n",
        ("tests/unit/server/test_identity.py::test_a_lab_whose_folder_is_gone_takes_no_writes_and_leaves_the_lab_in_its_place_alone",),
    ),
    Mutant(
        "shadow_beside_a_living_server", "P11", "fluss_lab/server/process/discovery.py",
        "        if (found := _read(folder)) is not None and is_alive(found.servers[0]):\n            return folder\n",
        "        _read(folder)\n",
        (f"{IN_READ_ONLY}::test_a_server_that_can_write_the_lab_is_used_where_it_cannot_be_written",),
    ),
    Mutant(
        "torn_tail_in_the_way_of_reading", "P6", "fluss_lab/server/tablet/log/segment.py",
        "        if self.path.is_symlink():\n            return\n",
        "",
        _KILLED,
    ),
    Mutant(
        "states_hidden_and_rounds_ended_by_a_full_disk", "P9", "fluss_lab/server/coordinator/tiering/tiering_manager.py",
        "        except StorageError as error:\n            # States",
        "        except LookupError as error:\n            # States",
        (f"{IN_STATES}::test_while_the_metadata_cannot_be_written_states_are_read_and_heartbeats_taken",),
    ),
    Mutant(
        "table_held_by_a_process_that_is_gone", "P9", "fluss_lab/server/coordinator/tiering/tierer_leases.py",
        "        if lease.has_ended:\n",
        "        if False:\n",
        (f"{IN_STATES}::test_a_tierer_that_ended_while_nothing_could_be_written_holds_its_table_no_longer_than_that",),
    ),
    Mutant(
        "table_made_just_before_the_disk_was_full_never_tiered", "P9",
        "fluss_lab/server/coordinator/tiering/tiering_manager.py",
        "                self._tables[info.table_id] = replace(fresh, state=TieringState.SCHEDULED)\n",
        "",
        (f"{IN_STATES}::test_a_table_that_was_made_just_before_the_disk_was_full_is_tiered_when_there_is_room",),
    ),
)  # fmt: skip
