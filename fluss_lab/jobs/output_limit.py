"""The outputs that an executed notebook keeps of its cells: bounded, and what came in several messages in one piece."""

from __future__ import annotations

from typing import Any, Final

from fluss_lab.jobs.run_record import SUMMARY_MIME
from fluss_lab.model.times import format_size

#: Of all cells together: one that prints for ever fills no disk, and no editor opens what is larger.
OUTPUT_BYTES_MAX: Final = 64 << 20
#: Of each part of an error (its message, a piece of its trace), which is kept always; and how many pieces, from the end.
ERROR_PART_LENGTH_MAX: Final = 64 << 10
ERROR_PARTS_MAX: Final = 64
#: Messages of a kernel that add an output. One that updates an output takes its place.
_ADDING: Final = ("stream", "display_data", "execute_result")


class OutputLimit:
    """Counts the outputs that a notebook keeps, and says where some are left out.

    Args:
        bytes_max: Most bytes of all of them.
    """

    def __init__(self, bytes_max: int = OUTPUT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._earlier_bytes = 0
        self._cell_bytes = 0
        self._is_said = False

    def next_cell(self) -> None:
        """Begin with another cell."""
        self._earlier_bytes += self._cell_bytes
        self._cell_bytes = 0
        self._is_said = False

    def admit(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return a kernel's message that is kept; None: it is left out, and a message before it says so.

        The first of a cell that is left out is replaced by that. The summary of a run is kept always, and its error, cut.
        """
        content = message["content"]
        if message["msg_type"] == "error":
            cut = {**content, **_cut_error(content)}
            return message if cut == content else {**message, "content": cut}
        if message["msg_type"] == "clear_output":
            self._cell_bytes = 0
            self._is_said = False
        if message["msg_type"] not in _ADDING or SUMMARY_MIME in content.get("data", ()):
            return message
        size = _size_bytes(content)
        if self._earlier_bytes + self._cell_bytes + size <= self._bytes_max:
            self._cell_bytes += size
            return message
        if self._is_said:
            return None
        self._is_said = True
        text = f"... left out from here: a notebook keeps {format_size(self._bytes_max)} of outputs\n"
        return {
            **message, "msg_type": "stream", "header": {**message["header"], "msg_type": "stream"},
            "content": {"name": "stderr", "text": text},
        }  # fmt: skip


def join_streams(outputs: list[Any]) -> None:
    """Join what a cell printed to each stream in the first output of the stream, in place.

    The others become empty and keep their places, by which displays are found that another cell changes; see `without_emptied`.
    Of lines that a carriage return begins anew the last state is kept, as nbclient does; that takes hours for a line of some megabytes.
    """
    first: dict[str, Any] = {}
    parts: dict[str, list[str]] = {}
    for output in outputs:
        if output["output_type"] != "stream":
            continue
        name = output["name"]
        parts.setdefault(name, []).append(output["text"])
        if first.setdefault(name, output) is not output:
            output["text"] = ""
    for name, output in first.items():
        text = "".join(parts[name])
        output["text"] = "\n".join(map(_last_state, text.split("\n"))) if "\r" in text else text


def without_emptied(outputs: list[Any]) -> list[Any]:
    """Return a cell's outputs without those whose text was joined to another one."""
    return [output for output in outputs if output["output_type"] != "stream" or output["text"]]


def _last_state(line: str) -> str:
    return line[line.rfind("\r", 0, max(0, len(line) - 1)) + 1 :]


def _cut_error(content: dict[str, Any]) -> dict[str, Any]:
    pieces = content.get("traceback", ())[-ERROR_PARTS_MAX:]
    return {"evalue": _cut(content.get("evalue", "")), "traceback": list(map(_cut, pieces))}


def _cut(text: str) -> str:
    left_out = len(text) - ERROR_PART_LENGTH_MAX
    return text if left_out <= 0 else f"{text[:ERROR_PART_LENGTH_MAX]}... {left_out:,} characters are left out"


def _size_bytes(value: Any) -> int:
    """Return about what a value takes as JSON."""
    if isinstance(value, dict):
        return sum(len(name) + _size_bytes(each) for name, each in value.items())
    if isinstance(value, list):
        return sum(map(_size_bytes, value))
    return len(value) if isinstance(value, str) else 8
