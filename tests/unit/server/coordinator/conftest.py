"""Clusters to ask."""

import pytest

from tests.unit.server.coordinator.rig import Rig


@pytest.fixture
def rig(tmp_path):
    """A cluster without a lake, with database ``d``."""
    made = Rig(tmp_path / "lab", lake=False)
    made.create_database()
    yield made
    made.close()


@pytest.fixture
def lake_rig(tmp_path):
    """A cluster with the default lake, with database ``d``."""
    made = Rig(tmp_path / "my lab")
    made.create_database()
    yield made
    made.close()


@pytest.fixture
def brief_rig(tmp_path):
    """The same; a drop waits 200 ms, not 10 s, for a tierer that never lets go."""
    made = Rig(tmp_path / "my lab", options={"lake.tiering.takeover": "200ms"})
    made.create_database()
    yield made
    made.close()
