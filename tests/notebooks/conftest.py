"""A JupyterLab in which a browser opens notebooks."""

import pytest

from tests.notebooks.jupyterlab_server import BrowserUnavailableError, browser, jupyterlab


@pytest.fixture(scope="module")
def lab_place(tmp_path_factory):
    """The address of a JupyterLab, and the folder of its notebooks."""
    try:
        browser()
    except BrowserUnavailableError as error:
        pytest.skip(str(error))
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("notebooks") / "mine"
    with jupyterlab(folder, home) as url:
        yield url, folder


@pytest.fixture
def used(seen):
    """What the visit has seen that uses a screen: the one in the other theme only looks."""
    if seen["asked"] == "dark":
        pytest.skip("one theme is used, the other only looked at")
    return seen
