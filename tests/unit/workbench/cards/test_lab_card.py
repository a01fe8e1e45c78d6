"""Every public object as a notebook shows it: with hostile names and values, wide, of many buckets, gone, closed."""

import html as escapes

import pytest

import fluss_lab as fl
from fluss_lab.client.log.log_scanner import ScanRecords
from fluss_lab.client.write.write_result import WriteResult
from fluss_lab.model import TablePath
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint, UnknownPointBucket
from fluss_lab.read.moment.time_seek import Seek, SeekBucket
from fluss_lab.read.union.read_explanation import ExplainedBucket, Explanation
from fluss_lab.tiering.repair.damage_repair_plan import DamagePlan
from fluss_lab.tiering.repair.lake_repair_plan import RepairPlan
from fluss_lab.tiering.round.round_report import (
    CompactionReport,
    ExpiryReport,
    MaintenanceReport,
    OrphanReport,
    TieredBucket,
    TieringReport,
    TieringReports,
)
from fluss_lab.tiering.round.table_lag import TableLag
from fluss_lab.tiering.service.service_status import ServiceStatus, TableStatus, Throughput
from fluss_lab.tiering.task.round_progress import BucketProgress, RoundState
from fluss_lab.workbench.cards.lab_card import lab_html
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.cards.round_progress_view import progress_html
from tests.unit.display.card_rules import HOSTILE, IDS, IMAGE, check, check_card
from tests.unit.workbench.lab_kit import LAKE, rows, tier

pytestmark = pytest.mark.slow

MANY = 400
NOW = 1_700_000_000_000
PATH = TablePath("db", "t")
LONG = TablePath("d" * 100, "t" * 100)
SECONDS = {"plan": 0.1, "write": 2.0, "commit": 0.2, "maintain": 0.0, "finish": 0.01, "total": 2.5}


def reports(evil):
    """Return a report of each kind, with a text of others wherever there may be one."""
    buckets = tuple(TieredBucket(evil, n, 10**12, 10**12 + n, NOW) for n in range(MANY))
    compaction = CompactionReport(LONG, 2**62, MANY, 10**6, 400, 10**12, 10**11, evil, 2.0)
    expiry = ExpiryReport(LONG, tuple(range(MANY)), 10**6, 10**12, {(evil, n): 2**60 for n in range(MANY)}, 1.0)
    orphans = OrphanReport(LONG, (evil,) * MANY, True, 1.0)
    upkeep = MaintenanceReport(compaction, expiry, orphans, (evil,) * 30)
    full = TieringReport(LONG, 10**9, 400, 10**12, 2**62, 2**31, 400, SECONDS, buckets, 5, 1, True, upkeep)
    nothing = TieringReport(PATH, 0, 0, 0, None, 1)
    return [compaction, CompactionReport(PATH), expiry, ExpiryReport(PATH), orphans, OrphanReport(PATH), upkeep,
            MaintenanceReport(), full, nothing, TieringReports([full] * 100), TieringReports([nothing]), TieringReports()]  # fmt: skip


def answers(evil):
    """Return what reads and writes answer, of many buckets."""
    edges = tuple((10**12 * n, 10**12 * n + 5) for n in range(50))
    point = ReadPoint(
        LONG, 1, 1, NOW, True, 2**62, tuple(PointBucket(evil, 1, n, 0, 10**12) for n in range(MANY)),
        tuple(UnknownPointBucket(evil, 1, n, 1, evil) for n in range(50)),
    )  # fmt: skip
    read = [ExplainedBucket(evil, n, (0, 10**12), 5, 10**9, 10**9, (10**12, 10**12 + 7), 3, True) for n in range(MANY)]
    return [
        WriteResult(10**9, {(evil, n): edges for n in range(MANY)}, 1.5), WriteResult(0, {}, 0.0),
        point, ReadPoint(PATH, 1, 1, 0, False, None, ()),
        Seek(LONG, 1, NOW, [SeekBucket(evil, n, 10**12, NOW, "lake") for n in range(MANY)]), Seek(PATH, 1, 0, []),
        Explanation(evil, 2**62, read, 10**6, 10**3, evil, 10**9, [evil] * 50), Explanation("Scan of t", None, []),
        ScanRecords([]),
    ]  # fmt: skip


def states(evil):
    """Return states of services and repairs."""
    lag = TableLag(10**9, 10**9, NOW, 1_000, False, evil)
    report = TieringReport(LONG, 10**9, 4, 10**9, 1, 1, seconds=SECONDS)
    tables = tuple(
        TableStatus(
            TablePath("d" * 90, f"t{n}"), n < 5, 10**6, 10**12, 10**12, 3, 4, report, NOW, evil if n % 2 else None, NOW,
            RoundState("write", 1, 4, 10**6, 5), Throughput(1e6, 1e9, 1e6, 1e9), "Scheduled", lag,
        )
        for n in range(MANY)
    )  # fmt: skip
    return [
        ServiceStatus(True, 2, tables, evil, NOW, 3), ServiceStatus(False, 2, ()),
        RepairPlan(LONG, None, 5, 2**62), DamagePlan(PATH, ()),
    ]  # fmt: skip


@pytest.mark.parametrize("evil", HOSTILE, ids=IDS)
def test_whatever_is_in_it_an_object_is_shown_by_the_rules(evil):
    for thing in [*reports(evil), *answers(evil), *states(evil)]:
        check(thing, lines_max=30)
    check_card(RepairPlan(LONG, evil, 5, 2**62)._repr_html_())
    shown = progress_html(evil, RoundState("write", 1, 4, 100, 57, 0, 2.0, (BucketProgress(evil, 1, 9, 3, 1),) * MANY))
    check_card(shown)
    # Half of a character is refused in names.
    names = [evil.encode(errors="replace").decode(), *(f"column_{n}" for n in range(200))]
    nested = [{evil: evil}] * 500
    wide = [dict.fromkeys(names, value) for value in (evil, 10**18, None, nested, 1.5, [evil] * 9, {evil: evil})] * 100
    check(Listing(evil, wide), rows_max=50, lines_max=60)
    check(Listing(evil, [], names), rows_max=50, lines_max=60)


def test_what_needs_attention_comes_first():
    text = check(states("no room")[0], lines_max=25).text
    assert text.index("no room") < text.index("◆ failed") < text.index("10 of 400 tables.")
    listing = Listing("buckets", [{**{f"a_long_name_{n}": 10**12 for n in range(20)}, "error": "damaged"}])
    assert "damaged" in check_card(listing._repr_html_()).text


def test_a_report_in_brief():
    text = check(reports("b")[8]).text
    assert "a limit ended the round" in text
    assert "10 of 400 buckets." in text
    assert "nothing to tier" in check(TieringReport(PATH, 0, 0, 0, None, 1)).text
    several = TieringReports(reports("b")[8:10])
    assert "2 rounds" in check(several).text
    assert isinstance(several, list)


# -- of a lab ---------------------------------------------------------------------------------------------------------


def names_of(count):
    return {f"column_{n}_{'x' * (n % 40)}": "string" for n in range(count)}


@pytest.fixture(scope="module")
def evil_lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "my <img onerror=alert(1)> lab"
    with fl.Lab.open(folder, config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        lab.create_table("shop.wide", {"id": "int", **names_of(200)}, comment=IMAGE, properties=LAKE)
        lab.create_table("shop.many", {"id": "int", "month": "string"}, buckets=MANY, properties=LAKE)
        yield lab


def objects_of(table):
    """Return whatever a table gives, that shows itself."""
    log = table.changelog()
    scans = [table.scan(), table.scan(limit=5, buckets=[0]), table.scan(read_point=table.read_point())]
    listings = [table.buckets(), table.snapshots(), table.files(), table.lake_schemas()]
    more = [scans[0].explain(), log, log.explain(), table.read_point(), table.seek(0), table.info, table.descriptor]
    return [table, *scans, *more, *listings, table.plot]


def shown(thing):
    return (
        check_card(thing._repr_html_(), 50 if isinstance(thing, Listing) else 10)
        if hasattr(thing, "_repr_html_")
        else None
    )


def test_every_object_of_a_wide_table_and_of_one_with_many_buckets(evil_lab):
    wide, many = evil_lab.table("shop.wide"), evil_lab.table("shop.many")
    start = wide.read_point()
    shown(wide.append([{"id": n, "column_5_xxxxx": HOSTILE[n]} for n in range(len(HOSTILE)) if n != 9]))
    tier(wide)
    wide.append([{"id": 99, "column_5_xxxxx": IMAGE}])
    many.append([{"id": n, "month": "a"} for n in range(5_000)])
    for table in (wide, many):
        for thing in objects_of(table):
            assert repr(thing)
            shown(thing)
    difference = wide.diff(start)
    assert IMAGE[:20] in shown(difference).text
    assert "13 added" in repr(difference)
    filtered = wide.scan(where=f"column_5_xxxxx = '{IMAGE}'")
    assert IMAGE in shown(filtered).text
    assert "log: 1 record in 1 bucket" in shown(filtered).text
    status = evil_lab.status()
    shown(status)
    assert "<img" not in evil_lab._repr_html_()
    assert escapes.escape("my <img onerror=alert(1)> lab") in evil_lab._repr_html_()
    assert "shop.many" in shown(evil_lab).text
    with many.subscribe("earliest") as scanner:
        shown(scanner.poll(5.0))
    shown(evil_lab.tiering_service())


def test_a_scan_is_not_read_nor_its_moment_taken_by_being_shown(lab, table):
    table.append(rows(7))
    scan = table.scan()
    text = shown(scan).text
    assert "log: 7 records" in text
    assert "Nothing is read yet." in text
    assert scan._point is None
    table.append(rows(3, start=7))
    assert scan.count() == 10
    table.append(rows(1, start=10))
    assert "log: 10 records" in shown(scan).text
    assert scan.count() == 10


def test_a_table_says_where_its_records_are(table):
    table.append(rows(40))
    tier(table)
    table.append(rows(10))
    found = shown(table)
    assert "rows 50" in found.text
    assert "lake 40" in found.text
    assert "only in the log 10" in found.text
    assert "lag 10 records" in found.text
    # The last of its log is in the lake: nothing lags.
    tier(table)
    assert "lag 0 records" in shown(table).text


def test_a_primary_key_table_shows_old_and_new_side_by_side(lab):
    planes = lab.create_table(
        "shop.planes", {"tailnum": "string", "seats": "int", "engine": "string", "ratio": "double"},
        primary_key=["tailnum"], if_not_exists=True,
    )  # fmt: skip
    evil = "N<b>1</b>"
    planes.upsert(
        [{"tailnum": name, "seats": 5, "engine": IMAGE, "ratio": float("nan")} for name in (evil, "N2", "N3")]
    )
    before = planes.read_point()
    planes.upsert([{"tailnum": evil, "seats": 6, "engine": "", "ratio": float("nan")}, {"tailnum": "N4"}])
    planes.upsert([{"tailnum": "N3", "engine": None}], columns=["tailnum", "engine"])
    planes.delete([{"tailnum": "N2"}])
    found = shown(planes.diff(before))
    (head, *lines) = found.tables[0]
    assert [cell[0] for cell in head] == ["change", "tailnum", "column", "before", "after"]
    assert sorted([cell[0] for cell in line] for line in lines[:3]) == sorted([
        ["+U", evil, "seats", "5", "6"], ["", "", "engine", IMAGE, "empty"], ["+U", "N3", "engine", IMAGE, "null"],
    ])  # fmt: skip
    assert [[cell[0] for cell in line[:2]] for line in lines[3:]] == [["+I", "N4"], ["-D", "N2"]]
    assert "Nothing changed." in shown(planes.diff(planes.read_point())).text
    # Between the two ways of the same difference only old and new change places.
    assert "1 added, 1 removed, 2 changed" in repr(planes.diff(planes.read_point(), before))


def test_many_changes_leave_room_for_each_kind(lab):
    table = lab.create_table("shop.kinds", {"id": "int", "n": "int"}, primary_key=["id"], if_not_exists=True)
    table.upsert([{"id": n, "n": 0} for n in range(60)])
    before = table.read_point()
    table.upsert([{"id": n, "n": 1} for n in range(30)] + [{"id": n, "n": 0} for n in range(60, 90)])
    table.delete([{"id": n} for n in range(30, 60)])
    found = shown(table.diff(before))
    assert [line[0][0] for line in found.tables[0][1:]] == ["+U"] * 6 + ["+I"] * 2 + ["-D"] * 2
    assert "10 of 90 changes." in found.text


def test_those_that_need_attention_come_first_in_a_lab(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "200ms"}) as lab:
        assert "This lab has no tables." in shown(lab).text
        lab.create_database("shop")
        for n in range(12):
            lab.create_table(f"shop.t{n:02d}", {"id": "int"}, properties=LAKE if n % 2 else None)
        lab.table("shop.t11").append([{"id": 1}])
        found = shown(lab)
        (_, first, *others) = found.tables[0]
        assert first[0][0] == "shop.t11"
        assert others[-1][-1][0] == "– not in the lake"
        assert "10 of 12 tables. Those that need attention first." in found.text
        assert "12 in 1 database" in found.text


def test_what_is_gone_or_closed_says_so_and_nothing_is_raised(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        table = lab.create_table("shop.t", {"id": "int"}, properties=LAKE)
        table.append([{"id": 1}])
        tier(table)
        things = [*objects_of(table), table.diff(table.read_point()), lab.status(), lab, lab.tiering_service()]
        lab.drop_table("shop.t")
        for thing in things:
            assert repr(thing)
            shown(thing)
        assert "does not exist" in shown(table).text
        assert "does not exist" in shown(things[1]).text
    for thing in things:
        assert repr(thing)
        shown(thing)
    assert "closed" in shown(lab).text
    assert "closed" in shown(table).text
    assert "◆" in lab_html(lab.connection, lab.folder)
