"""Tables of growth in documents are those of the kept report, and fitted exponents are those that the values have."""

import pytest

from benchmarks.growth import curve_fit, documents
from benchmarks.growth.growth_report import AxisReport, GrowthReport, exponent, long_table, short_table, shown
from benchmarks.growth.log_picture import picture
from benchmarks.growth.meter import Measured
from benchmarks.processes import Usage
from tests.architecture import laws

SIZES = (1, 3, 10, 32, 100, 316, 1_000)


def _report(power=1.0):
    values = {size: round(0.2 + 0.001 * size**power, 4) for size in SIZES}
    measured = Measured("s", dict(values), {size: 2 * value for size, value in values.items()})
    axis = AxisReport(
        "things", "all else", "a machine", ("work", "idle"), {"work": measured, "idle": Measured("%", {1: 0.5, 10: 0})}
    )
    return GrowthReport((axis,))


def test_the_documents_are_made_of_the_kept_report():
    made = documents.documents()
    assert {"README.md", "performance.md"} < {path.name for path in made}
    for path, text in made.items():
        assert (laws.ROOT / path).read_text() == text, f"{path}: python -m benchmarks growth --documents writes it"


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("fixed", [0.0, 0.2])
def test_the_exponent_is_found_beside_any_fixed_cost(power, fixed):
    found = curve_fit.fit({size: fixed + 0.01 * size**power for size in SIZES})
    assert found.exponent == pytest.approx(power, abs=0.011)
    assert found.fixed == pytest.approx(fixed, rel=0.01, abs=0.001)
    assert found.at(1_000) == pytest.approx(fixed + 0.01 * 1_000**power, rel=0.01)


def test_the_exponent_is_found_of_values_that_are_off(rng):
    values = {size: (0.5 + 0.004 * size) * (1 + rng.uniform(-0.1, 0.1)) for size in SIZES}
    found = curve_fit.fit(values)
    assert found.low <= 1 <= found.high
    assert not found.is_above_linear


def test_a_loop_in_a_loop_is_distinguished_from_what_is_linear():
    assert curve_fit.fit({size: 0.1 + 0.001 * size**1.5 for size in SIZES}).is_above_linear
    assert not curve_fit.fit({size: 0.1 + 0.001 * size for size in SIZES}).is_above_linear


def test_one_value_that_is_off_makes_no_loop_in_a_loop():
    found = curve_fit.fit({1: 0.432, 3: 0.394, 10: 0.178, 32: 1.62})
    assert found.exponent > 2
    assert not found.is_above_linear


def test_what_does_not_grow_is_flat_and_too_few_sizes_are_no_curve():
    flat = curve_fit.fit({size: 1 + size / 10_000 for size in SIZES})
    assert (flat.is_flat, flat.slope(1_000)) == (True, 0)
    assert exponent(flat) == "flat"
    assert curve_fit.fit({1: 1.0, 10: 2.0, 100: 3.0}) is None
    assert curve_fit.fit({1: 0.0, 10: 0.0, 100: 1.0, 1_000: 2.0}) is None
    assert curve_fit.fit({}) is None


def test_only_the_upper_three_decades_are_fitted():
    values = {size: 0.001 * size for size in (10, 100, 1_000, 10_000, 100_000)}
    assert curve_fit.fit(values | {10: 50.0}) == curve_fit.fit({size: values[size] for size in values if size > 10})


def test_a_report_is_read_back_as_it_was_written():
    report = _report()
    again = GrowthReport.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    assert (long_table(again.axes[0]), short_table(again)) == (long_table(report.axes[0]), short_table(report))
    with pytest.raises(ValueError, match="version 0"):
        GrowthReport.from_json(report.to_json().replace('"version": 1', '"version": 0'))


def test_an_axis_that_is_measured_anew_replaces_its_older_one():
    older = GrowthReport((*_report().axes, AxisReport("others", "", "", (), {})))
    newer = older.with_axes(_report(2.0).axes)
    assert [axis.name for axis in newer.axes] == ["things", "others"]
    assert "**2.00**" in long_table(newer.axes[0])
    assert "**" not in long_table(older.axes[0])


def test_tables_say_values_exponent_fixed_and_further_cost():
    lines = long_table(_report().axes[0]).splitlines()
    assert lines[0] == "| things | 1 | 10 | 100 | 1,000 | exponent | by the clock | fixed | one more |"
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert cells == ["work", "201 ms", "210 ms", "300 ms", "1.2 s", cells[5], cells[6], "200 ms", "1.0 ms"]
    assert cells[5].startswith("1.00")
    assert short_table(_report()).splitlines()[2].startswith("| things, 1 to 1,000 | work 201 ms to 1.2 s, 1.00")


def test_values_are_shown_with_two_figures_and_a_unit():
    found = [shown(value, "s") for value in (0, 12.34, 1.234, 0.1234, 0.00123, 1.2e-6, 4e-10)]
    assert found == ["0", "12 s", "1.2 s", "123 ms", "1.2 ms", "1.2 µs", "0.40 ns"]
    assert [shown(value, "bytes") for value in (12, 3_151, 5.4e7)] == ["12 B", "3.2 kB", "54 MB"]


def test_a_picture_has_a_point_for_each_time_and_no_value_that_is_none():
    text = picture(_report().axes[0])
    assert text.count('r="3"') == len(SIZES)
    assert "work: 1.00" in text
    assert "idle" not in text


def test_a_table_is_put_between_the_marks_and_nowhere_else():
    text = f"a\n{documents.BEGIN}\nold\n{documents.END}\nb\n"
    once = documents.between(text, "new")
    assert once == f"a\n{documents.BEGIN}\nnew\n{documents.END}\nb\n"
    assert documents.between(once, "new") == once
    for broken in ("a", f"{documents.BEGIN}\n", text + text):
        with pytest.raises(ValueError, match="marks"):
            documents.between(broken, "new")


def test_what_processes_used_is_counted_once_and_never_below_nothing():
    # 2 ended and its parent 1 counts it now; 3 ended unseen; 4 is new.
    before = Usage({1: (0, 10.0, 5.0), 2: (1, 3.0, 1.0), 3: (1, 7.0, 0.0)})
    assert before.until(Usage({1: (0, 11.0, 9.5), 3: (1, 7.0, 0.0), 4: (1, 0.25, 0.0)})) == 1.75
    assert before.until(Usage({1: (0, 10.0, 5.0)})) == 0
    now = Usage.now()
    assert 0 <= now.until(Usage.now()) < 60
