"""The whole numbers that people type: with or without separators between groups of three digits."""

from __future__ import annotations

import re
from typing import Final, overload

from fluss_lab.errors import InvalidRequestError

_NUMBER: Final = re.compile(r"[0-9]+|[0-9]{1,3}(?:([,_. '\u00a0\u2009\u202f\u2019])[0-9]{3})(?:\1[0-9]{3})*")
_DIGITS_MAX: Final = 19


@overload
def typed_number(text: str) -> int | None: ...


@overload
def typed_number(text: str, what: str) -> int: ...


def typed_number(text: str, what: str | None = None) -> int | None:
    """Return a whole number as it was typed: ``"1234"``, ``"1,234"``, ``"1 234"``; None for anything else.

    Args:
        text: As typed; spaces around it do not matter.
        what: Who asks, for the error; None: no number is no error.

    Raises:
        InvalidRequestError: It is none, with `what`.
    """
    found = text.strip()
    digits = "".join(each for each in found if each.isdecimal())
    if _NUMBER.fullmatch(found) and len(digits) <= _DIGITS_MAX:
        return int(digits)
    if what is None:
        return None
    raise InvalidRequestError(f"{what}: expected an offset such as 1,234, a whole number from 0 on, found {text!r}")
