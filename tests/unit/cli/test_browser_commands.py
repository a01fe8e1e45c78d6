"""``fluss-lab explore``: a link, then the explorer, until Ctrl-C."""

import http.client
import os
import re
import signal
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fluss_lab.cli import browser_commands
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.cli.shell_kit import assert_refused, call
from tests.unit.cli.test_read_commands import process

pytestmark = pytest.mark.slow

LINK = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]+/open\?token=[\w-]+")


def get(address, path, **headers):
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_explorer_is_served_until_it_is_stopped(shell_lab, number):
    arguments = ("explore", "nyc.flights", "--read-only", "--mask", "s", "--no-browser", "-f", shell_lab.folder)
    with process(*arguments) as serving:
        link = urlsplit(LINK.search(serving.stdout.readline())[0])
        opened = get(link.netloc, f"{link.path}?{link.query}")
        cookie = opened.headers["Set-Cookie"].partition(";")[0]
        place = link.path.removesuffix("open")
        assert get(link.netloc, place, Cookie=cookie).status == 200
        assert get(link.netloc, place).status == 403
        serving.send_signal(number)
        out, err = serving.communicate(timeout=30)
    assert (serving.returncode, out) == (0, "")
    assert err.splitlines() == ["The link opens it once. Ctrl-C ends it.", "ended"]


def test_what_cannot_be_shown_is_refused_before_anything_is_served(shell_lab, tmp_path):
    assert_refused(call("explore", "nyc.nothing", "--no-browser", "-f", shell_lab.folder))
    assert_refused(call("explore", "../x", "--no-browser", "-f", shell_lab.folder))
    assert_refused(call("explore", "--no-browser", "-f", tmp_path / "none"))
    assert_refused(call("explore", "--port", "70000", "--no-browser", "-f", shell_lab.folder), 2)


def test_the_link_reaches_the_browser_in_a_file_of_ones_own(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(browser_commands.webbrowser, "open", seen.append)
    browser_commands._open_browser("http://127.0.0.1:1/x/open?token=t&<", tmp_path)
    wait_until(lambda: seen)
    (address,) = seen
    assert "token" not in address
    page = Path(urlsplit(address).path)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:1/x/open?token=t&amp;&lt;" in page.read_text()


def test_no_browser_is_opened_where_there_is_no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(browser_commands.sys, "platform", "linux")
    assert not browser_commands._has_screen()
    monkeypatch.setitem(os.environ, "WAYLAND_DISPLAY", "wayland-0")
    assert browser_commands._has_screen()
