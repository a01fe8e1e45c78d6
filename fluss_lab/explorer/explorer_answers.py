"""The answers to a view: their shape, and the bounds of their size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from fluss_lab.errors import FlussError, InvalidRequestError, OffsetOutOfRangeError
from fluss_lab.model.times import format_moment

#: What a view is sent: JSON, every value of a table as text.
Answer = dict[str, Any]
#: What it takes to answer: None between two steps of it, and each answer when it is there.
Steps = Iterator[Answer | None]

#: Bytes of an answer as JSON.
ANSWER_BYTES_MAX: Final = 512_000
#: Characters of an error that are shown.
ERROR_LENGTH_MAX: Final = 4_000
#: Bytes that stay free for the slot, the number and the kind of an answer.
_ENVELOPE_BYTES: Final = 2_000


def error_answer(error: BaseException) -> Answer:
    """Return an error as a view shows it."""
    text = str(error) or type(error).__name__
    earliest_ms = error.earliest_ms if isinstance(error, OffsetOutOfRangeError) else None
    return {
        "class": type(error).__name__,
        "text": text if len(text) <= ERROR_LENGTH_MAX else text[:ERROR_LENGTH_MAX] + " …",
        "retriable": isinstance(error, FlussError) and error.retriable,
        # As it is typed.
        **({} if earliest_ms is None else {"earliest": format_moment(earliest_ms)}),
    }


def now_ms() -> int:
    """Return the time here, epoch milliseconds: ages are shown from it, whatever the browser's clock says."""
    return time.time_ns() // 1_000_000


def size_bytes(answer: Answer) -> int:
    """Return how large an answer is on its way: in JSON, UTF-8."""
    return len(json.dumps(answer, ensure_ascii=False).encode())


def fits(answer: Answer) -> bool:
    """Return whether an answer is no larger than a message may be."""
    return size_bytes(answer) <= ANSWER_BYTES_MAX - _ENVELOPE_BYTES


def cut_text(value: Any, length: int) -> Any:
    """Return a text with at most so many characters, marked where it was cut; any other value as it is."""
    return value[: length - 1] + "…" if isinstance(value, str) and len(value) > length else value


def cut_to_size(made: Callable[[int], Answer], length: int) -> Answer:
    """Return an answer whose cells are cut as short as it takes to keep it bounded.

    Args:
        made: Returns the answer with cells of at most so many characters.
        length: How many are wanted.
    """
    while size_bytes(answer := made(length)) > ANSWER_BYTES_MAX - _ENVELOPE_BYTES and length > 1:
        length //= 2
    return answer


def as_given(answer: Answer) -> Answer:
    """Return an answer as it is.

    Raises:
        InvalidRequestError: It is larger than a message may be: what is shown is never a part.
    """
    if size_bytes(answer) <= ANSWER_BYTES_MAX:
        return answer
    raise InvalidRequestError(f"explorer: the answer to {answer['kind']!r} is larger than {ANSWER_BYTES_MAX:,} bytes")
