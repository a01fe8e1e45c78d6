"""The lake-tiering state machine: by hand at its corners, and by random walks beside a plain model."""

import pytest

from fluss_lab.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptDataError,
    FencedTieringEpochError,
    ForeignCommitError,
    InternalError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    StorageError,
    TableNotFoundError,
    TieringCancelledError,
    TieringInProgressError,
    UnsupportedError,
    error_code,
)
from fluss_lab.server.coordinator.tiering.table_tiering import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, TieringState
from tests.unit.server.coordinator.tiering.states_kit import FRESHNESS_MS, TAKEOVER_MS, TIMEOUT_MS, table


def test_a_new_table_is_due_one_freshness_after_its_creation(bench):
    bench.add(1)
    bench.clock.advance(FRESHNESS_MS - 1)
    assert bench.tiering.request_due(None) is None
    assert bench.state(1) == (TieringState.SCHEDULED, 0)
    bench.clock.advance(1)
    assert bench.state(1) == (TieringState.PENDING, 1)
    grant = bench.tiering.request_due(None)
    assert (grant.table_id, grant.epoch, grant.takeover) == (1, 1, False)
    assert bench.state(1) == (TieringState.TIERING, 1)
    assert bench.tiering.request_due(None) is None


def test_the_next_round_is_due_one_freshness_after_the_last_finished(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.advance(30_000)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    assert bench.state(1) == (TieringState.SCHEDULED, 1)
    bench.clock.advance(FRESHNESS_MS - 1)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(1)
    assert bench.tiering.request_due(None).epoch == 2


def test_upkeep_does_not_change_when_the_last_round_was(bench):
    bench.add(1)
    bench.tiering.finish(1, bench.epoch, bench.tiering.request(1, None).epoch)
    tiered_ms = bench.clock.now_ms()
    bench.clock.advance(FRESHNESS_MS - 1)
    bench.tiering.finish(1, bench.epoch, bench.tiering.request(1, None).epoch, is_upkeep=True)
    assert bench.tiering.states()[0].last_tiered_ms == tiered_ms
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(1)
    failing = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, failing.epoch, "the lake is full")
    bench.tiering.finish(1, bench.epoch, bench.tiering.request(1, None).epoch, is_upkeep=True)
    # It may have mended what the round failed with, which is tried at once.
    assert bench.tiering.states()[0].failures == 0
    assert bench.tiering.request_due(None) is not None


def test_due_tables_are_given_out_in_the_order_in_which_they_came_due(bench):
    for table_id, freshness_ms in ((1, 3_000), (2, 1_000), (3, 2_000)):
        bench.add(table_id, freshness_ms)
    bench.clock.advance(5_000)
    assert [bench.tiering.request_due(None).table_id for _ in range(3)] == [2, 3, 1]


def test_a_force_finished_table_is_pending_at_once(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)
    assert bench.state(1) == (TieringState.PENDING, 2)
    assert bench.tiering.request_due(None).epoch == 2


def test_finishing_twice_is_fine_and_does_not_move_the_time(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    bench.clock.advance(1_000)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    bench.clock.advance(FRESHNESS_MS - 1_000)
    assert bench.tiering.request_due(None) is not None


def test_a_force_finished_round_may_say_so_twice(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    for _ in range(2):
        bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)
        assert bench.state(1) == (TieringState.PENDING, 2)
    bench.tiering.request_due(None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)  # later than late
    assert bench.state(1) == (TieringState.TIERING, 2)


def test_an_epoch_that_nobody_was_given_does_not_finish(bench):
    bench.add(1)
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.finish(1, bench.epoch, 0)


def test_an_older_epoch_may_do_nothing_any_more(bench):
    bench.add(1)
    old = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, old.epoch, "broken")
    new = bench.tiering.request(1, None)
    assert new.epoch == old.epoch + 1
    for call in (
        lambda: bench.tiering.renew(1, bench.epoch, old.epoch),
        lambda: bench.tiering.finish(1, bench.epoch, old.epoch),
        lambda: bench.tiering.fail(1, bench.epoch, old.epoch, "late"),
        lambda: bench.tiering.hold_for_commit(1, bench.epoch, old.epoch).__enter__(),
    ):
        with pytest.raises(FencedTieringEpochError, match="newest is 2"):
            call()
    bench.tiering.renew(1, bench.epoch, new.epoch)


def test_an_older_coordinators_tierer_may_do_nothing_any_more(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    old_epoch = bench.epoch
    bench.restart()
    for call in (
        lambda: bench.tiering.renew(1, old_epoch, grant.epoch),
        lambda: bench.tiering.finish(1, old_epoch, grant.epoch),
        lambda: bench.tiering.fail(1, old_epoch, grant.epoch, "late"),
    ):
        with pytest.raises(ConflictError, match="since its restart"):
            call()
    with pytest.raises(FencedTieringEpochError), bench.tiering.hold_for_commit(1, old_epoch, grant.epoch):
        pass


def test_a_round_cut_off_by_a_restart_is_a_takeover_for_the_next(bench):
    bench.add(1)
    first = bench.tiering.request(1, None)
    bench.restart()
    second = bench.tiering.request(1, None)
    assert second.takeover
    assert second.epoch > first.epoch
    bench.tiering.finish(1, bench.epoch, second.epoch)
    assert not bench.tiering.request(1, None).takeover


def test_a_takeover_that_fails_leaves_the_next_a_takeover(bench):
    bench.add(1)
    bench.tiering.request(1, session_id=5)
    bench.tiering.session_ended(5)
    second = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, second.epoch, "before it could fence")
    assert bench.tiering.request(1, None).takeover


def test_after_a_commit_of_unknown_outcome_the_next_is_a_takeover(bench):
    """Its commit may still arrive: who holds the table next fences it before files that it wrote are orphans."""
    bench.add(1)
    grant, unknown = bench.tiering.request(1, None), error_code(CommitOutcomeUnknownError("no answer"))
    bench.tiering.fail(1, bench.epoch, grant.epoch, "no answer", unknown)
    again = bench.tiering.request(1, None)
    assert again.takeover
    bench.tiering.finish(1, bench.epoch, again.epoch)
    assert not bench.tiering.request(1, None).takeover


def test_a_round_that_says_it_failed_is_no_takeover(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "no")
    assert not bench.tiering.request(1, None).takeover


def test_silence_fails_the_round_and_frees_the_table(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.advance(TIMEOUT_MS - 1)
    bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.clock.advance(TIMEOUT_MS)
    state = bench.tiering.states()[0]
    assert (state.state, state.epoch, state.failures) == (TieringState.PENDING, 2, 1)
    assert "no heartbeat" in state.last_error
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.clock.advance(BACKOFF_FIRST_MS)
    assert bench.tiering.request_due(None).takeover


def test_while_the_metadata_cannot_be_written_states_are_read_and_heartbeats_taken(bench):
    """Another table that comes due must not end the rounds that are under way, nor hide the states."""
    bench.add(1)
    bench.add(2)
    grant = bench.tiering.request(1, None)
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = ON")
    for _ in range(2 + FRESHNESS_MS // (TIMEOUT_MS - 1)):
        bench.clock.advance(TIMEOUT_MS - 1)
        bench.tiering.renew(1, bench.epoch, grant.epoch)
    assert bench.state(2) == (TieringState.SCHEDULED, 0)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(TIMEOUT_MS)
    assert bench.state(1) == (TieringState.TIERING, grant.epoch)
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = OFF")
    assert bench.state(1) == (TieringState.PENDING, grant.epoch + 1)
    assert bench.state(2) == (TieringState.PENDING, 1)


def test_a_tierer_that_ended_while_nothing_could_be_written_holds_its_table_no_longer_than_that(bench):
    bench.add(1)
    bench.add(2)
    grant = bench.tiering.request(1, session_id=5)
    other = bench.tiering.request(2, session_id=6)
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = ON")
    bench.tiering.session_ended(5)
    assert bench.state(1) == (TieringState.TIERING, grant.epoch)
    with pytest.raises(StorageError):
        bench.tiering.request(1, None)
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = OFF")
    assert bench.state(1) == (TieringState.PENDING, grant.epoch + 1)
    assert bench.state(2) == (TieringState.TIERING, other.epoch)
    assert bench.tiering.rounds(1)[-1].error.error_message == "the tierer's process ended during the round"
    assert bench.tiering.request(1, None).takeover


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_was_made_just_before_the_disk_was_full_is_tiered_when_there_is_room(bench, restarted):
    info = table(1)
    bench.catalog.add_table(info, [0])
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = ON")
    bench.tiering.register(info, new=True)
    assert bench.state(1) == (TieringState.SCHEDULED, 0)
    with pytest.raises(StorageError):
        bench.tiering.request(1, None)
    with bench.store.read() as db:
        db.execute("PRAGMA query_only = OFF")
    if restarted:
        bench.restart()
    bench.clock.advance(FRESHNESS_MS)
    assert bench.state(1) == (TieringState.PENDING, 1)
    assert bench.tiering.request_due(None).table_id == 1


def test_a_round_by_hand_waits_for_a_living_holder_and_takes_over_a_silent_one(bench):
    bench.add(1)
    first = bench.tiering.request(1, session_id=1)
    bench.clock.advance(TAKEOVER_MS - 1)
    with pytest.raises(TieringInProgressError, match="epoch 1, last heartbeat 9999 ms ago"):
        bench.tiering.request(1, session_id=2)
    bench.clock.advance(1)
    second = bench.tiering.request(1, session_id=2)
    assert second.takeover
    assert second.epoch == first.epoch + 1


@pytest.mark.parametrize(("renewed_by", "holder", "other"), [(None, 1, 2), (2, 2, 1)])
def test_a_hold_is_of_the_session_that_renewed_it_last(bench, renewed_by, holder, other):
    """A tierer whose stream broke attaches anew; one that renews without a stream keeps the one it had."""
    bench.add(1)
    grant = bench.tiering.request(1, session_id=1)
    bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)
    bench.tiering.session_ended(other)
    bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)
    bench.tiering.session_ended(holder)
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)


def test_the_end_of_a_session_frees_its_tables_and_no_others(bench):
    bench.add(1)
    bench.add(2)
    bench.tiering.request(1, session_id=1)
    bench.tiering.request(2, session_id=2)
    bench.tiering.session_ended(1)
    assert bench.tiering.request(1, session_id=2).takeover
    assert bench.state(2) == (TieringState.TIERING, 1)


def test_failing_tables_wait_longer_each_time_but_a_round_by_hand_does_not(bench):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    waited = []
    for _ in range(10):
        grant = bench.tiering.request_due(None)
        bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
        delay_ms = 0
        while bench.tiering._queue[1] > bench.clock.monotonic_ms():
            assert bench.tiering.request_due(None) is None
            bench.clock.advance(1_000)
            delay_ms += 1_000
        waited.append(delay_ms)
    assert waited == [min(BACKOFF_FIRST_MS * 2**n, BACKOFF_MAX_MS) for n in range(10)]
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    assert bench.tiering.request_due(None) is None
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    assert (bench.tiering.states()[0].failures, bench.tiering.states()[0].last_error) == (0, None)


@pytest.mark.parametrize(
    "error",
    [
        ForeignCommitError,
        LakeSnapshotNotFoundError,
        TableNotFoundError,
        OffsetOutOfRangeError,
        CorruptDataError,
        UnsupportedError,
    ],
)
def test_what_only_a_person_mends_is_tried_as_seldom_as_any(bench, error):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "look at it", error_code(error("look at it")))
    assert bench.tiering.schedule()[0][1] == bench.clock.now_ms() + BACKOFF_MAX_MS
    bench.clock.advance(BACKOFF_MAX_MS - 1)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(1)
    assert bench.tiering.request_due(None).epoch == 2


@pytest.mark.parametrize("code", [None, error_code(StorageError("full")), 987_654])
def test_other_failures_are_tried_again_soon(bench, code):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    bench.tiering.fail(1, bench.epoch, bench.tiering.request_due(None).epoch, "no", code)
    bench.clock.advance(BACKOFF_FIRST_MS)
    assert bench.tiering.request_due(None) is not None


def test_an_altered_table_waits_no_longer(bench):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    bench.tiering.fail(1, bench.epoch, bench.tiering.request_due(None).epoch, "no", error_code(UnsupportedError("no")))
    bench.tiering.register(table(1, freshness_ms=1), new=False)
    assert bench.tiering.request_due(None).epoch == 2


def test_the_schedule_says_when_each_table_is_due(bench):
    bench.add(1)
    bench.add(2)
    bench.add(3, freshness_ms=1)
    start_ms = bench.clock.now_ms()
    bench.tiering.request(2, None)
    bench.clock.advance(1)
    bench.tiering.fail(3, bench.epoch, bench.tiering.request_due(None).epoch, "no")
    due = {each.table_id: at_ms for each, at_ms in bench.tiering.schedule()}
    assert due == {1: start_ms + FRESHNESS_MS, 2: None, 3: start_ms + 1 + BACKOFF_FIRST_MS}


def test_a_table_that_waits_does_not_hold_up_the_next(bench):
    bench.add(1, freshness_ms=1)
    bench.add(2, freshness_ms=5)
    bench.clock.advance(1)
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    bench.clock.advance(10)
    assert bench.tiering.request_due(None).table_id == 2


def test_switching_the_lake_off_and_on_goes_on_with_the_epochs(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.remove(1)
    with pytest.raises(LakeNotConfiguredError, match=r"table\.datalake\.enabled"):
        bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.tiering.register(table(1), new=True)
    assert bench.tiering.request_due(None) is None
    again = bench.tiering.request(1, None)
    assert again.epoch == grant.epoch + 1
    assert again.takeover


def test_a_dropped_table_is_not_found(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.catalog.remove_table(1)
    bench.tiering.remove(1)
    for call in (
        lambda: bench.tiering.renew(1, bench.epoch, grant.epoch),
        lambda: bench.tiering.request(1, None),
        lambda: bench.tiering.hold_for_commit(1, bench.epoch, grant.epoch).__enter__(),
    ):
        with pytest.raises(TableNotFoundError):
            call()
    assert bench.tiering.request_due(None) is None


def test_another_freshness_counts_at_once(bench):
    bench.add(1)
    bench.tiering.register(table(1, freshness_ms=1_000), new=False)
    bench.clock.advance(1_000)
    assert bench.tiering.request_due(None) is not None


def test_a_wall_clock_set_back_delays_a_round_by_one_freshness_at_most(bench):
    bench.add(1)
    bench.clock.set_wall(bench.clock.now_ms() - 86_400_000)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(FRESHNESS_MS)
    assert bench.tiering.request_due(None) is not None


def test_an_illegal_move_is_a_defect_and_changes_nothing(bench):
    bench.add(1)
    with pytest.raises(InternalError, match="may not go from Scheduled to Tiered"):
        bench.tiering._move(bench.tiering.states()[0], TieringState.TIERED)
    assert bench.state(1) == (TieringState.SCHEDULED, 0)


def test_a_cancelled_round_is_no_failure_of_the_table(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    code = error_code(TieringCancelledError(""))
    for _ in range(3):
        grant = bench.tiering.request(1, None)
        bench.tiering.fail(1, bench.epoch, grant.epoch, "as wanted", code)
        (found,) = bench.tiering.states()
        assert (found.state, found.failures, found.last_error) == (TieringState.PENDING, 1, "broken")
        assert bench.tiering.request_due(None) is None
    bench.clock.advance(BACKOFF_FIRST_MS)
    grant = bench.tiering.request_due(None)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "as wanted", code)
    (found,) = bench.tiering.states()
    assert (found.failures, found.last_error, found.unfinished) == (0, None, False)
