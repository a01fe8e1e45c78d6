"""Thousands of random steps against the model; a failure prints the shortest program that shows it."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import ClusterMachine

QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def run(examples: int, steps: int, seed: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=QUIET, database=None,
        print_blob=True, phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    machine = type("SeededClusterMachine", (ClusterMachine,), {"_hypothesis_internal_use_seed": seed})
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.slow
def test_the_cluster_answers_as_the_model(seed):
    run(examples=20, steps=50, seed=seed)


@pytest.mark.campaign
def test_the_cluster_answers_as_the_model_for_long(seed):
    run(examples=2000, steps=120, seed=seed)
