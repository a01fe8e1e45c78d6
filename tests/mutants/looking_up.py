"""Mutants of lookup joins: what third parties return, where rows go, which keys are equal, and which shuffle is done."""

from tests.mutants.mutant import Mutant

PORTABLE = "fluss_lab/lookup/portable.py"
CONTRACT = "fluss_lab/lookup/contract_checks.py"
PARTITIONER = "fluss_lab/lookup/bucket_partitioner.py"
CASTS = "fluss_lab/lookup/key_cast.py"
PLAN = "fluss_lab/lookup/shuffle_plan.py"
BUCKETING = "fluss_lab/model/bucketing.py"
IN_PORTABLE = "tests/unit/lookup/test_portable.py"
IN_CONTRACT = "tests/unit/lookup/test_contract_checks.py"
IN_PARTITIONER = "tests/unit/lookup/test_bucket_partitioner.py"
IN_CASTS = "tests/unit/lookup/test_key_cast.py"
IN_PLAN = "tests/unit/lookup/test_shuffle_plan.py"
IN_BUCKETING = "tests/unit/model/test_bucketing.py"


def _contract(name: str, text: str, replacement: str, test: str) -> Mutant:
    return Mutant(name, "P11", CONTRACT, text, replacement, (f"{IN_CONTRACT}::{test}",))


def _cast(name: str, text: str, replacement: str, test: str) -> Mutant:
    return Mutant(name, "P11", CASTS, text, replacement, (f"{IN_CASTS}::{test}",))


def _rule(name: str, text: str, replacement: str, test: str) -> Mutant:
    return Mutant(name, "P11", PLAN, text, replacement, (f"{IN_PLAN}::{test}",))


#: P11: what is not known is an error, never an empty or shorter answer.
LOOKING_UP = (
    Mutant(
        "class_of_a_notebook_sent_to_tasks",
        "P11",
        PORTABLE,
        'if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:',
        'if "<locals>" in kind.__qualname__:',
        (f"{IN_PORTABLE}::test_a_class_of_a_script_is_refused_by_name",),
    ),
    Mutant(
        "any_class_made_from_text",
        "P11",
        PORTABLE,
        "if not (isinstance(found, type) and issubclass(found, expected)):",
        "if not isinstance(found, type):",
        (f"{IN_PORTABLE}::test_only_classes_of_the_kind_expected_are_called",),
    ),
    _contract(
        "partition_out_of_range_taken",
        "np.flatnonzero((numbers < 0) | (numbers >= partitions))",
        "np.flatnonzero(numbers < 0)",
        "test_a_wrong_partition_is_an_error_that_names_the_partitioner",
    ),
    _contract(
        "too_few_partitions_taken",
        "if len(found) != asked.num_rows:",
        "if len(found) > asked.num_rows:",
        "test_a_wrong_partition_is_an_error_that_names_the_partitioner",
    ),
    _contract(
        "null_keys_given_to_a_partitioner",
        "asked = keys if known.true_count == keys.num_rows else keys.filter(known)",
        "asked = keys",
        "test_rows_with_a_null_among_their_keys_go_to_partition_0_and_are_not_asked_for",
    ),
    _contract(
        "lie_about_determinism_believed",
        "if (wrong := np.flatnonzero(found != expected)).size:",
        "if (wrong := np.flatnonzero(found > partitions)).size:",
        "test_a_partitioner_that_lies_about_determinism_is_named",
    ),
    _contract(
        "descending_positions_taken",
        "if (steps < 0).any():",
        "if False:",
        "test_wrong_rows_are_an_error_that_names_the_function",
    ),
    _contract(
        "second_row_of_a_unique_key_taken",
        "if is_unique and (steps == 0).any():",
        "if False:",
        "test_wrong_rows_are_an_error_that_names_the_function",
    ),
    _contract(
        "positions_beyond_the_keys_taken",
        "if len(at) and not 0 <= at.min() <= at.max() < keys.num_rows:",
        "if len(at) and not 0 <= at.min():",
        "test_wrong_rows_are_an_error_that_names_the_function",
    ),
    _contract(
        "other_columns_taken",
        "if [(field.name, field.type) for field in found.rows.schema] != [(field.name, field.type) for field in schema]:",
        "if found.rows.num_columns != len(schema):",
        "test_wrong_rows_are_an_error_that_names_the_function",
    ),
    Mutant(
        "task_without_the_last_bucket_of_its_slots",
        "P11",
        PARTITIONER,
        "return tuple(range(task * per_task // shared, ((task + 1) * per_task - 1) // shared + 1))",
        "return tuple(range(task * per_task // shared, ((task + 1) * per_task - 1) // shared))",
        (f"{IN_PARTITIONER}::test_slots_of_numbers_without_a_common_part",),
    ),
    Mutant(
        "tasks_of_a_bucket_chosen_by_the_remainder_again",
        "P11",
        BUCKETING,
        "((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32))",
        "(fluss_bucket_ids(columns, BUCKETS_MAX).to_numpy() % parts)",
        (f"{IN_BUCKETING}::test_the_parts_of_each_bucket_are_even",),
    ),
    _cast(
        "numbers_cut_off_to_match",
        'fits = pc.equal(pc.round(wide, ndigits=wanted_scale, round_mode="towards_zero"), wide)',
        'wide = pc.round(wide, ndigits=wanted_scale, round_mode="towards_zero")\n    fits = wide.is_valid()',
        "test_numbers_are_cast_exactly_or_match_nothing",
    ),
    _cast(
        "integers_wrapped_around_to_match",
        "return pc.if_else(pc.equal(back, values), there, pa.scalar(None, wanted))",
        "return there",
        "test_numbers_are_cast_exactly_or_match_nothing",
    ),
    _cast(
        "decimals_that_have_not_all_integers_called_lossless",
        "found_whole <= whole - pa.types.is_integer(wanted)",
        "found_whole <= whole",
        "test_numbers_are_cast_exactly_or_match_nothing",
    ),
    _cast(
        "moments_compared_with_local_times",
        "if (found.tz is None) == (wanted.tz is None):",
        "if found is not None:",
        "test_only_types_of_one_kind_are_compared",
    ),
    _cast(
        "numbers_compared_that_spark_rounds",
        "<= _DECIMAL_DIGITS_MAX:",
        "<= 2 * _DECIMAL_DIGITS_MAX:",
        "test_numbers_that_spark_would_round_to_compare_them_are_refused",
    ),
    _cast(
        "keys_of_any_equal_type_looked_up",
        "or (found == wanted and (pa.types.is_boolean(found) or pa.types.is_date32(found)))",
        "or found == wanted",
        "test_only_types_of_one_kind_are_compared",
    ),
    _rule(
        "shuffle_that_nobody_asked_for",
        '    if tasks is None:\n        return ShufflePlan(NONE, "not asked for")\n',
        "    tasks = 1 if tasks is None else tasks\n",
        "test_without_being_asked_for_there_is_none",
    ),
    _rule(
        "partitioner_without_its_keys",
        "if not set(bucket_keys) <= set(keys):",
        "if not set(bucket_keys) & set(keys):",
        "test_join_keys_that_do_not_cover_the_bucket_keys",
    ),
    _rule(
        "updates_not_resolved",
        "if traits.is_updating and traits.is_moving and traits.updates_matter:",
        "if not traits:",
        "test_updates_that_are_to_be_resolved",
    ),
    _rule("lossy_keys_partitioned", "if casts.lossy:", "if not casts:", "test_keys_that_the_source_s_type_has_not"),
    _rule(
        "source_without_a_wish_shuffled",
        'return ShufflePlan(NONE, f"{source.name} wants its input distributed as it is")',
        'return ShufflePlan(HASH, f"{source.name} wants its input distributed as it is", tasks)',
        "test_a_source_that_wants_its_input_as_it_is",
    ),
    _rule(
        "updates_spread_by_chance",
        "if traits.is_updating and not is_deterministic:",
        "if not traits:",
        "test_a_partitioner_that_is_not_deterministic_is_for_input_without_updates",
    ),
    _rule(
        "source_without_the_ability_left_alone",
        'return ShufflePlan(HASH, f"{source.name} has no partitioner of its own", tasks)',
        'return ShufflePlan(NONE, f"{source.name} has no partitioner of its own")',
        "test_a_source_without_the_ability_gets_its_input_by_join_keys",
    ),
)
