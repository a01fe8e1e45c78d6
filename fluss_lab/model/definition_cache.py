"""Definitions of tables by their JSON text. A table's is asked for with every call, and changes almost never."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Final

from fluss_lab.model.descriptor import TableDescriptor

#: How many are kept, and how long the text of one may be: at most 64 MiB of text.
_KEPT: Final = 1024
_TEXT_LENGTH_MAX: Final = 64 << 10


class DefinitionCache:
    """What texts say, parsed once. It forgets the ones that were not asked for longest. Safe for threads."""

    def __init__(self) -> None:
        self._known = lru_cache(_KEPT)(_parsed)

    def parsed(self, text: str | bytes) -> TableDescriptor:
        """Return the definition that a text says; its properties are the caller's own.

        Raises:
            InvalidSchemaError: The form is not that of a table definition.
            UnsupportedError: A newer version wrote it.
            ValueError: The text is not JSON.
        """
        if len(text) > _TEXT_LENGTH_MAX:
            return _parsed(text)
        found = self._known(text)
        # Whoever is given it may change it: it is a dict.
        return replace(found, properties=dict(found.properties))


def _parsed(text: str | bytes) -> TableDescriptor:
    return TableDescriptor.from_json(json.loads(text))
