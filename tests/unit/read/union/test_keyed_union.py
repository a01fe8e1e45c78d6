"""The union read of primary-key tables equals the model: over random histories, at moments of any age."""

import random
from collections import Counter
from typing import Final

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.keyed_kit import OPTIONS, KeyedTable, Looks

#: Histories of each kind in a campaign, half a minute each.
CAMPAIGN_WALKS: Final = 5
STEPS = (
    ["write"] * 4 + ["tick"] * 3 + ["keep"] * 2 + ["tier"] * 2 + ["tier_cut", "compact", "expire", "retain", "column"]
    + ["look"] * 8 + ["partition", "elsewhere", "tags"]
)  # fmt: skip


def walk(table: KeyedTable, rng: random.Random, steps: int) -> Looks:
    """Take random steps, and look after each."""
    looks = Looks(table)
    for _ in range(steps):
        match rng.choice(STEPS):
            case "write":
                table.write(rng.randint(1, 3))
            case "tick":
                table.clock.advance(rng.choice([1, 10, 1000]))
            case "keep":
                looks.kept.append(table.keep())
            case "tier":
                table.tier()
            case "tier_cut":
                table.tier(split_bytes_min=1, split_bytes_max=400)
            case "compact":
                table.compact()
            case "expire":
                table.expire()
            case "tags":
                table.expire(tags=True)
            case "retain":
                table.retain()
            case "elsewhere" if rng.random() < 0.5:
                table.compact_elsewhere(rng)
            case "column" if len(table.history.added) < 2:
                table.history.add_column()
            case "partition" if table.kind.partitioned_by and not table.history.frozen and table.lake() is not None:
                table.drop_partition(rng.choice(["p1", "p2"]))
            case "look":
                looks.look(rng)
        table.clock.advance(1)
    return looks


def walked(kind: str, seed: int, steps: int) -> Looks:
    with EmbeddedCluster(options=OPTIONS, clock=(clock := MockClock())) as cluster:
        looks = walk(KeyedTable(cluster, clock, kind, "t", seed), rng := random.Random(seed), steps)
        for _ in range(10):
            looks.look(rng)
    assert looks.read, "every moment was refused: the test shows nothing"
    return looks


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pk_parts", "pk_prefix"])
def test_a_keyed_union_read_equals_the_model_over_a_random_history(kind, seed):
    walked(kind, seed, 40)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["pk", "pk_parts", "pk_prefix", "pk_first", "pk_versioned", "pk_moments", "pk_tricky"])
def test_many_keyed_histories(kind, seed):
    total = Counter()
    for number in range(CAMPAIGN_WALKS):
        looks = walked(kind, seed + number, 150)
        total += Counter(read=looks.read, refused=looks.refused, timeless=looks.timeless)
    assert total["read"] > total["refused"], total
