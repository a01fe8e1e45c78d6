"""The lake switched on for tables that have lived without it: their history is tiered from its start, and nothing rewritten."""

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import InternalError, TableNotFoundError, UnsupportedError
from fluss_lab.failpoints import FailpointError
from fluss_lab.model import OffsetSpec, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import wait_until
from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair
from tests.unit.tiering.repairs import KEYED, SMALL, Keyed, age, take_snapshots

pytestmark = pytest.mark.slow

ON, OFF = {"table.datalake.enabled": True}, {"table.datalake.enabled": False}


def switch(tables, info, values):
    return tables.connection.admin().alter_table(info.path, set=values)


def log_ends(tables, info) -> dict:
    return {
        status.bucket: (status.start_offset, status.end_offset) for status in tables.connection.admin().buckets(info)
    }


@pytest.mark.parametrize("options", [{}, {"bucket_key": ["id"]}, {"partitioned_by": ["month"]}], ids=str)
def test_the_history_of_a_log_table_is_tiered_from_its_start(tables, options):
    info = tables.create(properties=OFF, buckets=3, **options)
    for month in ("2013-01", "2013-02"):
        tables.append(info, 50, month)
    before = log_ends(tables, info)
    info = switch(tables, info, ON)
    tables.append(info, 20)
    tables.tier(info)
    tables.check(info)
    # Nothing was written again: what was in a bucket is in that bucket of the lake, under its offset.
    for bucket, (start, end) in log_ends(tables, info).items():
        assert (start, before[bucket][1] <= end) == (0, True)
    assert tables.tier(info).rows == 0


def test_the_history_of_a_primary_key_table_is_tiered_event_by_event(tables):
    keyed = Keyed(tables, lake=False, buckets=3)
    keyed.upsert(range(40), "a")
    keyed.upsert(range(20), "b")
    keyed.delete(range(5))
    info = switch(tables, keyed.info, ON)
    report = tables.tier(info)
    keyed.check()
    # All 40 + 2 * 20 + 5 changes, not the 35 rows that are left.
    assert sum(each.end - each.start for each in report.buckets) == 85
    assert set(tables.known(info).starts.values()) <= {0}
    keyed.upsert(range(0, 40, 3), "c")
    tables.tier(info)
    keyed.check()


def test_a_primary_key_table_whose_log_has_lost_its_begin_starts_from_a_snapshot(tables):
    tables.cluster.restart(SMALL)
    keyed, turns = Keyed(tables, lake=False), iter(range(100))
    keyed.upsert(range(50), "first")
    keyed.delete(range(40, 50))
    start = age(tables, keyed.info, lambda: keyed.upsert(range(30), f"t{next(turns)}-"))
    assert start > 0
    info = switch(tables, keyed.info, ON)
    keyed.upsert([100, 3], "last")
    tables.tier(info)
    keyed.check()
    rows = tables.lake_rows(info)
    # Every row has its own offset, those of the snapshot too.
    assert min(rows["__offset"].to_pylist()) >= 0
    places = list(zip(rows["__bucket"].to_pylist(), rows["__offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places)
    assert all(first >= start for first in tables.known(info).starts.values())
    keyed.delete([100])
    keyed.upsert(range(10), "after")
    tables.tier(info)
    keyed.check()


def test_a_log_that_has_lost_its_begin_is_tiered_from_where_it_begins(tables):
    tables.cluster.restart(SMALL)
    info = tables.create(properties=OFF)
    start = age(tables, info, lambda: tables.append(info, 100))
    info = switch(tables, info, ON)
    tables.append(info, 5)
    tables.tier(info)
    assert sorted(tables.lake_rows(info)["__offset"].to_pylist()) == list(range(start, 405))
    (bucket,) = tables.known(info).offsets
    assert tables.known(info).starts == {bucket: start}


def test_where_it_begins_is_known_though_a_partition_was_dropped_before_it_was_registered(tables):
    old, new = "2013-01", "2013-02"
    tables.cluster.restart(SMALL)
    info = tables.create(properties=OFF, partitioned_by=["month"])

    def write():
        tables.append(info, 100, old)
        tables.append(info, 100, new)

    start = age(tables, info, write)
    info = switch(tables, info, ON)
    write()
    failpoints.arm("tiering.lake_commit.after", "error")
    with pytest.raises(FailpointError):
        tables.tier(info)
    failpoints.disarm()
    tables.connection.admin().drop_partition(info.path, {"month": old}, lake=True)
    tables.tier(info)
    kept = {bucket for bucket, offset in tables.known(info).offsets.items() if offset.partition == new}
    assert {bucket: begin for bucket, begin in tables.known(info).starts.items() if bucket in kept} == dict.fromkeys(
        kept, start
    )


@pytest.mark.parametrize("kind", ["log", "primary key"])
def test_switched_off_and_on_it_goes_on_where_it_was(tables, kind):
    if kind == "log":
        info, keyed = tables.create(buckets=2), None
        write = lambda: tables.append(info, 10)  # noqa: E731
    else:
        keyed = Keyed(tables)
        info, turns = keyed.info, iter(range(100))
        write = lambda: keyed.upsert(range(10), f"t{next(turns)}-")  # noqa: E731
    write()
    tables.tier(info)
    for _ in range(2):
        switch(tables, info, OFF)
        write()
        switch(tables, info, ON)
        write()
    assert tables.tier(info).rows > 0
    if keyed is None:
        tables.check(info)
    else:
        keyed.check()


@pytest.mark.parametrize("kind", ["log", "primary key"])
def test_from_then_on_nothing_leaves_the_cluster_that_the_lake_does_not_hold(tables, kind):
    tables.cluster.restart(SMALL)
    if kind == "log":
        info, keyed = tables.create(properties=OFF), None
        write = lambda: tables.append(info, 100)  # noqa: E731
    else:
        keyed = Keyed(tables, lake=False, buckets=1)
        info, turns = keyed.info, iter(range(100))
        write = lambda: keyed.upsert(range(60), f"t{next(turns)}-")  # noqa: E731
    start = age(tables, info, write)
    info = switch(tables, info, ON | {"table.log.ttl": "1ms"})
    for _ in range(3):
        write()
    take_snapshots(tables, info)
    service = tables.cluster.tablet()
    assert service.apply_retention() == 0
    assert tables.connection.admin().buckets(info)[0].start_offset == start
    tables.tier(info)
    wait_until(lambda: tables.connection.admin().buckets(info)[0].start_offset > start)
    write()
    tables.tier(info)
    if keyed is not None:
        keyed.check()
    else:
        assert sorted(tables.lake_rows(info)["__offset"].to_pylist()) == list(range(start, tables.appended[info.path]))
        assert tables.connection.admin().list_offsets(info, OffsetSpec.earliest())[0].offset == start


def test_columns_that_were_added_before_are_there(tables):
    keyed = Keyed(tables, lake=False)
    keyed.upsert(range(10), "old")
    admin = tables.connection.admin()
    admin.alter_table(keyed.path, add_columns={"note": "string"})
    rows = pa.table({"id": pa.array([3, 20], pa.int64()), "v": ["new", "new"], "note": ["x", "y"]})
    with tables.connection.upsert_writer(keyed.path) as writer:
        writer.upsert(rows)
    info = switch(tables, keyed.info, ON)
    tables.tier(info)
    found = {row["id"]: (row["v"], row["note"]) for row in tables.lake_rows(info).to_pylist()}
    assert found == {key: (f"old{key}", None) for key in range(10)} | {3: ("new", "x"), 20: ("new", "y")}


@pytest.mark.parametrize(
    "definition",
    [
        {"primary_key": ["id", "v"]},
        {"primary_key": ["id"], "properties": {"iceberg.write.update.mode": "copy-on-write"}},
        {"bucket_key": ["id", "v"]},
    ],
    ids=str,
)
def test_what_the_lake_cannot_hold_is_refused_and_nothing_changes(tables, definition):
    admin = tables.connection.admin()
    info = admin.create_table(TablePath("db", "odd"), make_descriptor(KEYED, **definition))
    with pytest.raises(UnsupportedError):
        switch(tables, info, ON)
    assert admin.table_info(info.path) == info
    assert not tables.storage.access.call("look", lambda catalog: catalog.table_exists(("db", "odd")))


def test_a_lake_table_that_is_gone_is_made_anew_by_enabling_only(tables):
    """Another alteration must not take what the lake held for lost: its catalog may come back."""
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    lake = tables.lake(info)
    name, place = (info.path.database, info.path.table), lake.metadata_location
    lake.catalog.drop_table(name)
    with pytest.raises(TableNotFoundError):
        switch(tables, info, {"table.datalake.freshness": "2h"})
    lake.catalog.register_table(name, place)
    tables.append(info, 10)
    tables.tier(info)
    tables.check(info)


def test_a_lake_table_that_another_one_replaced_is_renamed_and_made_anew_as_its_error_says(tables):
    """Seen: the error named the adoption, which was shown and then refused."""
    info = tables.create(buckets=2)
    tables.append(info, 50)
    tables.tier(info)
    lake = tables.lake(info)
    name = (info.path.database, info.path.table)
    lake.catalog.drop_table(name)
    lake.catalog.create_table(name, lake.schema())
    text = rf"another Fluss table.* rename it .* disable and enable .*'fluss-lab repair {info.path} --adopt'"
    for refused in (tables.tier, lambda info: plan_repair(tables.connection, tables.storage, info.path)):
        with pytest.raises(UnsupportedError, match=text):
            refused(info)
    lake.catalog.rename_table(name, (info.path.database, "theirs"))
    switch(tables, info, OFF)
    switch(tables, info, ON)
    adopt(tables.connection, tables.storage, info.path)
    tables.tier(info)
    tables.check(info)


@pytest.mark.parametrize("is_gap", [False, True], ids=["all held", "records gone"])
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keyed"])
def test_a_lake_table_that_is_gone_is_made_anew_as_its_error_says(tables, keyed, is_gap):
    """Seen: enabling raised the error that asks to disable and enable."""
    tables.cluster.restart(SMALL)
    table = Keyed(tables) if keyed else None
    info = table.info if table else tables.create(buckets=2)

    def write():
        if table:
            table.upsert(range(len(table.model) // 2, 50 + len(table.model)), f"t{len(table.model)}-")
        else:
            tables.append(info, 50)

    write()
    tables.tier(info)
    if is_gap:
        age(tables, info, lambda: (write(), tables.tier(info)))
    write()
    tables.lake(info).catalog.drop_table((info.path.database, info.path.table))
    with pytest.raises(TableNotFoundError, match=rf"disable and enable .*'fluss-lab repair {info.path} --adopt'"):
        tables.tier(info)
    switch(tables, info, OFF)
    tables.cluster.restart()
    switch(tables, info, ON)
    starts = {bucket.bucket: start for bucket, (start, _) in log_ends(tables, info).items()}
    assert any(starts.values()) == is_gap
    adopt(tables.connection, tables.storage, info.path, accept_gaps=is_gap)
    tables.tier(info)
    rows = tables.lake_rows(info)
    if table:
        table.check()
    else:
        places = zip(rows["__bucket"].to_pylist(), rows["__offset"].to_pylist(), strict=True)
        ends = {bucket.bucket: end for bucket, (_, end) in log_ends(tables, info).items()}
        assert set(places) == {(bucket, at) for bucket in ends for at in range(starts[bucket], ends[bucket])}
    read = TableReader(tables.connection, info.path).scan().to_arrow()
    assert sorted(read["id"].to_pylist()) == sorted(rows["id"].to_pylist())


def test_a_lake_table_that_goes_while_it_is_altered_is_made_anew_as_its_error_says(tables):
    """A crash between lake and metadata, and the catalog lost in it: what the crash left must not refuse the remedy."""
    info = tables.create()
    tables.append(info, 50)
    tables.tier(info)

    def lose():
        tables.lake(info).catalog.drop_table((info.path.database, info.path.table))
        raise FailpointError("coordinator.ddl.after_lake")

    failpoints.arm("coordinator.ddl.after_lake", lose)
    with pytest.raises(InternalError):
        switch(tables, info, {"table.datalake.freshness": "2h"})
    tables.cluster.restart()
    with pytest.raises(TableNotFoundError, match=r"disable and enable .* --adopt'"):
        tables.tier(info)
    switch(tables, info, OFF)
    switch(tables, info, ON)
    adopt(tables.connection, tables.storage, info.path)
    tables.tier(info)
    tables.check(info)
