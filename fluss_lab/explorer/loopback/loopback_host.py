"""The server of an explorer's pages: on loopback only, until it is stopped."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.web import Application

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explored_lab import ExploredLab
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.loopback.page_access import ADDRESS, PageAccess
from fluss_lab.explorer.loopback.page_handlers import (
    REQUEST_BYTES_MAX,
    FileRequest,
    IconRequest,
    OpeningRequest,
    PageSocket,
    UnknownRequest,
    page_files,
)
from fluss_lab.explorer.loopback.page_views import PageViews
from fluss_lab.model import TablePath

#: A browser's headers; requests have no body.
_HEADER_BYTES_MAX: Final = 16_384
_BODY_BYTES_MAX: Final = 1_024
#: A connection that says nothing, and a page that answers no ping.
_IDLE_S: Final = 60.0
_PING_S: Final = 20.0
#: For pages to take note that the command ends.
_END_S: Final = 1.0


class LoopbackHost:
    """Serves the explorer of a lab to whoever opens its link first.

    Args:
        lab: Whose tables are shown.
        name: What the lab is called.
        table: The table that is shown first; None: the first.
        mask: Columns that are hidden.
        read_only: Whether nothing can be changed from the pages.
        port: Of 127.0.0.1; 0: any that is free.

    Raises:
        InvalidRequestError: A mask that is no list of names; a port that is not free.
    """

    def __init__(
        self,
        lab: ExploredLab,
        name: str,
        *,
        table: TablePath | None = None,
        mask: Iterable[str] = (),
        read_only: bool = False,
        port: int = 0,
    ) -> None:
        hidden = mask if isinstance(mask, str) else list(mask)
        ExplorerModel(lab, name, hidden).close()  # what is no mask is refused now
        self._socket = _bind(port)
        self.access = PageAccess(self._socket.getsockname()[1])
        opening = {"table": None if table is None else str(table), "read_only": read_only, "host": "command"}
        self._views = PageViews(lambda: ExplorerModel(lab, name, hidden, read_only=read_only), json.dumps(opening))
        self._server = HTTPServer(
            self._pages(), max_header_size=_HEADER_BYTES_MAX, max_body_size=_BODY_BYTES_MAX, max_buffer_size=4 * REQUEST_BYTES_MAX,
            idle_connection_timeout=_IDLE_S, body_timeout=_IDLE_S,
        )  # fmt: skip

    def _pages(self) -> Application:
        access, place = self.access, self.access.place
        known: dict[str, Any] = {"access": access}
        return Application(
            [
                *((re.escape(place + name), FileRequest, known | {"kind": kind, "content": content}) for name, (kind, content) in page_files().items()),
                (re.escape(f"{place}open"), OpeningRequest, known),
                (re.escape(f"{place}channel"), PageSocket, known | {"views": self._views}),
                (r"/favicon\.ico", IconRequest, known),
            ],
            default_handler_class=UnknownRequest, default_handler_args=known, log_function=lambda _handler: None,
            websocket_max_message_size=REQUEST_BYTES_MAX, websocket_ping_interval=_PING_S, websocket_ping_timeout=_PING_S,
        )  # fmt: skip

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until the event is set; then every page is let go."""
        self._server.add_socket(self._socket)
        try:
            await stop.wait()
        finally:
            self._server.stop()
            await self._views.close_all(_END_S)
            await self._server.close_all_connections()

    def run(self, on_link: Callable[[str], object]) -> None:
        """Serve until Ctrl-C or SIGTERM. For the main thread.

        Args:
            on_link: Called with the link once it can be opened.
        """

        async def serve() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            loop.call_soon(on_link, self.access.link)
            await self.serve(stop)

        asyncio.run(serve())


def _bind(port: int) -> socket.socket:
    try:
        made = socket.create_server((ADDRESS, port), family=socket.AF_INET)
    except OSError as error:
        raise InvalidRequestError(
            f"port {port} of {ADDRESS} is not free ({error.strerror or error}): choose another, or none for any that is free"
        ) from error
    made.setblocking(False)
    return made
