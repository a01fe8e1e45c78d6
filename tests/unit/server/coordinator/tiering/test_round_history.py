"""The kept rounds of a table: whoever ran them, however they ended, and no more of them than asked for."""

import pytest

from fluss_lab.errors import ForeignCommitError, error_code
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.tiering.round_history import FACTS
from tests.unit.server.coordinator.tiering.states_kit import ROUNDS_KEPT, TAKEOVER_MS, TIMEOUT_MS


def run(bench, rows=0, table_id=1, took_ms=1_000, **facts):
    """Run a round by hand; return its epoch."""
    grant = bench.tiering.request(table_id, None)
    bench.clock.advance(took_ms)
    said = pb.PbRoundFacts(row_count=rows, total_ms=took_ms, **facts)
    bench.tiering.finish(table_id, bench.epoch, grant.epoch, records=rows, size_bytes=0, facts=said)
    return grant.epoch


def kept(bench, table_id=1):
    return [(each.tiering_epoch, each.facts.row_count) for each in bench.tiering.rounds(table_id)]


def test_every_fact_that_a_tierer_says_has_a_column():
    assert [field.name for field in pb.PbRoundFacts.DESCRIPTOR.fields] == list(FACTS)


def test_rounds_are_kept_with_what_their_tierers_say_and_survive_a_restart(bench):
    bench.add(1)
    began_ms = bench.clock.now_ms()
    said = {
        "event_count": 1, "files": 2, "size_in_bytes": 3, "splits": 4, "snapshot_id": 1 << 62, "is_limited": True,
        "plan_ms": 5, "write_ms": 6, "commit_ms": 7, "maintain_ms": 8, "records_before": 9, "lag_ms_before": 10,
        "records_after": 11, "lag_ms_after": 12,
    }  # fmt: skip
    epoch = run(bench, 70, took_ms=2_500, **said)
    bench.restart()
    (found,) = bench.tiering.rounds(1)
    assert found == pb.PbTieringRound(
        tiering_epoch=epoch, start_time=began_ms, end_time=began_ms + 2_500, idle_before=0,
        facts=pb.PbRoundFacts(row_count=70, total_ms=2_500, **said),
    )  # fmt: skip
    assert run(bench, 5) > epoch
    assert [rows for _, rows in kept(bench)] == [70, 5]


def test_a_round_under_way_is_among_them(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    (found,) = bench.tiering.rounds(1)
    assert found.tiering_epoch == grant.epoch
    assert not found.HasField("end_time")
    assert not found.HasField("error")


def test_a_failed_round_is_kept_with_its_error_and_what_is_known_of_it(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.advance(400)
    code, said = error_code(ForeignCommitError("")), pb.PbRoundFacts(plan_ms=400, records_before=17, lag_ms_before=5)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "ForeignCommitError: not ours" + "x" * 5_000, code, said)
    bench.restart()
    (found,) = bench.tiering.rounds(1)
    assert found.error.error_code == code
    assert found.error.error_message.startswith("ForeignCommitError: not ours")
    assert len(found.error.error_message) == 2_000
    assert found.end_time - found.start_time == 400
    assert found.facts == said


@pytest.mark.parametrize("end", ["silence", "session", "takeover"])
def test_a_round_that_the_coordinator_gives_up_is_kept_with_the_reason(bench, end):
    bench.add(1)
    bench.tiering.request(1, 7)
    if end == "session":
        bench.tiering.session_ended(7)
    else:
        bench.clock.advance(TIMEOUT_MS if end == "silence" else TAKEOVER_MS)
    if end == "takeover":
        bench.tiering.request(1, None)
    found = bench.tiering.rounds(1)[0]
    wanted = {"silence": "no heartbeat for", "session": "process ended", "takeover": "taken over after"}[end]
    assert wanted in found.error.error_message
    assert found.error.error_code == 0
    assert found.HasField("end_time")


def test_how_a_round_ended_that_was_cut_off_by_a_restart_is_said_to_be_unknown(bench):
    bench.add(1)
    bench.tiering.request(1, None)
    bench.restart()
    (found,) = bench.tiering.rounds(1)
    assert "not known" in found.error.error_message
    run(bench, 3)
    cut_off, after = bench.tiering.rounds(1)
    assert "not known" in cut_off.error.error_message
    assert cut_off.HasField("end_time")
    assert not after.HasField("error")


def test_so_does_one_whose_lake_was_switched_off(bench):
    bench.add(1)
    bench.tiering.request(1, None)
    bench.define(1, 1_000, enabled=False)
    (found,) = bench.tiering.rounds(1)
    assert "switched off" in found.error.error_message


def test_no_more_rounds_are_kept_than_asked_for(bench):
    bench.add(1)
    bench.add(2)
    for number in range(ROUNDS_KEPT + 4):
        run(bench, 100 + number)
    run(bench, 1, table_id=2)
    assert [rows for _, rows in kept(bench)] == [104, 105, 106, 107, 108]
    assert [rows for _, rows in kept(bench, 2)] == [1]
    for _ in range(ROUNDS_KEPT + 1):
        grant = bench.tiering.request(1, None)
        bench.tiering.fail(1, bench.epoch, grant.epoch, "again")
    assert [each.error.error_message for each in bench.tiering.rounds(1)] == ["again"] * ROUNDS_KEPT


def test_of_rounds_with_nothing_to_tier_the_last_stands_for_all(bench):
    bench.add(1)
    first = run(bench, 10)
    for _ in range(ROUNDS_KEPT * 3):
        last = run(bench)
    found = bench.tiering.rounds(1)
    assert [(each.tiering_epoch, each.idle_before) for each in found] == [(first, 0), (last, ROUNDS_KEPT * 3 - 1)]
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    run(bench)
    limited = run(bench, is_limited=True)
    run(bench)
    assert [each.idle_before for each in bench.tiering.rounds(1)][-4:] == [0, 0, 0, 0]
    assert bench.tiering.rounds(1)[-2].tiering_epoch == limited


def test_a_hold_for_upkeep_is_no_round(bench):
    bench.add(1)
    run(bench, 10)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, again=True, records=0, size_bytes=0)
    assert [rows for _, rows in kept(bench)] == [10]
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "IcebergError: no room", is_upkeep=True)
    assert [rows for _, rows in kept(bench)] == [10]


def test_of_a_tierer_of_an_older_release_its_numbers_are_kept(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, records=12, size_bytes=99)
    (found,) = bench.tiering.rounds(1)
    assert found.facts == pb.PbRoundFacts(row_count=12, size_in_bytes=99)


def test_a_report_that_arrives_twice_changes_nothing(bench):
    bench.add(1)
    epoch = run(bench, 10)
    before = bench.tiering.rounds(1)
    bench.clock.advance(1_000)
    bench.tiering.finish(1, bench.epoch, epoch, records=11, facts=pb.PbRoundFacts(row_count=11))
    assert bench.tiering.rounds(1) == before


def test_what_cannot_be_is_left_out(bench):
    bench.add(1)
    run(bench, 10, files=-1, size_in_bytes=-(1 << 63))
    (found,) = bench.tiering.rounds(1)
    assert found.facts == pb.PbRoundFacts(row_count=10, total_ms=1_000)


def test_a_clock_set_back_gives_no_round_that_ends_before_it_begins(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.set_wall(bench.clock.now_ms() - 60_000)
    bench.tiering.finish(1, bench.epoch, grant.epoch, records=1, facts=pb.PbRoundFacts(row_count=1))
    (found,) = bench.tiering.rounds(1)
    assert found.end_time == found.start_time


def test_the_history_goes_with_the_table(bench):
    bench.add(1)
    run(bench, 10)
    bench.catalog.remove_table(1)
    bench.tiering.drop(1)
    assert bench.tiering.rounds(1) == []
    with bench.store.read() as db:
        assert db.execute("SELECT count(*) FROM tiering_rounds").fetchone() == (0,)
