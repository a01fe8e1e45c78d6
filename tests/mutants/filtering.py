"""Mutants of filters: literals that keep the truth, what is handed to files, sizes and depths."""

from tests.mutants.mutant import Mutant

IN_ARROW_FILTER = "tests/unit/read/filter/test_arrow_filter.py"
LITERALS = "fluss_lab/read/filter/typed_conditions.py"
ICEBERG_FILTER = "fluss_lab/read/filter/iceberg_filter.py"
PREDICATES = "fluss_lab/read/filter/predicates.py"
ARROW_FILTER = "fluss_lab/read/filter/arrow_filter.py"
SYNTAX = "fluss_lab/read/filter/sql_parser.py"
TERMS = "fluss_lab/read/filter/computed_values.py"
PLAN = "fluss_lab/read/union/read_plan.py"
IN_MATRIX = "tests/unit/read/filter/test_where_matrix.py"
COMPILER = "fluss_lab/read/filter/filter_compiler.py"
IN_FILTERS = "tests/unit/read/filter/test_filter_compiler.py"
IN_LIMITS = "tests/unit/read/filter/test_filter_limits.py"
IN_TERMS = "tests/unit/read/filter/test_computed_values.py"

#: P4: a filter keeps the same rows wherever they lie.
FILTERING = (
    Mutant(
        "decimals_made_doubles_by_arrow",
        "P4",
        TERMS,
        "    if pa.types.is_decimal(term.type) and pa.types.is_floating(target):\n",
        "    if pa.types.is_decimal(term.type) and pa.types.is_floating(term.type):\n",
        (f"{IN_TERMS}::test_what_is_computed",),
    ),
    Mutant(
        "doubles_made_decimals_by_arrow",
        "P4",
        TERMS,
        '    if pa.types.is_decimal(target) and source == "a double":\n',
        '    if pa.types.is_decimal(term.type) and source == "a double":\n',
        (f"{IN_TERMS}::test_what_is_computed",),
    ),
    Mutant(
        "filter_kept_for_another_schema",
        "P4",
        COMPILER,
        '    kept: Callable[[str], Filter] | None = schema.derived.get("filters")\n'
        '    return kept or schema.derived.setdefault("filters", lru_cache(_KEPT)(partial(_sql_filter, schema)))\n',
        "    shared = compile_filter.__dict__\n"
        '    return shared.setdefault("filters", lru_cache(_KEPT)(partial(_sql_filter, schema)))\n',
        (f"{IN_FILTERS}::test_a_text_means_what_it_means_in_each_schema",),
    ),
    Mutant(
        "filter_decided_once_for_all",
        "P4",
        COMPILER,
        "return self._undecided if self.columns.isdisjoint(known) else self._decide(known)",
        "return self._undecided",
        (f"{IN_FILTERS}::test_a_decided_filter_keeps_the_same_rows",),
    ),
    Mutant(
        "infinity_pruned_by_statistics",
        "P4",
        ICEBERG_FILTER,
        "if pa.types.is_float32(dtype) and not isfinite(value.as_py()):",
        "if pa.types.is_float32(dtype) and value.as_py() != value.as_py():",
        (f"{IN_MATRIX}::test_a_comparison_keeps_the_same_rows_wherever_they_lie",),
    ),
    Mutant(
        "float_literal_rounded",
        "P4",
        LITERALS,
        "    if float(nearest) == number:  #",
        "    if float(nearest) == float(nearest):  #",
        (f"{IN_MATRIX}::test_every_comparison_is_exact",),
    ),
    Mutant(
        "float_literal_moved_the_wrong_way",
        "P4",
        LITERALS,
        "low = nearest if below else np.nextafter(nearest, kind(-inf))",
        "low = nearest",
        (f"{IN_MATRIX}::test_every_comparison_is_exact",),
    ),
    Mutant(
        "decimal_literal_cut_to_the_scale",
        "P4",
        LITERALS,
        "return Decimal((sign, digits, exponent + places)) if isinstance(exponent, int) else number",
        "return Decimal((sign, digits, max(exponent + places, 0))) if isinstance(exponent, int) else number",
        (f"{IN_FILTERS}::test_sql_keeps_the_rows_for_which_it_is_true",),
    ),
    Mutant(
        "one_zero_looked_for_in_one_bucket",
        "P4",
        PLAN,
        "return [*values, 0.0, -0.0] if any(",
        "return [*values] if any(",
        (f"{IN_MATRIX}::test_both_zeros_of_a_key_are_found_in_their_buckets",),
    ),
    Mutant(
        "isin_of_a_null_unknown",
        "P4",
        ARROW_FILTER,
        "junction(True, [among, negate(null)])",
        "among",
        (f"{IN_ARROW_FILTER}::test_an_arrow_expression_is_understood_as_what_it_does",),
    ),
    Mutant(
        "long_isin_taken_for_its_range",
        "P4",
        ARROW_FILTER,
        'compare(reference, "<=", ends["max"]), self.apply(node)])',
        'compare(reference, "<=", ends["max"])])',
        (f"{IN_LIMITS}::test_a_long_list_prunes_by_its_range",),
    ),
    Mutant(
        "columns_of_expressions_in_any_case",
        "P4",
        ARROW_FILTER,
        "return self.conditions.column(path, exactly=True)",
        "return self.conditions.column(path)",
        (f"{IN_ARROW_FILTER}::test_an_arrow_expression_that_cannot_be_is_refused",),
    ),
    Mutant(
        "equalities_not_folded",
        "P4",
        PREDICATES,
        "        if len(same) > 1:\n",
        "        if len(same) > 1_000_000:\n",
        (f"{IN_LIMITS}::test_a_filter_of_thousands_of_terms_is_read",),
    ),
    Mutant(
        "filters_of_any_size",
        "P4",
        PREDICATES,
        "for _ in leaves(node))) > LEAVES_MAX:",
        "for _ in leaves(node))) > 100 * LEAVES_MAX:",
        (f"{IN_LIMITS}::test_too_much_is_refused_in_few_words",),
    ),
    Mutant(
        "texts_of_any_depth",
        "P4",
        SYNTAX,
        "        if depth + run > DEPTH_MAX:\n",
        "        if depth + run > 100 * DEPTH_MAX:\n",
        (f"{IN_LIMITS}::test_too_much_is_refused_in_few_words",),
    ),
    Mutant(
        "functions_of_any_depth",
        "P4",
        ARROW_FILTER,
        "        if depth > COMPUTED_DEPTH_MAX:\n",
        "        if depth > 100 * COMPUTED_DEPTH_MAX:\n",
        (f"{IN_LIMITS}::test_too_much_is_refused_in_few_words",),
    ),
    Mutant(
        "dividing_by_zero",
        "P4",
        TERMS,
        "        right = _not_zero(right)\n",
        "",
        (f"{IN_TERMS}::test_what_is_computed",),
    ),
    Mutant(
        "sums_that_wrap_around",
        "P4",
        TERMS,
        '"+": pc.add_checked,',
        '"+": pc.add,',
        (f"{IN_TERMS}::test_what_cannot_be_computed_for_a_row_fails_and_says_so",),
    ),
)
