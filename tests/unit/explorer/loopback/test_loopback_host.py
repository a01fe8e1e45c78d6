"""The server of an explorer's pages, asked by its page and by whoever else can reach it."""

import asyncio
import http.client
import json
import logging
import socket
import threading

import psutil
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.loopback import page_handlers
from fluss_lab.explorer.loopback.loopback_host import LoopbackHost
from fluss_lab.explorer.loopback.page_handlers import CLOSE_ENDED, CLOSE_REFUSED, REQUEST_BYTES_MAX
from fluss_lab.explorer.loopback.page_views import VIEWS_MAX
from fluss_lab.testing.mock_clock import wait_until

PATHS = ("", "host.js", "view.js", "style.css", "channel")
HEADERS = ("Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Cache-Control")


class Served:
    """A host that serves, and what a browser knows of it."""

    def __init__(self, host):
        self.host, self.access = host, host.access
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._begun.wait()
        self.cookie = self.access.cookie.partition(";")[0]

    async def _serve(self):
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self.host.serve(self._stop)

    def close(self):
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def ask(self, path="", method="GET", place=None, cookie=None, body=None, **headers):
        """Return status, headers and text of an answer; `cookie` True: the right one."""
        connection = http.client.HTTPConnection(self.access.host, timeout=20)
        host = headers.pop("Host", self.access.host)
        connection.putrequest(method, (self.access.place if place is None else place) + path, skip_host=True)
        if cookie:
            headers["Cookie"] = self.cookie if cookie is True else cookie
        for name, value in {"Host": host, **headers}.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        with connection.getresponse() as answer:
            found = answer.status, answer.headers, answer.read().decode()
        connection.close()
        return found

    async def socket(self):
        headers = {"Origin": self.access.origin, "Cookie": self.cookie}
        request = HTTPRequest(f"ws://{self.access.host}{self.access.place}channel", headers=headers)
        return await websocket_connect(request)


@pytest.fixture(scope="module")
def table(lab):
    made = lab.create_table("shop.people", {"id": "int", "email": "string"})
    made.append([{"id": n, "email": f"secret-{n}@example.org"} for n in range(5)])
    return made


@pytest.fixture(scope="module")
def served(lab, table):
    made = Served(LoopbackHost(lab, "my lab", table=table.path, mask=["email"], read_only=True))
    yield made
    made.close()


async def end(channel):
    """Close a page's socket, and wait until the other side has."""
    is_open = channel.close_code is None
    channel.close()
    if is_open:
        while await asyncio.wait_for(channel.read_message(), 20) is not None:
            pass


def talk(served, *messages, answers=1):
    """Return what a page is sent: at first how it opens, then so many answers."""

    async def run():
        channel = await served.socket()
        found = [json.loads(await channel.read_message())]
        for message in messages:
            text = message if isinstance(message, str | bytes) else json.dumps(message)
            await channel.write_message(text, binary=isinstance(text, bytes))
        found += [await channel.read_message() for _ in range(answers if messages else 0)]
        await end(channel)
        return [found[0], *(None if each is None else json.loads(each) for each in found[1:])]

    return asyncio.run(run())


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_link_opens_the_explorer_once(lab):
    served = Served(LoopbackHost(lab, "my lab"))
    try:
        path = served.access.link.rpartition("/")[2]
        status, headers, text = served.ask(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
        assert status == 200
        assert headers["Set-Cookie"] == served.access.cookie
        assert headers["Refresh"] == "0; url=./"
        assert "token" not in text
        assert served.ask(path)[0] == 403
        status, headers, _ = served.ask(path, cookie=True)
        assert (status, headers["Set-Cookie"]) == (200, None)
    finally:
        served.close()


def test_the_page_is_its_files_and_nothing_inline(served):
    status, headers, text = served.ask(cookie=True)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "<script type" in text
    assert "style=" not in text
    assert served.ask("view.js", cookie=True)[1]["Content-Type"].startswith("text/javascript")
    assert "export default{render};" in served.ask("view.js", cookie=True)[2]
    assert ".fx{" in served.ask("style.css", cookie=True)[2]
    assert served.ask("favicon.ico", place="/")[0] == 204


def test_a_page_asks_and_is_answered(served, table):
    opening, answer = talk(served, {"kind": "head", "slot": "head", "seq": 7, "table": "shop.people"})
    assert opening == {"table": "shop.people", "read_only": True, "host": "command"}
    assert (answer["slot"], answer["seq"], answer["rows"]) == ("head", 7, "5")


def test_mask_and_read_only_hold_here_too(served):
    _, schema, page = talk(
        served, {"kind": "schema", "slot": "a", "seq": 1, "table": "shop.people"}, {"kind": "page", "slot": "b", "seq": 2, "table": "shop.people"}, answers=2
    )  # fmt: skip
    assert "email" not in json.dumps([schema, page])
    assert "secret-" not in json.dumps([schema, page])
    _, refused = talk(served, {"kind": "jobs", "slot": "c", "seq": 3, "op": "start", "name": "x"})
    assert "read-only" in refused["error"]["text"]


def test_pages_do_not_hear_each_other_and_a_closed_one_is_let_go(served):
    async def run():
        first, second = await served.socket(), await served.socket()
        for each in (first, second):
            await each.read_message()
        await first.write_message(json.dumps({"kind": "tree", "slot": "one", "seq": 1}))
        await second.write_message(json.dumps({"kind": "tree", "slot": "two", "seq": 1}))
        slots = [json.loads(await each.read_message())["slot"] for each in (first, second)]
        await end(first)
        await end(second)
        return slots

    assert asyncio.run(run()) == ["one", "two"]
    wait_until(lambda: not len(served.host._views))


# -- whoever else can reach it -----------------------------------------------------------------------------------------


def test_nothing_but_loopback_is_bound(served):
    port = int(served.access.host.rpartition(":")[2])
    bound = [each.laddr for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert [each.ip for each in bound if each.port == port] == ["127.0.0.1"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", [None, "fluss-lab-explorer=", "fluss-lab-explorer=guessed", "x" * 3_000])
def test_without_the_cookie_nothing_is_served(served, path, cookie):
    status, headers, text = served.ask(path, cookie=cookie)
    assert status == 403
    assert "link" in text
    assert headers["Set-Cookie"] is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"}, {"Host": "localhost:1"}, {"Host": None}, {"Origin": "http://evil.example"}, {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate"},
    ],
)  # fmt: skip
def test_other_names_and_pages_get_nothing_with_the_cookie_either(served, path, headers):
    status, _, text = served.ask(path, cookie=True, **headers)
    assert status in {400, 403}
    assert "explorer" not in text


@pytest.mark.parametrize("token", ["", "?token=", "?token=guessed", "?token=%ff", "?token=a&token=b", "?other=1"])
def test_a_wrong_token_gives_no_cookie(served, token):
    status, headers, _ = served.ask(f"open{token}")
    assert status in {400, 403}
    assert headers["Set-Cookie"] is None


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "./host.js/..", "host.js%00", "host_page.py", "view.js/", "VIEW.JS",
        "\\..\\..\\etc", "x" * 8_000,
    ],
)  # fmt: skip
def test_there_are_no_other_paths(served, path):
    status, _, text = served.ask(path, cookie=True)
    assert status == 404
    assert "root:" not in text


def test_without_its_place_nothing_is_there(served):
    for path in ("/", "/host.js", "/channel", "/x/"):
        assert served.ask(path, place="", cookie=True)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_there_are_no_other_methods(served, method):
    assert served.ask(method=method, cookie=True)[0] in {403, 405}


@pytest.mark.parametrize("path", ["", "nothing", "open?token=x", "channel"])
def test_every_answer_has_the_headers_that_keep_others_out(served, path):
    for cookie in (None, True):
        _, headers, _ = served.ask(path, cookie=cookie)
        assert all(headers[name] for name in HEADERS), path
        assert headers["Content-Security-Policy"] == served.access.policy
        assert headers["Server"] is None
        assert not [name for name in headers if name.lower().startswith("access-control")]


def said_to(served, request):
    """Return the beginning of what is answered to raw bytes; nothing where the connection is closed."""
    with socket.create_connection(("127.0.0.1", int(served.access.host.rpartition(":")[2])), 20) as raw:
        try:
            raw.sendall(request)
            return raw.recv(1_000)
        except ConnectionError:
            return b""


def test_large_headers_and_bodies_are_refused(served):
    begin = f"GET {served.access.place} HTTP/1.1\r\nHost: {served.access.host}\r\nCookie: {served.cookie}\r\n".encode()
    assert b"200 OK" in said_to(served, begin + b"\r\n")
    assert b"200 OK" not in said_to(served, begin + b"X: " + b"x" * 100_000 + b"\r\n\r\n")
    assert b"200 OK" not in said_to(served, begin + b"Content-Length: 1000000000\r\n\r\n")
    assert served.ask(cookie=True)[0] == 200


@pytest.mark.parametrize(
    "headers", [{"cookie": None}, {"Origin": None}, {"Origin": "http://evil.example"}, {"Host": "evil.example"}]
)
def test_a_socket_is_opened_by_the_page_alone(served, headers):
    asked = {
        "cookie": True, "Origin": served.access.origin, "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec_WebSocket_Version": "13",
    }  # fmt: skip
    assert served.ask("channel", **asked | headers)[0] == 403


@pytest.mark.parametrize(
    "message",
    ["", "x", "[]", "null", "1", '{"kind": "evil", "slot": "a", "seq": 1}', b"\xff\x00", "[" * 50_000, '{"kind": "tree", "slot": 3}', '{"seq": NaN}'],
)  # fmt: skip
def test_what_is_no_request_is_answered_with_the_error(served, message):
    _, answer = talk(served, message)
    assert answer["error"]["class"] == "InvalidRequestError"


def test_a_message_that_is_too_large_ends_its_socket_only(served):
    assert talk(served, "x" * (REQUEST_BYTES_MAX + 1))[1] is None
    assert served.ask(cookie=True)[0] == 200


def test_answers_that_a_page_has_not_taken_are_bounded(served, monkeypatch):
    monkeypatch.setattr(page_handlers, "UNSENT_BYTES_MAX", 200)
    _, answer = talk(served, {"kind": "head", "slot": "head", "seq": 1, "table": "shop.people"})
    assert answer is None
    wait_until(lambda: not len(served.host._views))


def test_a_page_too_many_is_refused_and_said_so(served):
    wait_until(lambda: not len(served.host._views))

    async def run():
        kept = [await served.socket() for _ in range(VIEWS_MAX)]
        for each in kept:
            await each.read_message()
        late = await served.socket()
        assert await late.read_message() is None
        for each in (*kept, late):
            await end(each)
        return late.close_code, late.close_reason

    code, reason = asyncio.run(run())
    assert code == CLOSE_REFUSED
    assert "close one" in reason


def test_no_secret_is_written_to_a_log(lab, caplog):
    with caplog.at_level(logging.DEBUG):
        served = Served(LoopbackHost(lab, "my lab"))
        path = served.access.link.rpartition("/")[2]
        for each in (path, path, f"{path}x", "channel"):
            served.ask(each)
        served.close()
    assert served.access._token not in caplog.text
    assert served.access._session not in caplog.text


# -- how it begins and ends --------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_to_be(lab, served):
    port = int(served.access.host.rpartition(":")[2])
    with pytest.raises(InvalidRequestError, match=f"port {port} of 127.0.0.1 is not free"):
        LoopbackHost(lab, "my lab", port=port)
    with pytest.raises(InvalidRequestError, match="mask"):
        LoopbackHost(lab, "my lab", mask="email")


def test_when_it_ends_nothing_of_it_is_left(lab, table):
    served = Served(LoopbackHost(lab, "my lab", table=table.path))

    async def run():
        channel = await served.socket()
        await channel.read_message()
        await channel.write_message(
            json.dumps({"kind": "tail", "slot": "t", "seq": 1, "table": "shop.people", "op": "start"})
        )
        await channel.read_message()
        await asyncio.to_thread(served.close)
        while await channel.read_message() is not None:
            pass
        await end(channel)
        assert channel.close_code == CLOSE_ENDED

    asyncio.run(run())
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "fluss-explorer-tail"])
    with pytest.raises(ConnectionRefusedError):
        served.ask()
