"""Mutants of lookup joins on Spark: each row at its batch's point, in its task, matched as the condition says."""

from tests.mutants.mutant import Mutant

POINTS = "fluss_lab/spark/lookup/batch_points.py"
TASK = "fluss_lab/spark/lookup/lookup_task.py"
FOLDER = "fluss_lab/spark/lookup/task_folder.py"
IN_POINTS = "tests/unit/spark/lookup/test_batch_points.py"
IN_TASK = "tests/unit/spark/lookup/test_lookup_task.py"
IN_FOLDER = "tests/unit/spark/lookup/test_task_folder.py"

#: P4: a lookup equals the model at its read point; P13: no table is taken for another one.
LOOKING_UP_ON_SPARK = (
    Mutant(
        "kept_point_of_a_batch_ignored", "P4", POINTS,
        "    if (kept := _read(path, source, identity)) is not None:\n        return kept\n", "",
        (f"{IN_POINTS}::test_a_batch_keeps_its_point",),
    ),
    Mutant(
        "point_of_the_task_that_came_first_ignored", "P4", POINTS,
        "        # Another task was first.\n        return _read(path, source, identity)\n", "        return present\n",
        (f"{IN_POINTS}::test_tasks_that_come_at_once_have_one_point",),
    ),
    Mutant(
        "point_of_a_table_made_again_taken", "P13", POINTS,
        "    if not is_same_table(found.identity, identity):\n", "    if not found.identity:\n",
        (f"{IN_POINTS}::test_another_table_of_the_name_is_refused",),
    ),
    Mutant(
        "next_batch_does_not_look_at_the_last_one", "P13", POINTS,
        "        _read(folder / str(others[-1]), source, identity)\n", "        pass\n",
        (f"{IN_POINTS}::test_another_table_of_the_name_is_refused",),
    ),
    Mutant(
        "stream_looks_up_at_no_point", "P4", TASK,
        "            point = kept_point(batch, task.source, function) if task.has_points else None\n", "",
        (f"{IN_TASK}::test_a_stream_looks_up_at_the_kept_point",),
    ),
    Mutant(
        "placement_not_checked", "P4", TASK,
        "            check_partitions(functions.partitioner, keys, self.parallelism, given)\n", "",
        (f"{IN_TASK}::test_rows_with_another_number_than_the_partitioner_gives",),
    ),
    Mutant(
        "rows_of_all_numbers_looked_up_by_the_first", "P4", TASK,
        "        if len(present) == 1:\n", "        if len(present):\n",
        (f"{IN_TASK}::test_rows_of_several_numbers_in_one_task",),
    ),
    Mutant(
        "rows_of_several_functions_out_of_order", "P4", TASK,
        '    order = np.argsort(positions, kind="stable")\n', "    order = np.arange(len(positions))\n",
        (f"{IN_TASK}::test_rows_of_several_numbers_in_one_task",),
    ),
    Mutant(
        "two_tasks_share_a_folder", "P4", FOLDER,
        "                if try_lock(lock):\n", "                if try_lock(lock) or True:\n",
        (f"{IN_FOLDER}::test_no_two_tasks_share_one",),
    ),
)  # fmt: skip
