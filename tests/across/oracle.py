"""What reads of a table must answer, from nothing but the list of all that happened to it."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.history import BucketLog, Event, Place

Row = dict[str, Any]
SYSTEM = ("__bucket", "__offset", "__timestamp")


def order(place: Place) -> tuple[str, int]:
    return (place[0] or "", place[1])


def first_at(log: BucketLog, moment_ms: int) -> int:
    """Return the first offset whose timestamp is at or after a time; the end when there is none."""
    return bisect.bisect_left(log.events, moment_ms, key=lambda event: event.timestamp_ms)


@dataclass(frozen=True)
class Moment:
    """A table at stop offsets.

    Attributes:
        logs: All that each bucket ever held; of what is lost for good, shortened since.
        stops: Where it is looked at.
        columns: The columns that it had.
        keyed: Whether it has a primary key.
        firsts: First offset of a log table's bucket that was not lost before it could be tiered; absent: 0.
        label: How it was come by.
        moment_ms: The time that was asked for; None: offsets are known.
    """

    logs: Mapping[Place, BucketLog]
    stops: Mapping[Place, int]
    columns: Sequence[str]
    keyed: bool
    firsts: Mapping[Place, int] = field(default_factory=dict)
    label: str = ""
    moment_ms: int | None = None

    @property
    def lost(self) -> list[Place]:
        """Return the buckets of which records that there were are gone: their partition was dropped since."""
        ends = {place: max(len(self.logs[place].events), self.firsts.get(place, 0)) for place in self.stops}
        return [place for place, stop in self.stops.items() if stop > ends[place]]

    def rows(self, places: Iterable[Place] | None = None) -> list[Row]:
        """Return the rows in reading order, with the system columns."""
        chosen = self.stops if places is None else places
        return [
            self._row(place, offset, event)
            for place in sorted(chosen, key=order)
            for offset, event in self._live(place).items()
        ]

    def _live(self, place: Place) -> Mapping[int, Event]:
        log, stop = self.logs[place], self.stops[place]
        if self.keyed:
            return dict(sorted(log.live(stop).items()))
        return {offset: log.events[offset] for offset in range(self.firsts.get(place, 0), stop)}

    def _row(self, place: Place, offset: int, event: Event) -> Row:
        values = {name: event.row.get(name) for name in self.columns}
        return values | dict(zip(SYSTEM, (place[1], offset, event.timestamp_ms), strict=True))


def records(
    log: BucketLog, place: Place, start: int, stop: int, columns: Sequence[str], *, partitioned: bool
) -> list[Row]:
    """Return the changelog of a range, as a replay gives it."""
    return [record(place, offset, log.events[offset], columns, partitioned) for offset in range(start, stop)]


def record(place: Place, offset: int, event: Event, columns: Sequence[str], partitioned: bool) -> Row:
    found: Row = {"_change_type": event.change}
    if partitioned:
        found["_partition"] = place[0]
    found |= {"_bucket": place[1], "_log_offset": offset, "_commit_timestamp": event.timestamp_ms}
    return found | {name: event.row.get(name) for name in columns}


@dataclass(frozen=True)
class NetChange:
    """What became of one key in a range: the record of the row before, and of the row after."""

    before: tuple[int, Event] | None
    after: tuple[int, Event] | None


def net_changes(
    log: BucketLog, start: int, stop: int, columns: Sequence[str], key: Callable[[Event], Any]
) -> list[NetChange]:
    """Return the net changes of a range, those left out whose rows are equal before and after."""
    first: dict[Any, tuple[int, Event]] = {}
    last: dict[Any, tuple[int, Event]] = {}
    for offset in range(start, stop):
        event = log.events[offset]
        first.setdefault(key(event), (offset, event))
        last[key(event)] = (offset, event)
    found = []
    for name, begin in first.items():
        before = None if begin[1].adds else begin
        after = last[name] if last[name][1].adds else None
        if before is not None and after is not None and _equal(before[1], after[1], columns):
            continue
        if before is not None or after is not None:
            found.append(NetChange(before, after))
    return found


def net_records(changes: Iterable[NetChange], place: Place, columns: Sequence[str], *, partitioned: bool) -> list[Row]:
    """Return net changes as a net changelog gives them, by offset."""
    found = []
    for change in changes:
        both = change.before is not None and change.after is not None
        for side, one, two in ((change.before, "DELETE", "UPDATE_BEFORE"), (change.after, "INSERT", "UPDATE_AFTER")):
            if side is not None:
                row = record(place, side[0], side[1], columns, partitioned)
                found.append(row | {"_change_type": two if both else one})
    return sorted(found, key=lambda each: each["_log_offset"])


def _equal(one: Event, other: Event, columns: Sequence[str]) -> bool:
    return all(one.row.get(name) == other.row.get(name) for name in columns)
