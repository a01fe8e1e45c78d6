"""The texts of cells: values of every type as people read them, on one line, bounded, never markup."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.display import visible

#: Characters of a cell in a grid; a row's own page has `WHOLE_LENGTH_MAX`.
CELL_LENGTH_MAX: Final = 200
#: Of a value that is looked at by itself: 64 kB.
WHOLE_LENGTH_MAX: Final = 65_536
#: Bytes of a binary value that are shown, as hexadecimal digits.
_BYTES_SHOWN: Final = 32
#: Elements of a list or map that are shown; the number of all is said.
_ELEMENTS_SHOWN: Final = 50

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()

_Text = Callable[[Any], str]


def cell_texts(
    column: pa.Array, zone: dt.tzinfo | None, length_max: int = CELL_LENGTH_MAX
) -> tuple[list[str | None], list[int]]:
    """Return the text of each value, None for a null, and the positions of those that were cut.

    Args:
        column: Of any type of a table.
        zone: In which times with a zone are shown; None: the system's.
        length_max: Characters of a text, escapes included.

    Cost: that of what is shown, however long the values are.
    """
    values, whole = _bounded(column, length_max)
    text = _text_of(column.type, zone)
    texts: list[str | None] = []
    cut = []
    for position, value in enumerate(values):
        if value is None:
            texts.append(None)
            continue
        full = text(value)
        shown = full[:length_max]
        if len(full) > length_max or not whole[position]:
            cut.append(position)
        texts.append(shown)
    return texts, cut


def _bounded(column: pa.Array, length_max: int) -> tuple[list[Any], list[bool]]:
    """Return the values, long texts no longer than needed, and whether each is whole."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date32(kind):
        wide = column.cast(pa.int32()) if kind.bit_width == 32 else column
        return wide.cast(pa.int64()).to_pylist(), [True] * len(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.utf8_length(column).to_pylist()
        return pc.utf8_slice_codeunits(column, 0, length_max).to_pylist(), [
            length is None or length <= length_max for length in lengths
        ]
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        values = column.cast(pa.binary())
        lengths = pc.binary_length(values).to_pylist()
        heads = pc.binary_slice(values, 0, _BYTES_SHOWN).to_pylist()
        pairs = [None if head is None else (head, length) for head, length in zip(heads, lengths, strict=True)]
        return pairs, [length is None or length <= _BYTES_SHOWN for length in lengths]
    return column.to_pylist(), [True] * len(column)


def _text_of(kind: pa.DataType, zone: dt.tzinfo | None) -> _Text:
    if pa.types.is_timestamp(kind):
        scale = _UNITS[kind.unit]
        return lambda value: _moment_text(value, scale, zone, is_zoned=kind.tz is not None)
    if pa.types.is_time(kind):
        scale = _UNITS[kind.unit]
        return lambda value: _clock_text(value, scale)
    if pa.types.is_date32(kind):
        return _day_text
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda pair: _bytes_text(*pair)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return visible
    if pa.types.is_float32(kind):
        return lambda value: _number_text(value, short=True)
    return lambda value: _python_text(value, zone, is_inner=False)


def _moment_text(value: int, scale: int, zone: dt.tzinfo | None, *, is_zoned: bool) -> str:
    seconds, part = divmod(value, scale)
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
        if is_zoned:
            moment = moment.astimezone(zone)
    except (OverflowError, ValueError):
        return f"{seconds} s after 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + _fraction(part, scale)


def _clock_text(value: int, scale: int) -> str:
    seconds, part = divmod(value, scale)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(part, scale)}"


def _fraction(part: int, scale: int) -> str:
    """Return a part of a second, in groups of three digits; nothing of none."""
    if not part:
        return ""
    digits = str(part).rjust(len(str(scale)) - 1, "0")
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def _day_text(days: int) -> str:
    try:
        return dt.date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (OverflowError, ValueError):
        return f"{days} days after 1970"


def _bytes_text(head: bytes, length: int) -> str:
    return f"{head.hex()}{'…' if length > len(head) else ''} ({length:,} {'byte' if length == 1 else 'bytes'})".lstrip()


def _number_text(value: float, *, short: bool = False) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if short:  # the shortest text that is the same in 32 bits
        import numpy as np

        return str(np.float32(value))
    return repr(value)


def _python_text(value: Any, zone: dt.tzinfo | None, *, is_inner: bool = True) -> str:
    """Return the text of a value within others, as Python writes it, or of a plain one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str):
        text = visible(value[: CELL_LENGTH_MAX * 4])
        return f'"{text}"' if is_inner else text
    if isinstance(value, bytes):
        return _bytes_text(value[:_BYTES_SHOWN], len(value))
    if isinstance(value, dt.datetime):
        moment = value.astimezone(zone) if value.tzinfo is not None else value
        return moment.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, Mapping):
        return _joined(
            "{}", [f"{visible(key)}: {_python_text(each, zone)}" for key, each in _first(value.items())], len(value)
        )
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        pairs = [f"{_python_text(key, zone)}: {_python_text(each, zone)}" for key, each in _first(value)]
        return _joined("{}", pairs, len(value))
    if isinstance(value, list):
        return _joined("[]", [_python_text(each, zone) for each in _first(value)], len(value))
    return visible(str(value))


def _first(values: Any) -> list[Any]:
    return [each for each, _ in zip(values, range(_ELEMENTS_SHOWN), strict=False)]


def _joined(brackets: str, texts: list[str], count: int) -> str:
    more = f", … {count:,} in all" if count > len(texts) else ""
    return f"{brackets[0]}{', '.join(texts)}{more}{brackets[1]}"
