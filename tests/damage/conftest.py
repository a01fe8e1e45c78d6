"""What tests of damage share."""

import pytest

from tests.damage.whole_lab import WholeLab


@pytest.fixture(scope="session")
def whole_lab(tmp_path_factory):
    """A lab with every kind of file, laid anew for each case."""
    return WholeLab(tmp_path_factory.mktemp("whole"))
