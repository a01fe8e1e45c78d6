"""NaN and the infinities in JSON, which has no numbers for them: the texts that an export writes, made what Arrow reads as floats."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

#: As exports write them; without their quotes Arrow and Python read them as numbers.
_TEXTS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
#: What one of the texts ends with in a file.
_ENDS: Final = (b'NaN"', b'Infinity"')
#: In a path, between a list and its elements.
ELEMENT: Final = "element"

Path = tuple[str, ...]


def has_float_texts(data: bytes) -> bool:
    """Return whether there may be such texts in some lines."""
    return any(end in data for end in _ENDS)


def are_float_texts(values: pa.ChunkedArray) -> bool:
    """Return whether all texts, of those that are there, are such."""
    return bool(pc.all(pc.is_in(values.drop_null(), pa.array(sorted(_TEXTS)))).as_py())


def number_paths(name: str, found: pa.DataType) -> Iterator[Path]:
    """Yield the paths in a column of a type at which it has whole numbers and floats."""
    return _number_paths((name,), found)


def _number_paths(path: Path, found: pa.DataType) -> Iterator[Path]:
    if pa.types.is_list(found):
        yield from _number_paths((*path, ELEMENT), found.value_type)
    elif pa.types.is_struct(found):
        for field in found:
            yield from _number_paths((*path, field.name), field.type)
    elif pa.types.is_float32(found) or pa.types.is_float64(found) or pa.types.is_integer(found):
        yield path


def mixed_paths(rows: Iterable[Any]) -> set[Path]:
    """Return the paths at which some rows have numbers and such texts, and nothing else."""
    kinds: dict[Path, set[str]] = {}
    for row in rows:
        _note_kinds(row, (), kinds)
    return {path for path, found in kinds.items() if found == {"number", "float text"}}


def _note_kinds(value: Any, path: Path, kinds: dict[Path, set[str]]) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _note_kinds(each, (*path, name), kinds)
    elif isinstance(value, list):
        for each in value:
            _note_kinds(each, (*path, ELEMENT), kinds)
    if value is not None:
        kinds.setdefault(path, set()).add(_kind(value))


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "float text" if value in _TEXTS else "text"
    return "other" if isinstance(value, bool | dict | list) else "number"


def with_floats(data: bytes, paths: Collection[Path]) -> bytes:
    """Return lines, an object in each, with such texts at some paths made numbers. What is no object stays as it is."""
    if not paths or not has_float_texts(data):
        return data
    return b"\n".join(_with_floats(line, paths) if has_float_texts(line) else line for line in data.split(b"\n"))


def _with_floats(line: bytes, paths: Collection[Path]) -> bytes:
    try:
        row = json.loads(
            line, strict=False, parse_int=_as_written, parse_float=_as_written, object_pairs_hook=_unlike_names
        )
        return msgspec.json.encode(_value_with_floats(row, (), paths))
    except (ValueError, TypeError, msgspec.MsgspecError):
        return line  # Arrow says what is wrong with it


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def _unlike_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _value_with_floats(value: Any, path: Path, paths: Collection[Path]) -> Any:
    if isinstance(value, dict):
        return {name: _value_with_floats(each, (*path, name), paths) for name, each in value.items()}
    if isinstance(value, list):
        return [_value_with_floats(each, (*path, ELEMENT), paths) for each in value]
    return msgspec.Raw(value.encode()) if isinstance(value, str) and value in _TEXTS and path in paths else value
