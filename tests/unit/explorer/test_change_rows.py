"""The records of a changelog as an answer has them: what is written of their times, and what a message holds of them."""

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pyarrow as pa

from fluss_lab.explorer.explorer_answers import ANSWER_BYTES_MAX
from fluss_lab.explorer.texts.change_rows import COLUMNS_DRAWN, change_rows

ZONE = ZoneInfo("Europe/Berlin")


def records(times, columns=1, text="text"):
    count = len(times)
    return pa.table(
        {
            "_change_type": ["+A"] * count, "_bucket": pa.array([0] * count, pa.int32()), "_log_offset": list(range(count)),
            "_commit_timestamp": pa.array(times, pa.timestamp("us", "UTC")), **{f"c{n}": [text] * count for n in range(columns)},
        }
    )  # fmt: skip


def shown(table, **beside):
    columns = [name for name in table.column_names if name.startswith("c")]
    answer = change_rows(table, columns, ZONE, [], lambda _: True, beside)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= ANSWER_BYTES_MAX
    return answer


def test_times_are_those_of_the_zone_at_that_time():
    """Winter and summer, and the hour that came twice."""
    times = [
        dt.datetime(2026, 1, 2, 9, 30, 0, 250_000, dt.UTC), dt.datetime(2026, 7, 2, 9, 30, tzinfo=dt.UTC),
        dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC), dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, tzinfo=dt.UTC),
    ]  # fmt: skip
    answer = shown(records(times))
    assert answer["times"] == [
        "2026-01-02 10:30:00.250", "2026-07-02 11:30:00", "2026-10-25 02:30:00", "2026-10-25 02:30:00", "1970-01-01 00:59:00",
    ]  # fmt: skip
    assert [row[3] for row in answer["rows"]] == [round(each.timestamp() * 1000) for each in times]


def test_what_fits_is_whole_and_of_what_does_not_the_columns_that_are_drawn_come():
    """Beside other parts of the answer: the bound is that of all of it."""
    now = [dt.datetime(2026, 7, 2, tzinfo=dt.UTC)] * 100
    table = records(now, 20, "x" * 100)
    answer = shown(table)
    assert (len(answer["columns"]), len(answer["cells"][0]), answer["cut"]) == (20, 20, [])
    answer = shown(table, code=["y" * 350_000])
    assert answer["columns"] == [f"c{n}" for n in range(COLUMNS_DRAWN)]
    assert {len(cells) for cells in answer["cells"]} == {COLUMNS_DRAWN}
    assert answer["cells"][0][0] == "x" * 100
    answer = shown(table, code=["y" * 480_000])
    assert len(answer["cut"]) == 100 * COLUMNS_DRAWN
