"""Damage that a reader comes upon while the server runs: named with its file and offsets, and the bucket stops (P7)."""

from __future__ import annotations

import pytest

from fluss_lab.client import read_range
from fluss_lab.client.cluster.log_damage import damage_error
from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.read.table_reader import TableReader
from fluss_lab.server.tablet.requests import column_projection
from fluss_lab.testing import EmbeddedCluster
from tests.unit.tiering.broken_logs import OPTIONS, Broken, inside_a_segment, nothing
from tests.unit.tiering.kit import Tables

pytestmark = pytest.mark.slow

PLACES = (inside_a_segment, *[nothing] * 5)


def whole(broken, end):
    return list(read_range(broken.connection, broken.info, broken.bucket(0), 0, end))


def projected(broken, end):
    return list(read_range(broken.connection, broken.info, broken.bucket(0), 0, end, projection=["id"]))


def changelog(broken, end):
    return TableReader(broken.connection, broken.path).changelog(start={0: 0}, end={0: end}, buckets=[0]).to_arrow()


def subscribed(columns):
    def read(broken, end):
        with broken.connection.log_scanner(broken.path, projection=columns) as scanner:
            scanner.subscribe(0, 0)
            while (found := scanner.poll(30.0)) is not None:
                assert all(batch.records.next_offset <= end for batch in found)

    return read


def tiered(broken, end):
    return broken.tables.tier(broken.info)


READERS = {
    "whole": whole,
    "projected": projected,
    "changelog": changelog,
    "subscribed": subscribed(None),
    "subscribed_projected": subscribed(["id"]),
    "tiered": tiered,
}


@pytest.fixture
def tables():
    with EmbeddedCluster(None, OPTIONS) as cluster:
        yield Tables(cluster)


def check_found(tables, name, *, keyed):
    broken = Broken(tables, keyed=keyed, name=f"broken_{name}")
    broken.fill("none")
    end, sound = broken.ends()[0], broken.read(1, 0, broken.ends()[1])
    segment = broken.segments(0)[len(broken.segments(0)) // 2]
    broken.break_logs(PLACES)
    ((start, stop),) = broken.damage[0]
    with pytest.raises(CorruptDataError) as caught:
        READERS[name](broken, end)
    text = str(caught.value)
    assert str(segment) in text, name
    assert f"offsets [{start}, {stop}) cannot be read" in text, name
    assert f"fluss-lab repair {broken.path} --skip-corrupt" in text, name
    stopped, *others = broken.connection.admin().buckets(broken.info)
    with pytest.raises(CorruptDataError, match="skip-corrupt"):
        stopped.require()
    assert all(each.require() for each in others)
    with pytest.raises(FlussError, match="skip-corrupt"):
        broken.write(1)
    assert broken.read(0, 0, start) == broken.truth[0][:start]
    assert broken.read(1, 0, len(sound)) == sound
    broken.repair(discard=True)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keyed"])
def test_damage_that_is_read_is_named_with_its_place_and_stops_the_bucket(tables, keyed):
    for name in READERS:
        check_found(tables, name, keyed=keyed)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keyed"])
def test_damage_of_batches_that_the_server_projects_is_found_there(tables, keyed, monkeypatch):
    monkeypatch.setattr(column_projection, "SMALL_BYTES", 0)  # no batch is sent whole
    for name in ("projected", "subscribed_projected"):
        check_found(tables, name, keyed=keyed)


def test_bytes_that_were_damaged_on_their_way_stop_nothing(tables):
    broken = Broken(tables, keyed=False)
    broken.fill("none")
    found = damage_error(broken.connection, broken.info, broken.bucket(0), None, CorruptDataError("batch at offset 7"))
    assert f"table {broken.path}, bucket 0: batch at offset 7; its files are sound" in str(found)
    broken.write(1)
