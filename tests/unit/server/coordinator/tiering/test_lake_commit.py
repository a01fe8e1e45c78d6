"""Heartbeats and lake commits over the wire: who may, who may not, and what everybody hears of it."""

import re
import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import ERROR_CODES, InternalError, LakeSnapshotNotFoundError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import wait_until
from tests.unit.server.coordinator.rig import Rig

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s"}


def name_of(code: int) -> str:
    return ERROR_CODES[code].__name__


def beat(rig, kind: str, table_id: int, epoch: int, coordinator_epoch: int = 1, force: bool = False, message: str = ""):
    """Send one table's heartbeat; return the error's name, or None."""
    table = pb.PbHeartbeatReqForTable(table_id=table_id, coordinator_epoch=coordinator_epoch, tiering_epoch=epoch)
    if message:
        table.error_message = message
    request = pb.LakeTieringHeartbeatRequest()
    getattr(request, f"{kind}_tables").append(table)
    if force:
        request.force_finished_tables.append(table_id)
    answer = getattr(rig.coordinator.lake_tiering_heartbeat(request), f"{kind}_table_resp")[0]
    assert answer.table_id == table_id
    return name_of(answer.error.error_code) if answer.HasField("error") else None


def state(rig: Rig, table_id: int) -> pb.PbTieringState:
    states = rig.coordinator.describe_cluster(pb.DescribeClusterRequest()).tiering_states
    return next(each for each in states if each.table_id == table_id)


def hold(rig: Rig, table_id: int) -> int:
    answer = rig.ask(table_id)
    assert not answer.HasField("request_error"), answer.request_error
    return answer.tiering_table.tiering_epoch


def test_a_commit_reaches_readers_and_tablet_servers(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    with pytest.raises(LakeSnapshotNotFoundError, match="never tiered"):
        lake_rig.snapshot()
    answer = lake_rig.commit(table_id, 100, hold(lake_rig, table_id), {0: 7})
    assert not answer.HasField("error_code")
    snapshot = lake_rig.snapshot()
    assert (snapshot.table_id, snapshot.snapshotId) == (table_id, 100)
    assert [(e.bucket_id, e.log_offset, e.log_max_timestamp) for e in snapshot.bucket_snapshots] == [(0, 7, 70)]
    described = lake_rig.tablet.describe_buckets(pb.DescribeBucketsRequest(table_id=table_id)).buckets
    assert {each.table_bucket.bucket_id: each.known.lake_log_end_offset for each in described} == {0: 7, 1: 0}


def test_what_was_committed_survives_a_restart(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    epoch = hold(lake_rig, table_id)
    lake_rig.commit(table_id, 100, epoch, {0: 7})
    lake_rig.commit(table_id, 101, epoch, {1: 3})
    assert beat(lake_rig, "finished", table_id, epoch) is None
    before = [lake_rig.snapshot().SerializeToString(), lake_rig.snapshot(snapshot_id=100).SerializeToString()]
    tiered = state(lake_rig, table_id)
    lake_rig.cluster.restart()
    assert [lake_rig.snapshot().SerializeToString(), lake_rig.snapshot(snapshot_id=100).SerializeToString()] == before
    assert (state(lake_rig, table_id).tiering_epoch, state(lake_rig, table_id).last_tiered_time) == (
        epoch, tiered.last_tiered_time,
    )  # fmt: skip
    described = lake_rig.tablet.describe_buckets(pb.DescribeBucketsRequest(table_id=table_id)).buckets
    assert {each.table_bucket.bucket_id: each.known.lake_log_end_offset for each in described} == {0: 7, 1: 3}


def test_only_the_holder_of_the_newest_epoch_commits(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    epoch = hold(lake_rig, table_id)
    refused = {
        "no epoch": lake_rig.commit(table_id, 1, None, {0: 1}),
        "no coordinator epoch": lake_rig.commit(table_id, 1, epoch, {0: 1}, coordinator_epoch=None),
        "older epoch": lake_rig.commit(table_id, 1, epoch - 1, {0: 1}),
        "newer epoch": lake_rig.commit(table_id, 1, epoch + 1, {0: 1}),
        "other coordinator": lake_rig.commit(table_id, 1, epoch, {0: 1}, coordinator_epoch=9),
        "unknown table": lake_rig.commit(999, 1, epoch, {0: 1}),
    }
    assert {case: name_of(answer.error_code) for case, answer in refused.items()} == {
        "no epoch": "InvalidRequestError",
        "no coordinator epoch": "InvalidRequestError",
        "older epoch": "FencedTieringEpochError",
        "newer epoch": "FencedTieringEpochError",
        "other coordinator": "FencedTieringEpochError",
        "unknown table": "TableNotFoundError",
    }
    with pytest.raises(LakeSnapshotNotFoundError):
        lake_rig.snapshot()
    assert beat(lake_rig, "finished", table_id, epoch) is None
    assert name_of(lake_rig.commit(table_id, 1, epoch, {0: 1}).error_code) == "FencedTieringEpochError"


def test_a_table_that_was_made_again_is_another_one(brief_rig):
    table_id = brief_rig.create(properties=LAKE)
    epoch = hold(brief_rig, table_id)
    brief_rig.drop()
    brief_rig.create(properties=LAKE)
    assert name_of(brief_rig.commit(table_id, 1, epoch, {0: 1}).error_code) == "TableNotFoundError"
    assert beat(brief_rig, "tiering", table_id, epoch) == "TableNotFoundError"
    with pytest.raises(LakeSnapshotNotFoundError):
        brief_rig.snapshot()


def test_a_paused_tierer_cannot_commit_after_another_took_over(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    old = hold(lake_rig, table_id)
    lake_rig.clock.advance(10_000)
    answer = lake_rig.ask(table_id)
    assert answer.tiering_table.takeover
    assert name_of(lake_rig.commit(table_id, 1, old, {0: 1}).error_code) == "FencedTieringEpochError"
    assert not lake_rig.commit(table_id, 2, answer.tiering_table.tiering_epoch, {0: 2}).HasField("error_code")
    assert lake_rig.snapshot().snapshotId == 2


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ({5: 1}, r"expected a bucket in \[0, 2\)"),
        ({0: -1}, "at least 0"),
        ({(3, 0): 1}, "no such partition"),
    ],
)
def test_offsets_that_cannot_be_are_refused(lake_rig, offsets, text):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    answer = lake_rig.commit(table_id, 1, hold(lake_rig, table_id), offsets)
    assert name_of(answer.error_code) == "InvalidRequestError"
    assert re.search(text, answer.error_message)


def test_offsets_never_go_back_and_the_same_again_is_fine(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    epoch = hold(lake_rig, table_id)
    assert not lake_rig.commit(table_id, 1, epoch, {0: 5, 1: 5}).HasField("error_code")
    assert not lake_rig.commit(table_id, 1, epoch, {0: 5, 1: 5}).HasField("error_code")
    assert name_of(lake_rig.commit(table_id, 2, epoch, {0: 9, 1: 4}).error_code) == "ConflictError"
    assert [entry.log_offset for entry in lake_rig.snapshot().bucket_snapshots] == [5, 5]


def test_one_tables_trouble_is_not_anothers(lake_rig):
    good = lake_rig.create("good", properties=LAKE)
    epoch = hold(lake_rig, good)
    tables = [
        pb.PbHeartbeatReqForTable(table_id=999, coordinator_epoch=1, tiering_epoch=1),
        pb.PbHeartbeatReqForTable(table_id=good, coordinator_epoch=1, tiering_epoch=epoch),
    ]
    answers = lake_rig.coordinator.lake_tiering_heartbeat(
        pb.LakeTieringHeartbeatRequest(tiering_tables=tables)
    ).tiering_table_resp
    assert [name_of(each.error.error_code) if each.HasField("error") else None for each in answers] == [
        "TableNotFoundError",
        None,
    ]


def test_a_heartbeat_hears_failures_first_and_gives_out_last(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    epoch = hold(lake_rig, table_id)
    table = pb.PbHeartbeatReqForTable(table_id=table_id, coordinator_epoch=1, tiering_epoch=epoch, error_message="boom")
    request = pb.LakeTieringHeartbeatRequest(
        failed_tables=[table], finished_tables=[table], request_table=True, request_table_id=table_id
    )
    answer = lake_rig.coordinator.lake_tiering_heartbeat(request)
    assert not answer.failed_table_resp[0].HasField("error")
    assert name_of(answer.finished_table_resp[0].error.error_code) == "FencedTieringEpochError"
    assert answer.tiering_table.tiering_epoch == epoch + 1
    assert answer.coordinator_epoch == 1
    found = state(lake_rig, table_id)
    assert (found.state, found.last_error, found.failures) == ("Tiering", "boom", 1)


def test_states_are_reported_as_the_rounds_go(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    assert state(lake_rig, table_id).state == "Scheduled"
    assert not lake_rig.ask().HasField("tiering_table")
    lake_rig.clock.advance(10_000)
    assert state(lake_rig, table_id).state == "Pending"
    epoch = lake_rig.ask().tiering_table.tiering_epoch
    assert state(lake_rig, table_id).state == "Tiering"
    assert beat(lake_rig, "finished", table_id, epoch, force=True) is None
    assert state(lake_rig, table_id).state == "Pending"
    epoch = lake_rig.ask().tiering_table.tiering_epoch
    assert beat(lake_rig, "finished", table_id, epoch) is None
    assert state(lake_rig, table_id).state == "Scheduled"
    assert state(lake_rig, table_id).last_tiered_time == lake_rig.clock.now_ms()


def test_asking_for_one_table_tells_why_it_is_not_given(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    lake_rig.create("plain")
    hold(lake_rig, table_id)
    assert name_of(lake_rig.ask(table_id).request_error.error_code) == "TieringInProgressError"
    assert name_of(lake_rig.ask(999).request_error.error_code) == "TableNotFoundError"
    plain = lake_rig.info("plain").table_id
    assert name_of(lake_rig.ask(plain).request_error.error_code) == "LakeNotConfiguredError"


class Session:
    """An attached stream held by a thread."""

    def __init__(self, rig) -> None:
        self.closed = threading.Event()
        self.ended = threading.Event()
        self.opened = threading.Event()
        self.id = 0
        self._stream = rig.coordinator.attach(pb.AttachRequest(client_name="test"), self.closed)
        threading.Thread(target=self._hold, daemon=True).start()
        assert self.opened.wait(60)

    def _hold(self) -> None:
        for response in self._stream:
            self.id = response.session_id
            self.opened.set()
        self.ended.set()

    def close(self) -> None:
        self.closed.set()
        assert self.ended.wait(60)


def attached(rig: Rig) -> int:
    return rig.coordinator.describe_cluster(pb.DescribeClusterRequest()).attached


def test_the_end_of_a_session_frees_its_table_at_once(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    session = Session(lake_rig)
    assert attached(lake_rig) == 1
    first = lake_rig.ask(table_id, session.id).tiering_table
    assert not first.takeover
    assert name_of(lake_rig.ask(table_id).request_error.error_code) == "TieringInProgressError"
    session.close()
    wait_until(lambda: attached(lake_rig) == 0)
    second = lake_rig.ask(table_id).tiering_table
    assert second.takeover
    assert second.tiering_epoch == first.tiering_epoch + 1
    assert beat(lake_rig, "tiering", table_id, first.tiering_epoch) == "FencedTieringEpochError"


def test_session_ids_are_never_used_again(lake_rig):
    ids = []
    for _ in range(2):
        for _ in range(2):
            session = Session(lake_rig)
            ids.append(session.id)
            session.close()
        lake_rig.cluster.restart()
    assert len(set(ids)) == 4


def test_a_session_that_is_gone_only_loses_its_quick_end(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    assert lake_rig.ask(table_id, session_id=12345).tiering_table.tiering_epoch == 1
    lake_rig.clock.advance(10_000)
    assert lake_rig.ask(table_id).tiering_table.takeover


@pytest.mark.parametrize(("point", "is_kept"), [("before", False), ("after", True)])
def test_a_commit_cut_off_can_be_repeated(lake_rig, point, is_kept):
    table_id = lake_rig.create(buckets=1, properties=LAKE)
    epoch = hold(lake_rig, table_id)
    failpoints.arm(f"coordinator.lake_commit.{point}", "error@1")
    with pytest.raises(InternalError):
        lake_rig.commit(table_id, 1, epoch, {0: 5})
    if is_kept:
        assert lake_rig.snapshot().snapshotId == 1
    else:
        with pytest.raises(LakeSnapshotNotFoundError):
            lake_rig.snapshot()
    assert not lake_rig.commit(table_id, 1, epoch, {0: 5}).HasField("error_code")
    (bucket,) = lake_rig.tablet.describe_buckets(pb.DescribeBucketsRequest(table_id=table_id)).buckets
    assert bucket.known.lake_log_end_offset == 5
