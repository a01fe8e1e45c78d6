"""Pages of a scan: any page is the same slice of the whole, however one came to it, and nothing is read that need not be."""

import itertools
import random

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidRequestError, InvalidSchemaError, OffsetOutOfRangeError
from fluss_lab.read.union import lake_rows, row_index, row_pages
from fluss_lab.records import batch_runs
from tests.unit.display.card_rules import check
from tests.unit.read.keyed_changes import KeyedTable
from tests.unit.read.kit import rows_of, same

pytestmark = pytest.mark.slow

WHERE = "delay > 60 or dest = 'A'"


@pytest.fixture
def make_keyed(cluster, clock, numbers):
    def make(**definition):
        return KeyedTable(cluster, clock, f"k{next(numbers)}", **definition)

    return make


@pytest.fixture
def marked(monkeypatch):
    """Marks so close, and windows and pieces so small, that a few rows need many of all."""
    monkeypatch.setattr(row_index, "MARK_ROWS", 8)
    monkeypatch.setattr(row_index, "MARKS_MAX", 6)
    monkeypatch.setattr(row_pages, "WINDOW_BYTES", 2_000)
    monkeypatch.setattr(row_pages, "NEAR_ROWS", 30)
    monkeypatch.setattr(row_pages, "STEP_ROWS", 12)
    monkeypatch.setattr(row_pages, "STEP_ROWS_MAX", 24)
    monkeypatch.setattr(lake_rows, "STEP_ROWS_MAX", 24)


def fill_log(table, rng):
    for step in range(4):
        table.append_random(rng, 40, ["2013-01", "2013-02"])
        table.clock.advance(rng.choice([0, 1, 1000]))
        if step % 2:
            table.tier()
        if step == 1:
            table.expire()


def fill_keyed(table, rng):
    for step in range(6):
        table.write(rng, 20)
        table.clock.advance(100)
        if step in {1, 3}:
            table.tier()
        if step == 3:
            table.maintain("compact")


def places_of(scan):
    """Return what the places of all rows must be, from a scan of the system columns."""
    names = ["__bucket", "__offset", "__timestamp"]
    partitioned = bool(scan.source.info.descriptor.partitioned_by)
    rows = rows_of(scan.to_arrow())
    return [
        {
            "_source": row["_source"],
            "_partition": row["month"] if partitioned else None,
            **{name: row[name] for name in names},
        }
        for row in rows
    ]


def check_pages(reader, rng, *, total_at_once, **asked):
    point = reader.read_point()
    whole = reader.scan(read_point=point, **asked).to_arrow()
    system = ["month", "__bucket", "__offset", "__timestamp"]
    places = places_of(reader.scan(system, read_point=point, with_source=True, **asked))
    pages = reader.scan(read_point=point, **asked).pages()
    assert (pages.total == len(whole)) if total_at_once else (pages.total is None)
    assert pages.at_least <= len(whole)
    steps = [0, 7, 14, *(rng.randint(0, len(whole) + 5) for _ in range(30)), len(whole), 0]
    for first in steps:
        count = rng.choice([1, 7, 25])
        page = pages.page(first, count)
        same(rows_of(page.rows), rows_of(whole.slice(first, count)))
        same(rows_of(page.places), places[first : first + count])
        assert page.places.schema.names == ["_source", "_partition", "__bucket", "__offset", "__timestamp"]
        assert page.first_row == first
        assert (page.total, page.at_least) == (pages.total, pages.at_least)
        assert pages.at_least >= min(first + len(page), len(whole))
    assert pages.page(len(whole), 1).rows.num_rows == 0
    assert pages.total == pages.at_least == len(whole)
    check(pages)
    check(pages.page(0, 20))
    pages.close()
    pages.close()
    same(rows_of(pages.page(3, 4).rows), rows_of(whole.slice(3, 4)))  # a page opens what it needs
    pages.close()


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_pages_of_a_log_table(make_table, marked, seed, partitioned):
    rng = random.Random(seed)
    table = make_table(partitioned=partitioned)
    fill_log(table, rng)
    reader = table.reader()
    check_pages(reader, rng, total_at_once=True)
    check_pages(reader, rng, total_at_once=False, where=WHERE)
    check_pages(reader, rng, total_at_once=True, buckets=[1])
    check_pages(reader, rng, total_at_once=True, limit=33)
    check_pages(reader, rng, total_at_once=False, where=WHERE, limit=10)


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_pages_of_a_primary_key_table(make_keyed, marked, seed, partitioned):
    rng = random.Random(seed)
    table = make_keyed(partitioned=partitioned, keys=120)
    fill_keyed(table, rng)
    reader = table.reader()
    check_pages(reader, rng, total_at_once=False)
    check_pages(reader, rng, total_at_once=False, where="delay > 0 or ratio is null")
    check_pages(reader, rng, total_at_once=False, limit=20)


def test_pages_stay_at_their_read_point_whatever_moves(make_table, marked, seed):
    rng = random.Random(seed)
    table = make_table(partitioned=False)
    table.append_random(rng, 100, ["2013-01"])
    pages = table.reader().scan(where="id >= 0").pages()
    whole = table.reader().scan().to_arrow()
    same(rows_of(pages.page(0, 10).rows), rows_of(whole.slice(0, 10)))
    table.clock.advance(1000)
    table.tier()
    table.expire()
    table.append_random(rng, 50, ["2013-01"])
    for first in (10, 60, 0, 95):
        same(rows_of(pages.page(first, 10).rows), rows_of(whole.slice(first, 10)))
    assert pages.page(100, 5).rows.num_rows == 0
    assert pages.total == 100


def read_parts(monkeypatch):
    """Return a list of what is read from now on: bucket and first offset."""
    found = []
    before = row_pages.read_rows

    def watched(source, plan, request):
        for batch in before(source, plan, request):
            found.append((plan.parts[0].bucket.bucket, plan.parts[0].start, batch.num_rows))
            yield batch

    monkeypatch.setattr(row_pages, "read_rows", watched)
    return found


def test_a_row_of_an_unfiltered_log_table_is_gone_to_directly(make_table, monkeypatch):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 3_000, ["2013-01"])
    pages = table.reader().scan().pages()
    read = read_parts(monkeypatch)
    ends = [table.ends[None, bucket] for bucket in range(3)]
    row = ends[0] + ends[1] - 5
    page = pages.page(row, 10)
    assert page.places.column("__bucket").to_pylist() == [1] * 5 + [2] * 5
    assert read[0][:2] == (1, ends[1] - 5)
    assert sum(rows for *_, rows in read) < 1_500


def test_going_back_reads_from_the_nearest_mark(make_table, marked, monkeypatch):
    table = make_table(partitioned=False)
    for _ in range(12):
        table.append_random(random.Random(1), 25, ["2013-01"])
    pages = table.reader().scan(where="id >= 0").pages()
    monkeypatch.setattr(row_index, "MARKS_MAX", 1_000)
    assert pages.page(299, 5).rows.num_rows == 1
    assert pages.page(300, 5).total == 300
    read = read_parts(monkeypatch)
    assert pages.page(200, 1).rows.num_rows == 1
    (bucket, start, _), *_ = read
    expected = pages.page(200, 1).places.to_pylist()[0]
    assert bucket == expected["__bucket"]
    assert 0 <= expected["__offset"] - start < 8


def test_a_filter_that_leaves_few_rows_has_marks_by_offset(make_table, marked, monkeypatch):
    monkeypatch.setattr(row_index, "MARK_ROWS", 1_000)
    monkeypatch.setattr(row_index, "MARK_OFFSETS", 20)
    monkeypatch.setattr(batch_runs, "_RUN_BATCHES", 1)
    monkeypatch.setattr(row_index, "MARKS_MAX", 1_000)
    table = make_table(partitioned=False)
    for _ in range(12):
        table.append_random(random.Random(1), 50, ["2013-01"])
    scan = table.reader().scan(where="id % 10 = 3")
    pages = scan.pages()
    whole = scan.to_arrow()
    for first in range(0, 61, 20):
        pages.page(first, 20)
    assert pages.total == len(whole) == 60
    read = read_parts(monkeypatch)
    page = pages.page(15, 1)
    same(rows_of(page.rows), rows_of(whole.slice(15, 1)))
    (bucket, start, _), *_ = read
    (place,) = page.places.to_pylist()
    assert bucket == place["__bucket"]
    assert 0 <= place["__offset"] - start < 80 < place["__offset"]


def test_marks_are_bounded(make_table, marked):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 400, ["2013-01"])
    pages = table.reader().scan(where="id >= 0").pages()
    pages.page(399, 2)
    assert 1 < len(pages._index) <= 6
    assert sum(piece.batch.nbytes for piece in pages._window) <= 2_000 or len(pages._window) == 1


def test_what_on_batch_raises_ends_the_call_and_nothing_is_lost(make_table, marked):
    table = make_table(partitioned=False)
    for _ in range(6):
        table.append_random(random.Random(1), 50, ["2013-01"])
    pages = table.reader().scan(where="id >= 0").pages()
    whole = table.reader().scan().to_arrow()

    class Cancelled(Exception):
        pass

    seen = []

    def cancel(rows):
        seen.append(rows)
        if len(seen) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        pages.page(290, 5, on_batch=cancel)
    assert seen[1] > seen[0]
    assert pages.at_least == seen[1]
    for first in (0, 290, 150):
        same(rows_of(pages.page(first, 5).rows), rows_of(whole.slice(first, 5)))


def filled_and_tiered(table):
    """Return a log table of 600 rows, half of them in files of the lake."""
    for step in range(6):
        table.append_random(random.Random(step), 100, ["2013-01"])
        if step == 2:
            table.tier()
    return table


def test_a_search_that_finds_nothing_takes_small_steps_and_can_be_given_up(make_table, marked):
    pages = filled_and_tiered(make_table(partitioned=False)).reader().scan(where="id < 0").pages()
    steps = pages.steps(0, 5)
    assert [next(steps) for _ in range(4)] == [None] * 4
    steps.close()
    assert pages.total is None
    *waits, page = pages.steps(0, 5)
    assert waits == [None] * len(waits)
    assert len(waits) > 300 // 24
    assert (len(page), page.total) == (0, 0)


@pytest.mark.parametrize("tiered", [True, False])
def test_a_search_of_a_primary_key_table_takes_small_steps(make_keyed, marked, seed, tiered, monkeypatch):
    rng = random.Random(seed)
    table = make_keyed(partitioned=False, keys=120)
    fill_keyed(table, rng)
    if not tiered:
        table.write(rng, 20)
    pages = table.reader().scan(where="delay > 1000").pages()
    *waits, page = pages.steps(0, 5)
    assert len(waits) > 3
    assert (len(page), page.total) == (0, 0)


def test_a_search_goes_on_where_it_was_given_up(make_table, marked, monkeypatch):
    table = filled_and_tiered(make_table(partitioned=False))
    pages = table.reader().scan(where="id >= 0").pages()
    whole = table.reader().scan().to_arrow()
    monkeypatch.setattr(row_pages, "NEAR_ROWS", 10)
    read = read_parts(monkeypatch)
    for _ in range(1_000):
        steps = pages.steps(10**9, 1)
        if next(steps) is not None:
            break
        steps.close()
    assert pages.total == 600
    assert sum(rows for *_, rows in read) <= 600 + 24, "nothing was read twice"
    for first in (0, 590, 300):
        same(rows_of(pages.page(first, 5).rows), rows_of(whole.slice(first, 5)))


def test_pages_asked_for_between_the_steps_of_others(make_table, marked, seed):
    rng = random.Random(seed)
    table = filled_and_tiered(make_table(partitioned=False))
    whole = table.reader().scan().to_arrow()
    pages = table.reader().scan(where="id >= 0").pages()
    under_way = {}
    for _ in range(300):
        first = rng.choice([*under_way, rng.randrange(620)])
        steps = under_way.setdefault(first, pages.steps(first, 25))
        if (page := next(steps)) is not None:
            same(rows_of(page.rows), rows_of(whole.slice(first, 25)))
            del under_way[first]


def test_the_same_rows_in_other_columns_share_what_is_known_of_them(make_table, marked, monkeypatch):
    table = filled_and_tiered(make_table(partitioned=False))
    scan = table.reader().scan(["id", "dest"], "id >= 0", with_source=True)
    pages = scan.pages()
    counter = pages.select(["__offset"], timestamps=False)
    counter.page(10**9, 1)
    assert counter.total == pages.total == 600
    monkeypatch.setattr(row_index, "MARKS_MAX", 1_000)
    read = read_parts(monkeypatch)
    page = pages.page(400, 3)
    same(rows_of(page.rows), rows_of(scan.to_arrow().slice(400, 3)))
    assert page.rows.column_names == ["id", "dest", "_source"]
    assert sum(rows for *_, rows in read) < 300, "it was not read from its begin on"
    places = counter.page(400, 3).places
    assert places.column("__timestamp").null_count == 3
    assert places.column("__offset").equals(page.places.column("__offset"))
    with pytest.raises(InvalidSchemaError):
        pages.select(["nothing"])
    for each in (pages, counter):
        each.close()


def test_a_read_that_fails_is_begun_again(make_table, marked, monkeypatch):
    table = make_table(partitioned=False)
    for _ in range(4):
        table.append_random(random.Random(1), 50, ["2013-01"])
    pages = table.reader().scan(where="id >= 0").pages()
    whole = table.reader().scan().to_arrow()
    before, batches = row_pages.read_rows, itertools.count()

    def breaking(source, plan, request):
        for batch in before(source, plan, request):
            if next(batches) == 1:
                raise OffsetOutOfRangeError("gone")
            yield batch

    monkeypatch.setattr(row_pages, "read_rows", breaking)
    with pytest.raises(OffsetOutOfRangeError):
        pages.page(150, 5)
    for first in (pages.at_least, 150, 0, 60):
        same(rows_of(pages.page(first, 5).rows), rows_of(whole.slice(first, 5)))


def test_a_page_holds_no_more_than_its_rows(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 2_000, ["2013-01"])
    page = table.reader().scan().pages().page(500, 5)
    assert page.rows.get_total_buffer_size() < 4_000
    assert page.places.get_total_buffer_size() < 4_000


@pytest.mark.parametrize(("first", "count"), [(-1, 5), (0, 0), (0, -1), (0, 10_001)])
def test_a_page_that_cannot_be_is_refused(make_table, first, count):
    pages = make_table(partitioned=False).reader().scan().pages()
    with pytest.raises(InvalidRequestError, match="expected a first row of at least 0 and 1 to 10,000 rows"):
        pages.page(first, count)


def test_a_table_without_rows_has_empty_pages(make_table):
    for partitioned in (True, False):
        pages = make_table(partitioned=partitioned).reader().scan().pages()
        page = pages.page(0, 10)
        assert (page.rows.num_rows, page.total, page.at_least) == (0, 0, 0)
        assert page.rows.schema == pages.schema
        check(page)


@pytest.mark.parametrize("first", [0, 3])
def test_pages_of_no_rows_asked_for_are_empty(make_table, make_keyed, seed, first):
    rng = random.Random(seed)
    table, keyed = make_table(partitioned=False), make_keyed()
    table.append_random(rng, 20, ["2013-01"])
    keyed.write(rng, 20)
    for reader, asked in ((table.reader(), {}), (table.reader(), {"where": WHERE}), (keyed.reader(), {})):
        with reader.scan(limit=0, **asked).pages() as pages:
            page = pages.page(first, 10)
            assert (page.rows.num_rows, page.places.num_rows, page.total, page.at_least) == (0, 0, 0, 0)
            assert page.rows.schema == pages.schema
            check(page)


def test_times_are_left_out_on_request(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 20, ["2013-01"])
    page = table.reader().scan(["id"]).pages(timestamps=False).page(0, 5)
    assert page.places.column("__timestamp").to_pylist() == [None] * 5
    assert page.to_arrow().schema.names == ["id"]
    assert isinstance(page.to_pandas().shape, tuple)
    assert isinstance(page.rows, pa.Table)
