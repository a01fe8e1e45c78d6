"""Mutants of values: what pandas frames hold, which moments are meant, and which arguments are taken."""

from tests.mutants.mutant import Mutant

FRAMES = "fluss_lab/model/frames.py"
LAB = "fluss_lab/workbench/lab.py"
IN_FRAMES = "tests/unit/model/test_frames.py"
IN_LAB = "tests/unit/workbench/test_lab.py"

#: P4: a union read equals the model at its read point.
VALUES = (
    Mutant(
        "integers_with_a_null_made_floats",
        "P4",
        FRAMES,
        "return plain.to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)",
        "return plain.to_pandas(integer_object_nulls=True)",
        (f"{IN_FRAMES}::test_integers_and_booleans_are_nullable_types",),
    ),
    Mutant(
        "nested_integers_with_a_null_made_floats",
        "P4",
        FRAMES,
        "return plain.to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)",
        "return plain.to_pandas(types_mapper=_dtypes().get)",
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
)
