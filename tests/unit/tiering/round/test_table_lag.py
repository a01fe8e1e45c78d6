"""How far the lake lagged over kept rounds, from what the coordinator keeps of them."""

from fluss_lab.client import TieringRoundRecord
from fluss_lab.client.cluster.tiering_rounds import RoundLag
from fluss_lab.tiering.round.table_lag import DURABLE_MS, LagSample, complete_ms, lag_samples

NOW = 1_700_000_000_000


def record(epoch, *, start_s, before=None, after=None, **more):
    start_ms = NOW + start_s * 1_000
    lags = {name: None if lag is None else RoundLag(*lag) for name, lag in (("before", before), ("after", after))}
    return TieringRoundRecord(epoch, start_ms, start_ms + 500, **lags, **more)


def test_each_round_has_a_sample_of_its_plan_and_one_of_its_end():
    rounds = [
        record(1, start_s=0, before=(10, 9_000), after=(0, 0)),
        record(2, start_s=20, before=(30, 8_000), after=(2, 700)),
    ]
    assert lag_samples(rounds) == [
        LagSample(NOW, 10, 9_000, 1), LagSample(NOW + 500, 0, 0, 1),
        LagSample(NOW + 20_000, 30, 8_000, 2), LagSample(NOW + 20_500, 2, 700, 2),
    ]  # fmt: skip


def test_nothing_that_waits_is_older_than_the_plan_of_the_last_round_that_took_all():
    hour_ms = 3_600_000
    rounds = [
        record(1, start_s=0, before=(10, hour_ms), after=(0, 0)),
        record(2, start_s=10, before=(1, hour_ms), error="no"),
        record(3, start_s=30, before=(1, hour_ms), is_limited=True),
        record(4, start_s=40, before=(1, hour_ms)),
    ]
    assert [each.ms for each in lag_samples(rounds) if each.records == 1] == [
        10_000 + DURABLE_MS, 30_000 + DURABLE_MS, 40_000 + DURABLE_MS,
    ]  # fmt: skip
    assert complete_ms(rounds) == NOW + 40_000 - DURABLE_MS
    assert complete_ms(rounds[:3]) == NOW - DURABLE_MS
    assert complete_ms(rounds[1:3]) is None
    repair = record(5, start_s=90)
    assert complete_ms([*rounds, repair]) == complete_ms(rounds), "it takes a damaged bucket's sound records alone"


def test_what_is_not_known_is_no_sample():
    rounds = [record(1, start_s=0, error="before it was planned"), TieringRoundRecord(2, NOW, None)]
    assert lag_samples(rounds) == []
