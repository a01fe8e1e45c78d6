"""The offsets of a zone's clocks from UTC over time: summer time comes and goes."""

from __future__ import annotations

import datetime as dt
from typing import Final

#: No zone is known to have changed its clocks twice within so long.
_STEP_S: Final = 7 * 86_400


def zone_offsets(zone: dt.tzinfo | None, until_s: int) -> list[list[int]]:
    """Return since when (seconds since 1970) the clocks of a zone are how many seconds ahead of UTC, in the order of time.

    The first is also that of earlier times, the last that of later ones.

    Args:
        zone: The zone; None: the system's.
        until_s: Seconds since 1970; what changes later is not looked for.
    """
    found = [[0, _offset_s(zone, 0)]]
    for begin in range(0, until_s, _STEP_S):
        end = min(begin + _STEP_S, until_s)
        after = _offset_s(zone, end)
        if after != found[-1][1]:
            found.append([_change_s(zone, begin, end), after])
    return found


def _change_s(zone: dt.tzinfo | None, begin: int, end: int) -> int:
    """Return the first second between two times that has the offset of the later one."""
    after = _offset_s(zone, end)
    while begin + 1 < end:
        middle = (begin + end) // 2
        if _offset_s(zone, middle) == after:
            end = middle
        else:
            begin = middle
    return end


def _offset_s(zone: dt.tzinfo | None, at_s: int) -> int:
    offset = dt.datetime.fromtimestamp(at_s, dt.UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
