"""Values as Python literals: in one line, exact, and with nothing invisible in them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from typing import Any, Final

from fluss_lab.display import visible
from fluss_lab.explorer.texts.typed_values import EPOCH, UNIT_DIGITS, unit_of
from fluss_lab.explorer.texts.value_texts import TIMES, float_text
from fluss_lab.model.types import DataType

#: Modules that literals need, as they begin.
IMPORTS: Final = {
    "dt.": "import datetime as dt",
    "Decimal(": "from decimal import Decimal",
    "pa.": "import pyarrow as pa",
}


def python_literal(text: str) -> str:
    """Return a text as a Python literal: one line, whatever it holds, with nothing invisible in it."""
    return visible(json.dumps(text, ensure_ascii=False))


def is_exact(value: Any, target: DataType) -> bool:
    """Return whether Python has a value of its own for this one: of times, none has nanoseconds."""
    if value is None:
        return True
    if target.name == "ARRAY":
        return all(is_exact(each, target.fields[0].type) for each in value)
    if target.name == "MAP":
        return all(
            is_exact(each, field.type) for pair in value for each, field in zip(pair, target.fields, strict=True)
        )
    if target.name == "ROW":
        return all(is_exact(value[field.name], field.type) for field in target.fields)
    return target.name not in TIMES or target.name == "DATE" or unit_of(target) != "ns" or value % 1_000 == 0


def value_literal(value: Any, target: DataType, *, is_arrow: bool = False) -> str:
    """Return a plain value as Python code; with `is_arrow` times as whole numbers, and maps as pairs."""

    def inner(each: Any, kind: DataType) -> str:
        return value_literal(each, kind, is_arrow=is_arrow)

    if value is None:
        return "None"
    if target.name == "ARRAY":
        return f"[{', '.join(inner(each, target.fields[0].type) for each in value)}]"
    if target.name == "MAP":
        key, held = (field.type for field in target.fields)
        pairs = [(inner(each, key), inner(one, held)) for each, one in value]
        if key.fields or is_arrow:
            return f"[{', '.join(f'({each}, {one})' for each, one in pairs)}]"
        return f"{{{', '.join(f'{each}: {one}' for each, one in pairs)}}}"
    if target.name == "ROW":
        return f"{{{', '.join(f'{python_literal(f.name)}: {inner(value[f.name], f.type)}' for f in target.fields)}}}"
    if target.name in TIMES:
        return str(value) if is_arrow else _TIME_LITERALS[target.name](value, target)
    if isinstance(value, str):
        return python_literal(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if target.name == "FLOAT":
        return float_text(value, target)
    return f'Decimal("{value:f}")' if target.name == "DECIMAL" else repr(value)


def _date_literal(value: int, _target: DataType) -> str:
    day = dt.date.fromordinal(value + EPOCH.toordinal())
    return f"dt.date({day.year}, {day.month}, {day.day})"


def _moment_of(value: int, target: DataType) -> dt.datetime:
    seconds, part = divmod(value, 10 ** UNIT_DIGITS[unit_of(target)])
    return EPOCH + dt.timedelta(seconds=seconds, microseconds=part * 10**6 // 10 ** UNIT_DIGITS[unit_of(target)])


def _time_literal(value: int, target: DataType) -> str:
    at = _moment_of(value, target)
    return f"dt.time({_parts(at)})"


def _moment_literal(value: int, target: DataType) -> str:
    at = _moment_of(value, target)
    zone = ", tzinfo=dt.UTC" if target.name == "TIMESTAMP_LTZ" else ""
    return f"dt.datetime({at.year}, {at.month}, {at.day}, {_parts(at)}{zone})"


def _parts(at: dt.datetime) -> str:
    """Return hour, minute, second and microsecond as arguments, without zeros at the end."""
    parts = [at.hour, at.minute, at.second, at.microsecond]
    while len(parts) > 2 and not parts[-1]:
        parts.pop()
    return ", ".join(map(str, parts))


_TIME_LITERALS: Final[dict[str, Callable[[int, DataType], str]]] = {
    "DATE": _date_literal, "TIME": _time_literal, "TIMESTAMP": _moment_literal, "TIMESTAMP_LTZ": _moment_literal,
}  # fmt: skip
