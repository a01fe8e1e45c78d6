"""Rows of plain values, given one at a time as dicts: each is checked when it is given, all are made a batch together.

`row_input.record_batches` takes some 30 us for a row by itself. Here it is looked at for 0.3 us, by a decoder made for the
table: only exactly the common Python types pass, in range, with the table's columns and no others. What does not pass
may still be right, or is refused in words: that `record_batches` says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from msgspec import Meta

from fluss_lab.model.json_codec import learn_type
from fluss_lab.model.schema import Schema
from fluss_lab.model.types import DataType
from fluss_lab.model.values.casts import is_unicode
from fluss_lab.model.values.python_values import typed_array

#: Longer texts are given to `record_batches`: so it is known how much memory rows take that were only looked at.
_LENGTH_MAX: Final = 256
#: A text of so many characters takes at most so many bytes.
_TEXT_BYTES_MAX: Final = 4 * _LENGTH_MAX
#: Whole numbers up to here are exact in 64 bits of floating point.
_EXACT: Final = 2**53
#: For these the decoder would also make values of texts and decimals: only what it passes on unchanged is taken.
_MADE: Final = frozenset({"DOUBLE", "BYTES", "DATE", "TIMESTAMP"})


def _whole(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_FORMS: Final[dict[str, Any]] = {
    "BOOLEAN": bool,
    "TINYINT": _whole(8),
    "SMALLINT": _whole(16),
    "INT": _whole(32),
    "BIGINT": _whole(64),
    "DOUBLE": Annotated[int, Meta(ge=-_EXACT, le=_EXACT)] | float,
    "STRING": Annotated[str, Meta(max_length=_LENGTH_MAX)],
    "BYTES": Annotated[bytes, Meta(max_length=_LENGTH_MAX)],
    "DATE": dt.date,
    "TIMESTAMP": Annotated[dt.datetime, Meta(tz=False)],
}
_MICROS: Final = 6
#: The first columns of `_MADE`, and the first text.
_NAMED: Final = ("made0", "made1", "text")
_convert: Final = msgspec.convert


class PlainRows:
    """Checks rows of one table one at a time, and makes batches of them.

    Args:
        wanted: Its columns, in the order of the batches, all of types that `fits` names.
        complete: Whether a row must give every column, nullable or not.

    Attributes:
        row_bytes_max: What no row that passes exceeds, its values counted alone.
    """

    def __init__(self, wanted: Sequence[tuple[str, DataType]], *, complete: bool) -> None:
        self._schema = pa.schema([dtype.arrow_field(name) for name, dtype in wanted])
        own = _own_names([dtype for _, dtype in wanted])
        fields: list[Any] = []
        for name, (_, dtype) in zip(own, wanted, strict=True):
            form = _FORMS[dtype.name]
            if dtype.nullable:
                fields.append((name, form | None) if complete else (name, form | None, None))
            else:
                fields.append((name, form))
        given = dict(zip(own, (name for name, _ in wanted), strict=True))
        self._kind: Any = msgspec.defstruct(
            "PlainRow", fields, forbid_unknown_fields=True, kw_only=True, rename=given, gc=False,
            namespace={name: None for name in _NAMED if name not in given},
        )  # fmt: skip
        learn_type(self._kind)
        self._columns, self._types = [attrgetter(name) for name in own], [dtype for _, dtype in wanted]
        # No row has a column by the name of an object.
        self._made0, self._made1 = given.get("made0", object()), given.get("made1", object())
        others = [(name, dtype.name) for name, (_, dtype) in zip(own, wanted, strict=True) if name not in _NAMED]
        self._texts = [name for name, kind in others if kind == "STRING"]
        self._made = [(name, given[name]) for name, kind in others if kind in _MADE]
        self.row_bytes_max = sum(_TEXT_BYTES_MAX if dtype.name in {"STRING", "BYTES"} else 8 for _, dtype in wanted)

    @staticmethod
    def fits(dtype: DataType) -> bool:
        """Return whether rows may have columns of a type."""
        return dtype.name in _FORMS and (dtype.name != "TIMESTAMP" or dtype.precision == _MICROS)

    @staticmethod
    def of(schema: Schema, columns: Sequence[str] | None = None) -> PlainRows | None:
        """Return how rows of a table, or of some columns of it that must all be given, are checked; None: not here."""
        names = schema.names if columns is None else columns
        wanted = [(name, schema.column(name).type) for name in names]
        if not all(PlainRows.fits(dtype) for _, dtype in wanted):
            return None
        return PlainRows(wanted, complete=columns is not None)

    def look_at(self, row: dict[Any, Any]) -> Any | None:
        """Return a row that is right in the form that `batch` takes; None where that is for `record_batches` to say."""
        try:
            found = _convert(row, self._kind)
        except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of half a surrogate pair
            return None
        # Columns that most tables have are looked at by a name of their own: half of what getattr and a loop take.
        if found.made0 is not row.get(self._made0) or found.made1 is not row.get(self._made1):
            return None
        text = found.text
        if text is not None and not text.isascii() and not is_unicode(text):
            return None
        for own, name in self._made:
            if getattr(found, own) is not row.get(name):
                return None
        for name in self._texts:
            text = getattr(found, name)
            if text is not None and not text.isascii() and not is_unicode(text):
                return None
        return found

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return rows that passed, in the table's Arrow types."""
        columns = zip(self._columns, self._types, strict=True)
        arrays = [typed_array(list(map(value_of, rows)), dtype) for value_of, dtype in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _own_names(types: Sequence[DataType]) -> list[str]:
    """Return what a row's columns are called in the form that `PlainRows.batch` takes."""
    made, texts = iter(_NAMED[:2]), iter(_NAMED[2:])
    named = (
        next(made, None) if dtype.name in _MADE else next(texts, None) if dtype.name == "STRING" else None
        for dtype in types
    )
    return [name or f"c{index}" for index, name in enumerate(named)]
