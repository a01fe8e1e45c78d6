"""Who may see an explorer's pages: one browser, by a cookie that a link gives once."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Sequence
from typing import Final

#: The only address; nothing else is bound.
ADDRESS: Final = "127.0.0.1"
_COOKIE: Final = "fluss-lab-explorer"


class PageAccess:
    """The secrets of one run of the command. Safe in any thread.

    Cookies are shared by all ports of an address: a page that another user serves on this machine would be sent it. So the
    cookie is for a path that nobody knows who has not seen the link.

    Args:
        port: Where the pages are served.
    """

    def __init__(self, port: int) -> None:
        self.host = f"{ADDRESS}:{port}"
        self.origin = f"http://{self.host}"
        #: The path of all pages.
        self.place = f"/{secrets.token_urlsafe(24)}/"
        self._token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._used = False

    @property
    def link(self) -> str:
        """The link that opens the explorer, once."""
        return f"{self.origin}{self.place}open?token={self._token}"

    @property
    def cookie(self) -> str:
        """The header that gives a browser access. It ends with the browser's session."""
        return f"{_COOKIE}={self._session}; Path={self.place}; HttpOnly; SameSite=Strict"

    @property
    def policy(self) -> str:
        """The content security policy of every page: the page's own files, its own socket, nothing inline."""
        return (
            f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' ws://{self.host}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    def take(self, tokens: Sequence[str]) -> bool:
        """Return whether a link's token gives access; it does so once."""
        given = tokens[0] if len(tokens) == 1 else ""
        with self._lock:
            is_right = _equal(given, self._token) and not self._used
            self._used = self._used or is_right
            return is_right

    def knows(self, cookies: str) -> bool:
        """Return whether a request's cookies have the one that the link gave."""
        given = (each.strip().partition("=") for each in cookies.split(";"))
        # Another port of the address may have set one of the same name.
        return any(_equal(value, self._session) for name, _, value in given if name == _COOKIE)

    def refusal(self, host: str | None, origin: str | None, fetch_site: str | None) -> str | None:
        """Return why a request is refused whatever it brings, None when it is not.

        Args:
            host: Its ``Host``: another name that leads here was made to (DNS rebinding).
            origin: Its ``Origin``, if any: the page that sent it.
            fetch_site: Its ``Sec-Fetch-Site``, if any, of a request that no person's click or typing made.
        """
        if host != self.host:
            return f"expected the address {self.host}"
        if origin is not None and origin != self.origin:
            return "asked by another page"
        return "asked by another page" if fetch_site in {"cross-site", "same-site"} else None


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
