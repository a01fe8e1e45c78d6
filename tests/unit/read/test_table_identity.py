"""A table that was dropped and whose name is taken again: whatever was made of the first one says so."""

from __future__ import annotations

import itertools
import json
from datetime import date
from typing import Any

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import FlussError, InvalidRequestError, TableNotFoundError
from fluss_lab.model import OffsetSpec
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.lab import Lab
from tests.unit.read.kit import LAKE

pytestmark = pytest.mark.slow

_NUMBERS = itertools.count()


@pytest.fixture
def lab(cluster):
    cluster.connection.admin().create_database("db", if_not_exists=True)
    return Lab(cluster.connection, folder=None, attachment=None, place={})


def _make(lab: Lab, name: str, *, is_keyed: bool, is_partitioned: bool) -> Any:
    columns = {"id": "bigint", "p": "string"}
    definition: dict[str, Any] = {"partitioned_by": ["p"]} if is_partitioned else {}
    if is_keyed:
        definition |= {"primary_key": ["id", "p"], "bucket_key": ["id"]}
    table = lab.create_table(f"db.{name}", columns, buckets=1, properties=LAKE, **definition)
    if is_partitioned:
        table.add_partition(p="x")
    return table


def _write(table: Any, ids: range) -> None:
    rows = [{"id": number, "p": "x"} for number in ids]
    (table.upsert if table.descriptor.schema.primary_key else table.append)(rows)


def _tier(lab: Lab, table: Any) -> TieringReport | None:
    return run_round(
        lab.connection, lab.connection.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id
    )


@pytest.mark.parametrize("is_tiered", [False, True], ids=["new", "new and tiered"])
@pytest.mark.parametrize("becomes_partitioned", [False, True], ids=["to plain", "to partitioned"])
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["from plain", "from partitioned"])
@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keyed"])
def test_reads_of_a_table_that_was_made_again_say_so(lab, is_keyed, is_partitioned, becomes_partitioned, is_tiered):
    name = f"again{next(_NUMBERS)}"
    table = _make(lab, name, is_keyed=is_keyed, is_partitioned=is_partitioned)
    _write(table, range(5))
    _tier(lab, table)
    _write(table, range(5, 8))
    reader, point = table._reader(), table.read_point()
    lazy, counted, explained, log, used = (
        table.scan(), table.scan(), table.scan(), table.changelog(), table.scan(read_point=point),
    )  # fmt: skip
    lab.drop_table(f"db.{name}")
    again = _make(lab, name, is_keyed=is_keyed, is_partitioned=becomes_partitioned)
    _write(again, range(1_000, 1_003))
    if is_tiered:
        _tier(lab, again)
        _write(again, range(1_003, 1_004))
    reads = {
        "scan": lazy.to_arrow, "count": counted.count, "explain": explained.explain, "changelog": log.to_arrow,
        "read point": reader.read_point, "diff": lambda: reader.diff(point), "seek": lambda: reader.seek(0),
        "as of": lambda: reader.read_point(point.moment_ms), "starts": lambda: reader.starts("earliest"),
        "its point": lambda: again.scan(read_point=point).to_arrow(),
        "its point as a start": lambda: again.changelog(start=point).to_arrow(),
    }  # fmt: skip
    for what, read in reads.items():
        with pytest.raises(TableNotFoundError) as caught:
            read()
        assert name in str(caught.value), what
    with pytest.raises(FlussError):
        used.to_arrow()
    assert again.scan().count() == (4 if is_tiered else 3)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_reads_of_a_dropped_table_say_so(lab, is_keyed):
    name = f"dropped{next(_NUMBERS)}"
    table = _make(lab, name, is_keyed=is_keyed, is_partitioned=False)
    _write(table, range(5))
    _tier(lab, table)  # so all is read from the lake, and the cluster is not asked for it
    scans = [table.scan() for _ in range(3)]
    assert [scan.read_point.stops for scan in scans]
    lab.drop_table(f"db.{name}")
    for read in (scans[0].to_arrow, scans[1].count, scans[2].explain):
        with pytest.raises(TableNotFoundError, match=rf"^table db\.{name} does not exist$"):
            read()


def test_a_subscription_of_a_table_that_was_made_again_ends_with_an_error(lab):
    table = _make(lab, f"again{next(_NUMBERS)}", is_keyed=False, is_partitioned=True)
    _write(table, range(5))
    with table.subscribe(start="earliest") as scanner:
        read = 0
        while read < 5:
            read += sum(len(batch.rows) for batch in scanner.poll(10))
        lab.drop_table(str(table.path))
        _write(_make(lab, table.path.table, is_keyed=False, is_partitioned=True), range(3))
        for _ in range(2):  # said again to whoever asks again
            with pytest.raises(TableNotFoundError, match="dropped and made again"):
                _drained(scanner)


def test_a_subscription_of_a_dropped_table_ends_with_an_error(lab):
    table = _make(lab, f"again{next(_NUMBERS)}", is_keyed=False, is_partitioned=True)
    with table.subscribe(start="earliest") as scanner:
        lab.drop_table(str(table.path))
        with pytest.raises(TableNotFoundError):
            _drained(scanner)


def _drained(scanner: Any) -> None:
    """Poll until nothing comes any more, for some seconds."""
    for _ in range(20):
        assert not list(scanner.poll(1.0))


def test_a_point_or_a_seek_of_another_table_is_called_that(lab):
    one = _make(lab, f"one{next(_NUMBERS)}", is_keyed=False, is_partitioned=False)
    other = _make(lab, f"other{next(_NUMBERS)}", is_keyed=True, is_partitioned=False)
    _write(one, range(3))
    _write(other, range(3))
    point, seek = one.read_point(), one.seek(0)
    for read in (
        lambda: other.scan(read_point=point),
        lambda: other.diff(before=point),
        lambda: other.changelog(start=point).to_arrow(),
        lambda: other.changelog(start="earliest", end=point).to_arrow(),
        lambda: other.changelog(start=seek).to_arrow(),
        lambda: other.subscribe(start=seek),
    ):
        with pytest.raises(
            InvalidRequestError, match=rf"db\.{other.path.table}.* found one of table db\.{one.path.table}"
        ):
            read()


def test_a_point_or_a_seek_of_another_labs_table_is_refused(lab):
    """Of the same path, id and schema: it would be answered from offsets that mean nothing there."""
    name = f"same{next(_NUMBERS)}"
    own = _make(lab, name, is_keyed=True, is_partitioned=False)
    _write(own, range(3))
    with EmbeddedCluster() as cluster:
        other_lab = Lab(cluster.connection, folder=None, attachment=None, place={})
        other_lab.create_database("db")
        while True:
            other = other_lab.create_table(
                f"db.{name}", {"id": "bigint", "p": "string"}, primary_key=["id", "p"], bucket_key=["id"], buckets=1
            )
            if other.info.table_id == own.info.table_id:
                break
            other_lab.drop_table(f"db.{name}")
        _write(other, range(1))
        point, seek = other.read_point(), other.seek(0)
        kept = ReadPoint.from_json(point.to_json())
        assert kept == point
        for read in (
            lambda: own.scan(read_point=point),
            lambda: own.scan(read_point=kept),
            lambda: own.diff(before=point),
            lambda: own.changelog(start=point).to_arrow(),
            lambda: own.changelog(start=seek).to_arrow(),
            lambda: own.subscribe(start=seek),
        ):
            with pytest.raises(
                TableNotFoundError, match=r"of a table of the same id that was made at .*: it is another lab's"
            ):
                read()
        form = json.loads(point.to_json())
        del form["created_ms"]
        older = ReadPoint.from_json(json.dumps(form))
        assert older.created_ms is None
        assert other.scan(read_point=older).count() == 1, "as an older release kept it"


# -- subscriptions ----------------------------------------------------------------------------------------------------


def _ids(scanner: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        batches = list(scanner.poll(10))
        assert batches, found
        found += [number for batch in batches for number in batch.rows.column("id").to_pylist()]
    return sorted(found)


def test_a_subscription_takes_what_a_changelog_takes(lab, clock):
    table = _make(lab, f"starts{next(_NUMBERS)}", is_keyed=False, is_partitioned=False)
    _write(table, range(5))
    clock.advance(1_000)
    point, moment_ms = table.read_point(), clock.now_ms()
    _write(table, range(5, 8))
    _tier(lab, table)
    snapshot_id = table.lab.connection.admin().lake_snapshot(table.path).snapshot_id
    _write(table, range(8, 10))
    starts: list[tuple[Any, int]] = [
        ("earliest", 0), (point, 5), (moment_ms, 5), (snapshot_id, 8), (table.seek(moment_ms), 5), ({0: 7}, 7),
    ]  # fmt: skip
    for start, first in starts:
        with table.subscribe(start=start) as scanner:
            assert _ids(scanner, 10 - first) == list(range(first, 10))
        assert table.changelog(start=start).to_arrow()["id"].to_pylist() == list(range(first, 10))
    with pytest.raises(InvalidRequestError):
        table.subscribe(start=object())


def test_all_partitions_are_fetched_at_once(lab, cluster):
    """None waits until a fetch of the others has ended: here that would take as long as a test may."""
    table = _make(lab, f"many{next(_NUMBERS)}", is_keyed=False, is_partitioned=True)
    for name in ("y", "z", "u", "v"):
        table.add_partition(p=name)
    table.append([{"id": number, "p": "xyzuv"[number % 5]} for number in range(50)])
    options = {"client.scanner.log.fetch.wait-max-time": "1h"}
    with Connection(lambda: cluster.address, options) as patient, patient.log_scanner(table.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        assert _ids(scanner, 50) == list(range(50))
        table.append([{"id": number, "p": "xyzuv"[number % 5]} for number in range(50, 60)])
        assert _ids(scanner, 10) == list(range(50, 60))


def test_the_same_words_are_read_anew_of_a_table_that_was_made_again(lab):
    name = f"db.again{next(_NUMBERS)}"
    days = ("date", date(2019, 1, 1), date(2021, 1, 1))
    for kind, low, high in [days, ("string", "2020", "2020-05-06 "), days]:
        table = lab.create_table(name, {"v": kind}, buckets=1, properties=LAKE)
        table.append([{"v": low}])
        _tier(lab, table)
        table.append([{"v": high}])
        for _ in range(2):
            assert lab.table(name).scan(where="v > '2020-05-06'").to_arrow()["v"].to_pylist() == [high]
            assert lab.table(name).changelog().schema.field("v").type == table.schema.field("v").type
        lab.drop_table(name)
