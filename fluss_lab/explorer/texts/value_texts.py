"""The texts of values as a person would type them: a form's fields, and literals of Python lines."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from fluss_lab.explorer.texts.code_lines import python_literal, table_line, variable
from fluss_lab.explorer.texts.typed_values import EPOCH, UNIT_DIGITS, local_offsets, unit_of
from fluss_lab.model import TablePath
from fluss_lab.model.types import DataType

_TIMES: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
#: Modules that literals need, as they begin.
_IMPORTS: Final = {
    "dt.": "import datetime as dt",
    "Decimal(": "from decimal import Decimal",
    "pa.": "import pyarrow as pa",
}


# -- as a form has them ------------------------------------------------------------------------------------------------


def typed_text(value: Any, target: DataType, zone: dt.tzinfo | None) -> str | None:
    """Return the text that `read_text` reads as a plain value; None of null, and of days that nobody can type.

    Args:
        value: See `fluss_lab.explorer.texts.typed_values`.
        target: Its type.
        zone: In which a TIMESTAMP_LTZ is written; None: the system's.
    """
    if value is None:
        return None
    try:
        if target.fields:
            return json.dumps(_json(value, target, zone), ensure_ascii=False)
        return str(_json_leaf(value, target, zone))
    except (OverflowError, ValueError, OSError):
        return None


def _json(value: Any, target: DataType, zone: dt.tzinfo | None) -> Any:
    if value is None:
        return None
    if target.name == "ARRAY":
        return [_json(each, target.fields[0].type, zone) for each in value]
    if target.name == "ROW":
        return {field.name: _json(value[field.name], field.type, zone) for field in target.fields}
    if target.name == "MAP":
        key, held = (field.type for field in target.fields)
        if key.name in {"STRING", "CHAR"}:
            return {each: _json(one, held, zone) for each, one in value}
        return [[_json(each, key, zone), _json(one, held, zone)] for each, one in value]
    if isinstance(value, bool | int) and target.name not in _TIMES:
        return value
    return _json_leaf(value, target, zone)


def _json_leaf(value: Any, target: DataType, zone: dt.tzinfo | None) -> str:
    """Return a flat value as text; JSON has those that are no whole numbers as texts too."""
    if isinstance(value, bool):
        return str(value).lower()
    if target.name in _TIMES:
        return _time_text(value, target, zone)
    if isinstance(value, float):
        return _float_text(value, target)
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else f"{value:f}" if target.name == "DECIMAL" else str(value)


def _float_text(value: float, target: DataType) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if target.name == "FLOAT":  # the shortest text that is the same in 32 bits
        import numpy as np

        return str(np.float32(value))
    return repr(value)


def _time_text(value: int, target: DataType, zone: dt.tzinfo | None) -> str:
    if target.name == "DATE":
        return dt.date.fromordinal(value + EPOCH.toordinal()).isoformat()
    digits = UNIT_DIGITS[unit_of(target)]
    seconds, part = divmod(value, 10**digits)
    fraction = f".{part:0{digits}}" if part else ""
    if target.name == "TIME":
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    moment = EPOCH + dt.timedelta(seconds=seconds)
    if target.name == "TIMESTAMP":
        return f"{moment.replace(tzinfo=None).isoformat(' ')}{fraction}"
    local = moment.astimezone(zone)
    naive = local.replace(tzinfo=None, fold=0)
    is_once = len(set(local_offsets(naive, zone))) == 1
    return f"{naive.isoformat(' ')}{fraction}{'' if is_once else local.isoformat()[19:]}"


# -- as Python has them ------------------------------------------------------------------------------------------------


def record_code(
    path: TablePath, call: str, row: Mapping[str, tuple[Any, DataType]], columns: list[str] | None = None
) -> list[str]:
    """Return the lines that write one row, or delete one by its key.

    Args:
        path: The table.
        call: ``append``, ``upsert`` or ``delete``.
        row: Plain value and type by column.
        columns: Of a partial update: which; None: all.
    """
    name = variable(path)
    if all(_is_python(value, target) for value, target in row.values()):
        cells = ", ".join(f"{python_literal(each)}: {_literal(value, target)}" for each, (value, target) in row.items())
        given = f"[{{{cells}}}]"
    else:  # Python has no times so exact: Arrow has, as whole numbers
        arrays = [
            f"{python_literal(each)}: pa.array([{_literal(value, target, is_arrow=True)}], {name}.schema.field({python_literal(each)}).type)"
            for each, (value, target) in row.items()
        ]
        given = f"pa.table({{{', '.join(arrays)}}})"
    chosen = "" if columns is None else f", columns=[{', '.join(map(python_literal, columns))}]"
    imports = [line for begin, line in _IMPORTS.items() if begin in given]
    return [*imports, table_line(path), f"{name}.{call}({given}{chosen})"]


def _is_python(value: Any, target: DataType) -> bool:
    """Return whether Python has a value of its own for this one."""
    if value is None:
        return True
    if target.name == "ARRAY":
        return all(_is_python(each, target.fields[0].type) for each in value)
    if target.name == "MAP":
        return all(
            _is_python(each, field.type) for pair in value for each, field in zip(pair, target.fields, strict=True)
        )
    if target.name == "ROW":
        return all(_is_python(value[field.name], field.type) for field in target.fields)
    return target.name not in _TIMES or target.name == "DATE" or unit_of(target) != "ns" or value % 1_000 == 0


def _literal(value: Any, target: DataType, *, is_arrow: bool = False) -> str:
    def inner(each: Any, kind: DataType) -> str:
        return _literal(each, kind, is_arrow=is_arrow)

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
    if target.name in _TIMES:
        return str(value) if is_arrow else _TIME_LITERALS[target.name](value, target)
    if isinstance(value, str):
        return python_literal(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if target.name == "FLOAT":
        return _float_text(value, target)
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
