"""The texts of values as a person would type them into the fields of a form."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any, Final

from fluss_lab.explorer.texts.typed_values import EPOCH, UNIT_DIGITS, local_offsets, unit_of
from fluss_lab.model.types import DataType

TIMES: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


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
    if isinstance(value, bool | int) and target.name not in TIMES:
        return value
    return _json_leaf(value, target, zone)


def _json_leaf(value: Any, target: DataType, zone: dt.tzinfo | None) -> str:
    """Return a flat value as text; JSON has those that are no whole numbers as texts too."""
    if isinstance(value, bool):
        return str(value).lower()
    if target.name in TIMES:
        return _time_text(value, target, zone)
    if isinstance(value, float):
        return float_text(value, target)
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else f"{value:f}" if target.name == "DECIMAL" else str(value)


def float_text(value: float, target: DataType) -> str:
    """Return the shortest text of a FLOAT or DOUBLE that is read back as the same."""
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
