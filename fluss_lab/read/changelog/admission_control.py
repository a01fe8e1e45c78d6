"""The admission control of a stream: how many records the next batch takes of each bucket (Spark's ``maxRowsPerTrigger``)."""

from __future__ import annotations

from collections.abc import Sequence


def admit(backlogs: Sequence[int], rows_max: int, turn: int) -> list[int]:
    """Return how many records each of several buckets may give, together at most `rows_max`.

    All get the same, as far as they have it: what one has too little of, the others share. What does not divide goes one
    by one to the buckets from `turn` on, in a circle: where `turn` moves on by what was given, as the records read so far
    do, every bucket gets on within as many calls as there are buckets, also when `rows_max` is smaller than their number.

    Args:
        backlogs: How many records each has; not negative.
        rows_max: How many may be given; not negative.
        turn: Which bucket is the first to get one more; any number.
    """
    given = [0] * len(backlogs)
    left = rows_max
    while hungry := [index for index, backlog in enumerate(backlogs) if given[index] < backlog]:
        each = left // len(hungry)
        if not each:
            # The circle is of all buckets, not of the hungry ones: its order does not depend on who has what.
            hungry.sort(key=lambda index: (index - turn) % len(backlogs))
            for index in hungry[:left]:
                given[index] += 1
            break
        for index in hungry:
            taken = min(each, backlogs[index] - given[index])
            given[index] += taken
            left -= taken
    return given
