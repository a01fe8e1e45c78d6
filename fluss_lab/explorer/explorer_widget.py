"""The widget of the explorer: messages of a notebook's front end brought to the model, and its answers back."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets

from fluss_lab.errors import FlussError
from fluss_lab.explorer.explored_lab import ExploredLab
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import parse_request
from fluss_lab.explorer.request_queue import RequestQueue, refusal
from fluss_lab.explorer.view_script import view_script, view_style
from fluss_lab.model import TablePath


class ExplorerWidget(anywidget.AnyWidget):  # type: ignore[misc]  # it has no types
    """The explorer of a lab, as a cell shows it.

    A cell that runs does not keep it from answering: a front end such as JupyterLab sends what its widgets say to a sub-shell
    of the kernel, a thread of its own. ipykernel sends it on to the shell that last spoke through the widget, which is
    the one that runs cells; here it goes where the front end wants it.

    Args:
        lab: Whose tables are shown.
        name: What the lab is called.
        table: The table that is shown first; None: the first.
        mask: Columns that are hidden.
        read_only: Whether nothing can be changed from here.
    """

    _esm = view_script()
    _css = view_style()
    #: What is shown, as JSON: kept in the notebook by the front end, for when it is opened without a kernel.
    saved = traitlets.Unicode("{}").tag(sync=True)

    def __init__(
        self, lab: ExploredLab, name: str, *, table: TablePath | None, mask: Iterable[str], read_only: bool
    ) -> None:
        self._model = ExplorerModel(lab, name, mask, read_only=read_only)
        self._title = f"{name}, opened on {table}" if table is not None else name
        widget = weakref.ref(self)
        self._queue = RequestQueue(self._model.steps, lambda answer: _send(widget(), answer))
        opening = {"table": None if table is None else str(table), "read_only": read_only}
        super().__init__(saved=json.dumps(opening))
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = lambda _data, wanted: wanted
        self.on_msg(self._take)

    def __repr__(self) -> str:
        """Return what a front end without widgets shows."""
        return f"<Explorer of {self._title}>"

    def _take(self, _widget: object, content: Any, _buffers: object) -> None:
        try:
            self._queue.submit(parse_request(content))
        except FlussError as error:
            asked = content if isinstance(content, dict) else {}
            where = {name: asked.get(name) for name in ("slot", "seq", "view")}
            self.send({**where, **refusal(error)})

    def close(self) -> None:
        """Stop answering, and take the view away."""
        self._queue.close()
        self._model.close()
        super().close()


def _send(widget: ExplorerWidget | None, answer: dict[str, Any]) -> None:
    if widget is not None and widget.comm is not None:
        widget.send(answer)
