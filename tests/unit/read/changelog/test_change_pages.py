"""Pages of a changelog in the order of times: a window that slides over random histories, without gaps and duplicates."""

import datetime as dt
import random

import pyarrow as pa
import pytest

from fluss_lab.read.changelog.change_pages import ChangeWindow, places, read_page

PAGE, WINDOW = 20, 50
SCHEMA = pa.schema(
    [
        ("_change_type", pa.string()), ("_partition", pa.string()), ("_bucket", pa.int32()), ("_log_offset", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


class History:
    """Records of some buckets, each with times that never go back, and how many of them were read."""

    def __init__(self, rng, buckets, records):
        self.rng, self.now, self.reads = rng, 1_000, 0
        self.logs = {(rng.choice("ab"), number): [] for number in range(buckets)}
        self.first = {key: rng.choice([0, 0, 7]) for key in self.logs}
        self.write(records)

    def write(self, records):
        while records > 0:
            log = self.logs[self.rng.choice([*self.logs])]
            count = min(records, self.rng.choice([1, 1, 2, 5, 30]))
            log += [self.now] * count
            records -= count
            self.now += self.rng.choice([0, 0, 1, 100])

    @property
    def limits(self):
        return {key: (self.first[key], self.first[key] + len(log)) for key, log in self.logs.items() if log}

    def read(self, ranges):
        columns = [[] for _ in SCHEMA.names]
        for (partition, bucket), (start, stop) in ranges.items():
            for offset in range(start, stop):
                time = self.logs[partition, bucket][offset - self.first[partition, bucket]]
                moment = dt.datetime.fromtimestamp(time / 1000, dt.UTC)
                for column, value in zip(columns, ("+A", partition, bucket, offset, moment), strict=True):
                    column.append(value)
        self.reads += len(columns[0])
        yield pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)

    def exact(self):
        """Every record, in the order that is promised."""
        return sorted(
            (time, partition, bucket, self.first[partition, bucket] + at)
            for (partition, bucket), log in self.logs.items()
            for at, time in enumerate(log)
        )


def page(history, window, *, older):
    *_, found = read_page(history.read, window.room(history.limits, older=older), PAGE, older=older)
    return found


@pytest.mark.parametrize("buckets", [1, 3, 40])
def test_a_window_slides_over_exactly_the_records_in_their_order(seed, buckets):
    rng = random.Random(seed)
    for _ in range(10):
        history = History(rng, buckets, 300)
        exact = history.exact()
        at_end = rng.random() < 0.5
        window = ChangeWindow({key: span[at_end] for key, span in history.limits.items()})
        begin = end = len(exact) if at_end else 0
        for step in range(40):
            if step == 20:  # what comes later is newer than all
                history.now += 1
                history.write(30)
                exact = history.exact()
            older = rng.random() < (0.8 if at_end else 0.2)
            ranges, records = page(history, window, older=older)
            wanted = exact[max(0, begin - PAGE) : begin] if older else exact[end : end + PAGE]
            assert places(records) == wanted
            window = window.with_page(ranges, older=older, records_max=WINDOW)
            if older:
                begin -= len(wanted)
                end = min(end, begin + window.records)
            else:
                end += len(wanted)
                begin = max(begin, end - window.records)
            assert window.records <= WINDOW
            shown = {(p, b, o) for (p, b), (start, stop) in window.shown.items() for o in range(start, stop)}
            assert shown == {place[1:] for place in exact[begin:end]}
            assert bool(window.room(history.limits, older=True)) == (begin > 0)
            assert bool(window.room(history.limits, older=False)) == (end < len(exact))


def test_no_more_is_read_than_a_page_may_take(seed):
    history = History(random.Random(seed), 40, 20_000)
    window = ChangeWindow({key: most for key, (_, most) in history.limits.items()})
    page(history, window, older=True)
    assert history.reads <= 20 * PAGE


def test_a_page_of_nothing_is_empty_and_has_the_columns():
    history = History(random.Random(1), 2, 10)
    ranges, records = page(history, ChangeWindow(dict.fromkeys(history.limits, 0)), older=True)
    assert (ranges, records.num_rows) == ({}, 0)
    assert records.schema.names == SCHEMA.names


def test_what_was_trimmed_since_is_not_asked_for():
    history = History(random.Random(1), 1, 30)
    ((key, (start, stop)),) = history.limits.items()
    window = ChangeWindow({key: stop}).with_page({key: (stop - 5, stop)}, older=True, records_max=WINDOW)
    assert window.room({key: (stop - 2, stop)}, older=True) == {}
    assert window.room({key: (stop - 9, stop + 4)}, older=True) == {key: (stop - 9, stop - 5)}
    assert window.room({key: (start, stop + 4)}, older=False) == {key: (stop, stop + 4)}
