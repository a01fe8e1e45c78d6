"""The texts of cells: values of every type as people read them, on one line, bounded, never markup."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
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
    if pa.types.is_nested(column.type):
        return _nested_texts(column, zone, length_max)
    values, whole = _cut_values(column, length_max)
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


def _nested_texts(column: pa.Array, zone: dt.tzinfo | None, length_max: int) -> tuple[list[str | None], list[int]]:
    """Return `cell_texts` of rows, maps and lists, which are made of those of their parts."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        names = [f"{visible(field.name)}: " for field in fields]
        parts = [_inner_texts(part, zone, length_max) for part in column.flatten()]
        rows = [[part[at] for part in parts] for at in range(len(column))]
        return _join_elements(
            column,
            "{}",
            [[(name + text, cut) for name, (text, cut) in zip(names, row, strict=True)] for row in rows],
            length_max,
        )
    # Of each as many elements as can be shown: one takes three characters at least.
    most = length_max // 3 + 2
    spans = _spans(column, most)
    if pa.types.is_map(kind):
        keys, items = (_taken_texts(part, spans, zone, length_max) for part in (column.keys, column.items))
        pairs = [
            [(f"{key}: {item}", one or other) for (key, one), (item, other) in zip(*both, strict=True)]
            for both in zip(keys, items, strict=True)
        ]
        return _join_elements(column, "{}", pairs, length_max)
    return _join_elements(column, "[]", _taken_texts(column.values, spans, zone, length_max), length_max)


def _spans(column: pa.Array, most: int) -> list[tuple[int, int]]:
    """Return where the first elements of each list begin and end among the values of all; of a null none."""
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        edges = [(column.offset + at) * size for at in range(len(column) + 1)]
    else:
        edges = column.offsets.to_pylist()
    known = column.is_valid().to_pylist()
    return [
        (begin, min(end, begin + most) if is_known else begin)
        for begin, end, is_known in zip(edges, edges[1:], known, strict=False)
    ]


def _taken_texts(
    values: pa.Array, spans: list[tuple[int, int]], zone: dt.tzinfo | None, length_max: int
) -> list[list[tuple[str, bool]]]:
    """Return the texts of some elements of each list, and whether each is cut."""
    places = [place for begin, end in spans for place in range(begin, end)]
    texts = iter(_inner_texts(values.take(pa.array(places, pa.int64())), zone, length_max))
    return [[next(texts) for _ in range(begin, end)] for begin, end in spans]


def _inner_texts(values: pa.Array, zone: dt.tzinfo | None, length_max: int) -> list[tuple[str, bool]]:
    """Return the texts of values within others, texts in quotes, and whether each is cut."""
    texts, cut = cell_texts(values, zone, length_max)
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    shortened = set(cut)
    return [
        ("null" if text is None else _quote(text) if is_text else text, position in shortened)
        for position, text in enumerate(texts)
    ]


def _quote(text: str) -> str:
    """Return a text in quotes, those within it marked: else one text could be read as two."""
    return f'"{text.replace(chr(34), chr(92) + chr(34))}"'


def _join_elements(
    column: pa.Array, brackets: str, rows: list[list[tuple[str, bool]]], length_max: int
) -> tuple[list[str | None], list[int]]:
    texts: list[str | None] = []
    cut = []
    for position, (parts, is_known) in enumerate(zip(rows, column.is_valid().to_pylist(), strict=True)):
        full = f"{brackets[0]}{', '.join(text for text, _ in parts)}{brackets[1]}"
        if is_known and (len(full) > length_max or any(is_cut for _, is_cut in parts)):
            cut.append(position)
        texts.append(full[:length_max] if is_known else None)
    return texts, cut


def _cut_values(column: pa.Array, length_max: int) -> tuple[list[Any], list[bool]]:
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
    if pa.types.is_float64(kind):
        return _number_text
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_decimal(kind):
        return lambda value: f"{value:f}"
    return lambda value: visible(str(value))


def _moment_text(value: int, scale: int, zone: dt.tzinfo | None, *, is_zoned: bool) -> str:
    seconds, part = divmod(value, scale)
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
        if is_zoned:
            moment = moment.astimezone(zone)
    except (OverflowError, ValueError):
        past, part = divmod(abs(value), scale)
        return f"{'-' if value < 0 else ''}{past}{_fraction(part, scale)} s after 1970"
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
