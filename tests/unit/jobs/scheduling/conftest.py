"""What the tests of schedules share."""

import pytest

from tests.unit.jobs.scheduling.scheduler_kit import Scene


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    made.scheduler._end_all()
