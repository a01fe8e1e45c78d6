"""The plan of a compaction: which files are put together, how often a row is written again, how many files are left."""

import pytest

from fluss_lab.lake.iceberg.maintenance.compaction_plan import (
    DELETE_FILES_MAX,
    growth_start,
    merge_start,
    packing_runs,
)


@pytest.mark.parametrize(
    ("sizes", "force", "runs"),
    [
        ([1, 1, 1, 1, 1], False, [(0, 5)]),
        ([1, 1, 1, 1], False, []),
        ([1, 1], True, [(0, 2)]),
        ([1], True, []),
        ([60, 1, 1, 1, 1, 1], False, [(1, 6)]),  # a file far larger than all after it is left alone
        ([4, 1, 1, 1, 1, 1], False, [(0, 6)]),
        ([60, 50], False, [(0, 2)]),  # they fill a file
        ([100, 1, 1, 1, 1, 1, 100, 1, 1], True, [(1, 6), (7, 9)]),
        ([100, 100], True, []),
        ([181], False, [(0, 1)]),  # too large: it is cut
        ([1, 181, 1], True, [(1, 2)]),
    ],
)
def test_which_files_are_put_together(sizes, force, runs):
    assert packing_runs(sizes, 100, force=force) == runs


def test_a_row_is_rewritten_a_bounded_number_of_times():
    """Rounds of equal files: what is written stays within a dozen times the data, what is left within some files."""
    sizes, written, most = [], 0, 0
    for _ in range(2000):
        sizes.append(1)
        for low, high in packing_runs(sizes, 1000, force=False):
            written += sum(sizes[low:high])
            sizes[low:high] = [sum(sizes[low:high])]
        most = max(most, len(sizes))
    assert written < 12 * 2000
    assert most < 20


def test_growth_start_takes_a_large_file_only_with_enough_after_it():
    assert growth_start([10, 9]) == 0
    assert growth_start([10, 5, 2]) == 3
    assert growth_start([10, 5, 4, 1]) == 0
    assert growth_start([]) == 0


def test_delete_files_stay_few_and_an_event_is_rewritten_a_bounded_number_of_times(rng):
    """Rounds of equal files and of very unlike ones."""
    for sizes_of in (lambda: 1, lambda: 3 ** rng.randrange(14)):
        sizes, given, written = [], 0, 0
        for _ in range(2000):
            sizes.append(sizes_of())
            given += sizes[-1]
            if len(sizes) > DELETE_FILES_MAX:
                sizes.sort(reverse=True)
                start = merge_start(sizes)
                written += sum(sizes[start:])
                sizes[start:] = [sum(sizes[start:])]
            assert len(sizes) <= DELETE_FILES_MAX
        assert written < 6 * given
    assert merge_start([4**power for power in range(11, 0, -1)]) == DELETE_FILES_MAX - 1
