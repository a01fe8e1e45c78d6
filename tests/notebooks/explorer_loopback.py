"""The explorer's view served to a browser without a notebook: its own script, model and queue of requests over HTTP on loopback.

For tests of one screen, which need no JupyterLab: a page opens in a second, and a test can let requests fail.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from fluss_lab.errors import ServerUnavailableError
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import parse_request
from fluss_lab.explorer.request_queue import RequestQueue, refusal
from fluss_lab.explorer.view_script import view_script, view_style

PAGE: Final = """<!doctype html><meta charset="utf-8"><title>explorer</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css"><body style="margin:8px"><div id="place"></div><script type="module" src="page.js"></script>"""
#: What a notebook's front end does for a view; with ``?dead`` there is no kernel, as in a notebook that is only opened.
SCRIPT: Final = """
import view from "./view.js";
const asked = new URLSearchParams(location.search), listeners = new Set();
let sent = Promise.resolve(), saved = await (await fetch("saved" + location.search)).text();
const model = window.model = {
  get: () => saved,
  set: (_, text) => { saved = text; },
  send: (message) => { if (!asked.has("dead")) sent = sent.then(() => fetch("send", { method: "POST", body: JSON.stringify(message) })); },
  on: (name, listener) => name === "msg:custom" && listeners.add(listener), off: (_, listener) => listeners.delete(listener), save_changes: () => {},
};
if (!asked.has("dead")) {
  const events = new EventSource("events");
  events.onmessage = (event) => { const message = JSON.parse(event.data); for (const listener of listeners) listener(message); };
  await new Promise((done) => { events.onopen = done; });
}
window.render = () => view.render({ model, el: document.getElementById("place") });
window.render();
"""
TYPES: Final = {"page.js": "text/javascript", "view.js": "text/javascript", "style.css": "text/css"}


class Loopback:
    """What is served: a model for each page that is opened.

    Args:
        make_model: Returns the model of a new page.
        acts: What a page can have happen, by name.
    """

    def __init__(self, make_model: Callable[[], ExplorerModel], acts: Mapping[str, Callable[[], object]]) -> None:
        self._make_model = make_model
        self.acts = acts
        self.saved = "{}"
        #: Kinds of requests that are answered as if no server was there.
        self.failing: frozenset[str] = frozenset()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._queue: RequestQueue | None = None

    def open(self) -> Iterator[dict[str, Any]]:
        """Return the answers to a page, from a model of its own; what the page asks from now on is answered."""
        self.close()
        answers = self._answers = queue.Queue()
        self._queue = RequestQueue(self._make_model().steps, answers.put)
        return iter(answers.get, None)

    def take(self, content: Any) -> None:
        """Have a request answered."""
        envelope = {name: content[name] for name in ("slot", "seq", "view", "kind")}
        if content["kind"] in self.failing:
            self._answers.put({**envelope, **refusal(ServerUnavailableError("no server answered in 10 s"))})
            return
        try:
            request = parse_request(content)
        except Exception as error:
            self._answers.put({**envelope, **refusal(error)})
            return
        assert self._queue is not None
        self._queue.submit(request)

    def close(self) -> None:
        """End the page's queue."""
        if self._queue is not None:
            self._queue.close()
        self._answers.put(None)


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            name, asked = place.path.lstrip("/"), parse_qs(place.query, keep_blank_values=True)
            if name == "events":
                self._events()
            elif name == "saved":
                self._give(
                    "text/plain",
                    loopback.saved
                    if "dead" in asked
                    else json.dumps({"table": asked["table"][0], "tab": asked.get("tab", ["data"])[0]}),
                )
            else:
                texts = {"": PAGE, "page.js": SCRIPT, "view.js": view_script(), "style.css": view_style()}
                self._give(TYPES.get(name, "text/html"), texts[name])

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/send":
                loopback.take(content)
            elif self.path == "/keep":
                loopback.saved = content
            elif self.path == "/fail":
                loopback.failing = frozenset(content)
            elif self.path == "/act":
                loopback.acts[content]()
            self._give("text/plain", "")

        def _give(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _events(self) -> None:
            answers = loopback.open()  # before the page hears that it may ask: what it asks earlier is lost
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                for answer in answers:
                    self.wfile.write(f"data: {json.dumps(answer)}\n\n".encode())
                    self.wfile.flush()
            except OSError:
                pass  # the page is gone

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def loopback(
    make_model: Callable[[], ExplorerModel], acts: Mapping[str, Callable[[], object]] | None = None
) -> Iterator[str]:
    """Yield the address at which a view is served: ``?table=shop.flights`` opens on a table's rows, ``&tab=changelog`` elsewhere, ``?dead`` what was kept."""
    served = Loopback(make_model, acts or {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        served.close()
        server.server_close()
        thread.join()
