"""A lab, and the model of an explorer of it."""

import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        yield lab


@pytest.fixture
def model(lab):
    return ExplorerModel(lab, "my lab")
