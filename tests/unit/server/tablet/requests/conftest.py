"""Tablet servers with primary-key tables."""

import pytest

from tests.unit.server.tablet.kv_kit import KvTablet


@pytest.fixture
def tablet(tmp_path):
    service = KvTablet(tmp_path).open(0)
    yield service
    service.service.close()
