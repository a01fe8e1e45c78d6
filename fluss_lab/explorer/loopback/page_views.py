"""The views of the pages that are open: each with a model and a queue of requests of its own, as a widget has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fluss_lab.explorer.explorer_answers import Answer
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.request_queue import RequestQueue

#: Pages of one command: tabs of one person's browser.
VIEWS_MAX: Final = 8
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class PageView:
    """What answers one page."""

    model: ExplorerModel
    queue: RequestQueue

    def close(self) -> None:
        """End what the page had asked for. May wait for a read under way."""
        self.queue.close()
        self.model.close()


class PageViews:
    """The views that are open. For the loop's thread.

    Args:
        make_model: Makes the model of a page.
        opening: What a page shows first, as JSON.
    """

    def __init__(self, make_model: Callable[[], ExplorerModel], opening: str) -> None:
        self.opening = opening
        self._make_model = make_model
        #: What ends the socket of each.
        self._open: dict[PageView, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, send: Callable[[str], None], end: Callable[[], object]) -> PageView | None:
        """Return a view for a page; None: there are as many as may be.

        Args:
            send: Sends an answer to the page; called by the loop's thread.
            end: Ends the page's socket.
        """
        if len(self._open) >= VIEWS_MAX:
            return None
        loop, model = asyncio.get_running_loop(), self._make_model()

        def take(answer: Answer) -> None:
            loop.call_soon_threadsafe(send, json.dumps(answer, ensure_ascii=False))

        view = PageView(model, RequestQueue(model.steps, take))
        self._open[view] = end
        return view

    def close(self, view: PageView) -> None:
        """End a view, in another thread: a read under way is not waited for here. Twice is fine."""
        if self._open.pop(view, None) is not None:
            asyncio.get_running_loop().run_in_executor(None, view.close)

    async def close_all(self, timeout_s: float) -> None:
        """End every page's socket, and wait so long until its page has taken note."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        for end in list(self._open.values()):
            end()
        while self._open and loop.time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
        for view in list(self._open):
            self.close(view)
