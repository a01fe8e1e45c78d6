"""Minutes of continuous tiering with kills and a verifier: see `tests.campaigns.soak`."""

import os

import pytest

from tests.campaigns import soak

pytestmark = [pytest.mark.campaign, pytest.mark.spark]


def test_minutes_of_tiering_with_kills(tmp_path, seed):
    soak.run(tmp_path / "lab", seed, float(os.environ.get("FLUSS_LAB_SOAK_MINUTES", "10")))
