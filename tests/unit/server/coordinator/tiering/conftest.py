"""The states of tables, on a bench."""

import pytest

from tests.unit.server.coordinator.tiering.states_kit import Bench


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()
