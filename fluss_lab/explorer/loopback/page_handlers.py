"""The handlers of a page's requests: its files, its socket, and a refusal for everything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from tornado.log import app_log
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.explorer.explorer_requests import parse_request
from fluss_lab.explorer.loopback.page_access import PageAccess
from fluss_lab.explorer.loopback.page_views import PageView, PageViews
from fluss_lab.explorer.request_queue import refusal
from fluss_lab.explorer.view_script import view_script, view_style

#: Bytes of one message of a page: a record that is typed in a form.
REQUEST_BYTES_MAX: Final = 1_000_000
#: Bytes of answers that a page has not taken: some twenty of the largest; one that takes none is let go.
UNSENT_BYTES_MAX: Final = 10_000_000
#: Of a socket that is refused for good: the page shows the reason, and does not try again.
CLOSE_REFUSED: Final = 4003
#: The protocol's own codes, of a server that goes away, and of one that is asked again later.
CLOSE_ENDED: Final = 1001
CLOSE_BEHIND: Final = 1013
#: What of a request its answer has, by which the page knows whose it is.
_ECHOED: Final = ("slot", "seq", "view")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_REFUSED: Final = "Open the link that `fluss-lab explore` printed; it opens the explorer once. To open it elsewhere, start the command again."


def page_files() -> Mapping[str, tuple[str, bytes]]:
    """Return the files of the page by name: type and content."""

    def read(name: str) -> str:
        return files("fluss_lab.explorer.loopback").joinpath(name).read_text(encoding="utf-8")

    script, style, page = "text/javascript", "text/css", "text/html"
    made = {
        "": (page, read("host_page.html")),
        "host.js": (script, read("host_page.js")),
        "view.js": (script, view_script()),
        "style.css": (style, view_style() + read("host_page.css")),
    }
    return {name: (f"{kind}; charset=utf-8", text.encode()) for name, (kind, text) in made.items()}


class PageRequest(RequestHandler):
    """A request: refused unless it comes from the explorer's own page, in the browser that opened the link."""

    #: Whether a request is served that brings no cookie yet.
    needs_cookie = True
    #: Whether whoever follows a link from elsewhere is served.
    takes_links = False

    def initialize(self, access: PageAccess) -> None:
        """Take what every request needs."""
        self.access = access

    def set_default_headers(self) -> None:
        """Say nothing of the server; tornado calls it before `initialize` as well as for errors."""
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refuse what has no right to be here.

        Raises:
            HTTPError: It has not.
        """
        self.set_header("Content-Security-Policy", self.access.policy)
        headers = self.request.headers
        site = (
            None if self.takes_links and headers.get("Sec-Fetch-Mode") == "navigate" else headers.get("Sec-Fetch-Site")
        )
        refusal = self.access.refusal(headers.get("Host"), headers.get("Origin"), site)
        if refusal is not None:
            raise HTTPError(403, refusal)
        if self.needs_cookie and not self.access.knows(headers.get("Cookie", "")):
            raise HTTPError(403, _REFUSED)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Write no address to the log: the link's has its token."""
        if not isinstance(value, HTTPError):
            app_log.error("explorer: a request failed", exc_info=(typ, value, tb))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error with a line of text."""
        error = kwargs.get("exc_info", (None, None))[1]
        text = error.log_message if isinstance(error, HTTPError) and error.log_message else ""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Security-Policy", self.access.policy)
        self.finish(f"{status_code} {self._reason}{': ' if text else ''}{text}\n")


class OpeningRequest(PageRequest):
    """The link: gives the cookie for its token, once."""

    needs_cookie = False
    takes_links = True

    def get(self) -> None:
        """Give the cookie, and lead on to the page.

        Raises:
            HTTPError: The token is wrong, or was used before in another browser.
        """
        has_cookie = self.access.knows(self.request.headers.get("Cookie", ""))
        if not has_cookie and not self.access.take(self.get_query_arguments("token", strip=False)):
            raise HTTPError(403, f"this link was used already, or is not whole. {_REFUSED}")
        if not has_cookie:
            self.set_header("Set-Cookie", self.access.cookie)
        # No redirect: one that began at another site would not bring the cookie along.
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Refresh", "0; url=./")
        self.finish('<!doctype html><title>fluss-lab explore</title><a href="./">Open the explorer</a>')


class FileRequest(PageRequest):
    """A file of the page."""

    def initialize(self, access: PageAccess, kind: str = "", content: bytes = b"") -> None:
        """Take the file."""
        super().initialize(access)
        self._kind, self._content = kind, content

    def get(self) -> None:
        """Send it."""
        self.set_header("Content-Type", self._kind)
        self.finish(self._content)


class IconRequest(PageRequest):
    """What browsers ask for beside every page."""

    needs_cookie = False

    def get(self) -> None:
        """There is none."""
        self.set_status(204)


class UnknownRequest(PageRequest):
    """Everything else."""

    needs_cookie = False

    def prepare(self) -> None:
        """Refuse it.

        Raises:
            HTTPError: Always.
        """
        super().prepare()
        raise HTTPError(404)


class PageSocket(WebSocketHandler, PageRequest):
    """The socket of one page: requests of its view in, answers out."""

    def initialize(self, access: PageAccess, views: PageViews | None = None) -> None:
        """Take who makes the view's model."""
        super().initialize(access)
        assert views is not None
        self._views = views
        self._view: PageView | None = None
        self._unsent_bytes = 0

    def prepare(self) -> None:
        """Refuse a socket that no page of ours opened.

        Raises:
            HTTPError: It has not the page's origin.
        """
        super().prepare()
        if self.request.headers.get("Origin") != self.access.origin:
            raise HTTPError(403, "asked by no page")

    def check_origin(self, origin: str) -> bool:
        """Return whether a page is ours; `prepare` has looked already."""
        return origin == self.access.origin

    def open(self, *_args: str, **_kwargs: str) -> None:
        """Begin to answer."""
        self._view = self._views.open(self._send, lambda: self.close(CLOSE_ENDED, "the command has ended"))
        if self._view is None:
            self.close(CLOSE_REFUSED, "As many pages as one command serves are open already: close one.")
            return
        self._send(self._views.opening)

    def on_message(self, message: str | bytes) -> None:
        """Have a request answered; what is none is answered with the error."""
        if self._view is None:
            return
        content: Any = None
        try:
            content = _parse(message)
            self._view.queue.submit(parse_request(content))
        except FlussError as error:
            asked = content if isinstance(content, dict) else {}
            where = {name: asked.get(name) for name in _ECHOED if isinstance(asked.get(name), str | int)}
            self._send(json.dumps({**where, **refusal(error)}))

    def on_close(self) -> None:
        """End what the page had asked for."""
        if self._view is not None:
            self._views.close(self._view)

    def _send(self, text: str) -> None:
        size_bytes = len(text.encode())
        if self._unsent_bytes + size_bytes > UNSENT_BYTES_MAX:
            self.close(CLOSE_BEHIND, "answers are not taken")
            return
        self._unsent_bytes += size_bytes
        try:
            sent = self.write_message(text)
        except WebSocketClosedError:
            return

        def count(done: Any) -> None:
            self._unsent_bytes -= size_bytes
            done.exception()  # the page is gone: its socket's end says so

        sent.add_done_callback(count)


def _parse(message: str | bytes) -> Any:
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        raise InvalidRequestError("explorer: expected a request of its page, found no JSON") from None
