"""Mutants of values: what pandas frames hold, which moments are meant, and which arguments are taken."""

from tests.mutants.mutant import Mutant

FRAMES = "fluss_lab/model/values/pandas_frames.py"
LAB = "fluss_lab/workbench/lab_tables.py"
TIMES = "fluss_lab/model/times.py"
READER = "fluss_lab/read/table_reader.py"
RANGES = "fluss_lab/read/changelog/offset_ranges.py"
IN_TIMES = "tests/unit/model/test_times.py"
IN_MOMENTS = "tests/unit/read/moment/test_moments.py"
ARGUMENTS = "fluss_lab/model/argument_checks.py"
EXPORT = "fluss_lab/read/row_export.py"
CASTS = "fluss_lab/model/values/casts.py"
IN_ARGUMENTS = "tests/unit/workbench/test_arguments.py"
IN_FRAMES = "tests/unit/model/values/test_pandas_frames.py"
IN_LAB = "tests/unit/workbench/test_lab.py"

#: P4: a union read equals the model at its read point.
VALUES = (
    Mutant(
        "values_behind_2_gb_are_refused",
        "P8",
        CASTS,
        "        if _lies_high(array):\n",
        "        if not _lies_high(array) and len(array) < 0:\n",
        ("tests/unit/model/values/test_row_input.py::test_values_behind_2_gb_of_others_are_taken",),
    ),
    Mutant(
        "time_beyond_the_lake_taken",
        "P2",
        CASTS,
        "        elif _is_coarse(target):\n            _check_micros(made, target, place)\n",
        "",
        ("tests/unit/model/values/test_row_input.py::test_arrow_values_that_do_not_fit_are_refused",),
    ),
    Mutant(
        "time_beyond_the_lake_vouched_for",
        "P2",
        CASTS,
        'dtype.name == "CHAR" or _is_coarse(dtype)',
        'dtype.name == "CHAR"',
        ("tests/unit/model/values/test_row_input.py::test_arrow_values_that_do_not_fit_are_refused",),
    ),
    Mutant(
        "types_learnt_by_threads_together",
        "P6",
        "fluss_lab/model/json_codec.py",
        "    with _LEARNING:\n        msgspec.json.Decoder(kind)\n",
        "    msgspec.json.Decoder(kind)\n",
        ("tests/unit/model/test_json_codec.py::test_threads_may_read_a_type_for_the_first_time_together",),
    ),
    Mutant(
        "integers_with_a_null_made_floats",
        "P4",
        FRAMES,
        "frame = plain.to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)",
        "frame = plain.to_pandas(integer_object_nulls=True)",
        (f"{IN_FRAMES}::test_integers_and_booleans_are_nullable_types",),
    ),
    Mutant(
        "nested_integers_with_a_null_made_floats",
        "P4",
        FRAMES,
        "frame = plain.to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)",
        "frame = plain.to_pandas(types_mapper=_dtypes().get)",
        (f"{IN_FRAMES}::test_a_frame_keeps_every_value_has_the_same_dtypes_and_goes_back_in",),
    ),
    Mutant(
        "floats_too_large_to_be_one_integer_taken",
        "P4",
        FRAMES,
        "pc.less_equal(pc.abs(array), float(_FLOAT_EXACT_MAX))",
        "pc.is_finite(array)",
        (f"{IN_FRAMES}::test_floats_that_are_no_integer_are_refused_with_their_row",),
    ),
    Mutant(
        "a_column_in_the_index_left_out",
        "P4",
        FRAMES,
        "if name in wanted and name not in frame.columns",
        "if name in wanted and name in frame.columns",
        (f"{IN_FRAMES}::test_a_column_in_the_index_of_a_frame_is_not_left_out_silently",),
    ),
    Mutant(
        "rows_written_again_to_a_table_that_is_there",
        "P2",
        LAB,
        "if_not_exists and first is None)",
        "if_not_exists)",
        (f"{IN_LAB}::test_a_table_is_made_and_filled_of_a_frame",),
    ),
    Mutant(
        "numpy_s_texts_end_at_a_nul",
        "P11",
        "fluss_lab/model/values/row_input.py",
        'values.dtype.kind in "SU"',
        'values.dtype.kind in "XY"',
        ("tests/unit/model/values/test_row_input.py::test_numpy_s_bytes_and_texts_keep_what_is_behind_a_nul",),
    ),
    Mutant(
        "categories_of_several_types_made_one",
        "P11",
        FRAMES,
        '"categories", _NO_CATEGORIES).dtype == object:',
        '"categories", _NO_CATEGORIES).dtype is None:',
        ("tests/unit/model/values/test_row_input.py::test_categories_of_several_types_are_judged_one_by_one",),
    ),
    Mutant(
        "open_quotation_mark_taken_for_a_value",
        "P11",
        "fluss_lab/workbench/load/csv_file.py",
        "if count % 2 and last in",
        "if count % 2 == 2 and last in",
        ("tests/unit/workbench/load/test_csv_file.py::test_what_is_no_table_is_refused_by_row_and_column",),
    ),
    Mutant(
        "files_of_others_replaced_by_an_export",
        "P13",
        EXPORT,
        "if is_file or not _PART.fullmatch(each.name)",
        "if is_file",
        ("tests/unit/read/test_row_export.py::test_what_is_not_ours_is_never_replaced",),
    ),
    Mutant(
        "times_without_a_zone_taken_as_utc",
        "P4",
        TIMES,
        "moment = moment.astimezone(UTC) if zone is None else moment.replace(tzinfo=zone)",
        "moment = moment.replace(tzinfo=UTC)",
        (
            f"{IN_TIMES}::test_every_form_is_the_same_moment",
            f"{IN_TIMES}::test_what_has_no_zone_is_in_the_systems_as_for_python",
        ),
    ),
    Mutant(
        "the_zone_of_the_lab_not_asked_for",
        "P4",
        READER,
        "as_of_ms = parse_moment(as_of, source.connection.time_zone)",
        "as_of_ms = parse_moment(as_of)",
        (f"{IN_MOMENTS}::test_times_without_a_zone_are_in_that_of_the_lab",),
    ),
    Mutant(
        "seconds_taken_for_milliseconds",
        "P4",
        TIMES,
        "    if 0 < number < _SECONDS_MAX:",
        "    if 0 < number < 0:",
        (f"{IN_TIMES}::test_seconds_are_not_taken_for_milliseconds",),
    ),
    Mutant(
        "a_time_before_the_table_an_empty_one",
        "P4",
        READER,
        "if as_of_ms < self.info.created_ms:",
        "if as_of_ms < 0:",
        (f"{IN_MOMENTS}::test_a_time_before_the_table_was_made_is_no_empty_table",),
    ),
    Mutant(
        "a_start_beyond_the_end_gives_nothing",
        "P4",
        RANGES,
        """        if first.checked and bucket.is_known and begin > bucket.end and not _is_rest_gone(bucket, start):
            raise _outside(source, bucket, low, "a start", str(begin))
        if bucket.key in""",
        """        if bucket.key in""",
        (f"{IN_MOMENTS}::test_buckets_and_starts_that_are_not_are_errors",),
    ),
    Mutant(
        "a_bucket_that_is_not_gives_nothing",
        "P4",
        RANGES,
        "if number is None or not 0 <= number < info.descriptor.buckets:",
        "if number is None:",
        (f"{IN_MOMENTS}::test_buckets_and_starts_that_are_not_are_errors",),
    ),
    Mutant(
        "batches_of_no_rows_asked_for",
        "P4",
        ARGUMENTS,
        """    "rows_max": (1, 2**31 - 1),""",
        """    "rows_max": (0, 2**31 - 1),""",
        (f"{IN_ARGUMENTS}::test_wrong_arguments_get_an_answer_or_an_error_of_ours",),
    ),
    Mutant(
        "a_class_that_checks_no_arguments",
        "P4",
        EXPORT,
        "@check_arguments\nclass TableRead(ABC):",
        "class TableRead(ABC):",
        (f"{IN_ARGUMENTS}::test_wrong_arguments_get_an_answer_or_an_error_of_ours",),
    ),
    Mutant(
        "elements_of_lists_not_checked",
        "P4",
        ARGUMENTS,
        "return _OTHER if any(each is _OTHER for each in found) else found",
        "return list(given)",
        (f"{IN_ARGUMENTS}::test_wrong_arguments_get_an_answer_or_an_error_of_ours",),
    ),
)
