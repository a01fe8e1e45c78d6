"""JSON objects that carry a checksum of all else in them: for files of which a changed digit would be another truth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import google_crc32c

_CRC: Final = "crc"


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum; equal ones get equal checksums."""
    return {**value, _CRC: _crc(value)}


def check_checksum(what: object, value: Mapping[str, Any]) -> None:
    """Check that an object is as it was written. Releases before checksums wrote none.

    Args:
        what: Names it in the error.
        value: As it was read.

    Raises:
        ValueError: It was changed since.
    """
    rest = {key: each for key, each in value.items() if key != _CRC}
    if _CRC in value and value[_CRC] != (expected := _crc(rest)):
        raise ValueError(
            f"{what}: expected checksum {expected}, found {value[_CRC]!r}: it was changed since it was written"
        )


def _crc(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"
