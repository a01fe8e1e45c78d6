"""The columns of a source that go into a table: under which names, in which types."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from fluss_lab.errors import InvalidNameError, InvalidRecordError, InvalidSchemaError
from fluss_lab.model import DataType, Schema
from fluss_lab.model.names import check_column_name
from fluss_lab.model.values.casts import CellPosition, cast_array

#: Names that break the rule and are named in an error; the remedy has them all.
_SHOWN_MAX: Final = 5
_RULE: Final = "letters, digits and underscores, not beginning with a digit, at most 128; no name of the system's own"
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]+")
#: Rows that a source yields at a time.
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class LoadColumn:
    """A column of a source that goes into the table.

    Attributes:
        position: Which it is in the source, from 0.
        source_name: What it is called there.
        name: What it is called in the table.
        type: Its type in the table; None: whatever its values are.
        required: Whether a null is refused.
    """

    position: int
    source_name: str
    name: str
    type: DataType | None = None
    required: bool = False

    def with_type(self, found: DataType) -> LoadColumn:
        """Return the column with the type found, unless it has one."""
        wanted = self.type or found
        return replace(self, type=wanted.with_nullable(not self.required))

    @property
    def known_type(self) -> DataType:
        """Return its type, once the source is examined."""
        assert self.type is not None
        return self.type

    def cast(self, values: pa.Array, base: int) -> pa.Array:
        """Return values in the column's type; `base` is the first one's row.

        Raises:
            InvalidRecordError: One does not fit; the text names row and value.
        """
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(f"column {self.name!r}: not valid Arrow data: {error}") from error
        return cast_array(values, self.known_type, CellPosition(self.name, lambda at: base + at))


@dataclass(slots=True)
class RowCount:
    """How far a source is read, for whoever watches.

    Attributes:
        read: Rows that the present pass over the source has read.
        total: Rows that the source has; 0 while that is not known.
    """

    read: int = 0
    total: int = 0


class RowSource(Protocol):
    """Rows to be loaded.

    Attributes:
        count: How far they are read.
    """

    count: RowCount

    @property
    def title(self) -> str:
        """Return what it is, for messages."""

    def examine(self, plan: ColumnPlan) -> list[LoadColumn]:
        """Return the columns to be loaded, each with its type. Whatever can be checked before anything is written is.

        Raises:
            InvalidError: The source cannot be loaded so; the text names column, row and value, and what to do.
        """

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in the columns' names and types, bounded in memory."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which columns of a source are loaded, under which names and types.

    Attributes:
        columns: Only these, by their names in the table; None: all.
        rename: Names in the table by names in the source, or one for each of the source's columns in order.
        types: Types by name in the table.
        texts: Columns that are texts unless `types` says otherwise: those that partition a table.
        required: Columns without nulls.
        existing: The table's columns, if it is there already.
    """

    columns: Sequence[str] | None = None
    rename: Mapping[str, str] | Sequence[str] | None = None
    types: Mapping[str, DataType] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    existing: Schema | None = None

    def of(self, names: Sequence[str], title: str) -> list[LoadColumn]:
        """Return the columns of a source that are loaded, types where they are given.

        Raises:
            InvalidSchemaError, InvalidNameError: A name that cannot be, or is there twice, or not at all.
        """
        targets = self._rename(names, title)
        wanted = range(len(targets)) if self.columns is None else self._choose(targets, title)
        _check_names(names, targets, wanted, title)
        known = [targets[at] for at in wanted]
        if unknown := [name for name in [*self.types, *self.required] if name not in known]:
            raise InvalidSchemaError(f"{title}: no column {unknown[0]!r}; the columns are {', '.join(known)}")
        if self.existing is not None:
            self._check_existing(self.existing, known, title)
        return [LoadColumn(at, names[at], targets[at], *self._type(targets[at])) for at in wanted]

    def _rename(self, names: Sequence[str], title: str) -> list[str]:
        if self.rename is None:
            return list(names)
        if isinstance(self.rename, Mapping):
            if missing := [name for name in self.rename if name not in names]:
                raise InvalidSchemaError(
                    f"{title}: rename: no column {missing[0]!r}; the columns are {_list_names(names)}"
                )
            return [self.rename.get(name, name) for name in names]
        if len(self.rename) != len(names):
            raise InvalidSchemaError(
                f"{title}: rename: expected a name for each of its {len(names)} columns ({_list_names(names)}), "
                f"found {len(self.rename)}"
            )
        return list(self.rename)

    def _choose(self, targets: Sequence[str], title: str) -> list[int]:
        found = []
        for name in self.columns or ():
            count = targets.count(name)
            if count != 1:
                what = f"{count} columns {name!r}; name them by rename=[...]" if count else f"no column {name!r}"
                raise InvalidSchemaError(f"{title}: {what}; the columns are {_list_names(targets)}")
            found.append(targets.index(name))
        if not found:
            raise InvalidSchemaError(f"{title}: columns: expected at least one; there are {_list_names(targets)}")
        return found

    def _check_existing(self, existing: Schema, names: Sequence[str], title: str) -> None:
        if unknown := [name for name in names if name not in existing.names]:
            kept = [name for name in names if name in existing.names]
            raise InvalidSchemaError(
                f"{title}: the table has no column {', '.join(map(repr, unknown))}, it has {', '.join(existing.names)}; leave it "
                f"out (columns={kept!r}), rename it, or add it to the table (alter(add_columns=...))"
            )
        required = [column.name for column in existing.columns if not column.type.nullable]
        if missing := [name for name in required if name not in names]:
            raise InvalidSchemaError(
                f"{title}: column {missing[0]!r} is missing, which the table has as NOT NULL; found {_list_names(names)}"
            )

    def _type(self, name: str) -> tuple[DataType | None, bool]:
        if self.existing is not None:
            dtype = self.existing.column(name).type
            return dtype, not dtype.nullable
        default = DataType("STRING") if name in self.texts else None
        return self.types.get(name, default), name in self.required


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _check_names(names: Sequence[str], targets: Sequence[str], wanted: Sequence[int], title: str) -> None:
    counts = Counter(str(targets[at]).lower() for at in wanted)
    unnamed = [f"column {at + 1} has no name" for at in wanted if not targets[at] and not isinstance(targets[at], int)]
    twice = [f"the name {name!r} is there {count} times" for name, count in counts.items() if name and count > 1]
    odd = [targets[at] for at in wanted if targets[at] and _problem(targets[at]) is not None]
    broken = [f"{name!r}" for name in odd[:_SHOWN_MAX]] + (
        [f"{len(odd) - _SHOWN_MAX} more"] if len(odd) > _SHOWN_MAX else []
    )
    wrong = unnamed[:_SHOWN_MAX] + [f"{each} (upper and lower case are the same)" for each in twice[:_SHOWN_MAX]]
    if broken:
        wrong.append(f"{', '.join(broken)} cannot be the name of a column ({_RULE})")
    if not wrong:
        return
    better = suggested_names(targets)
    # A dict says what changes; where a name is there twice or not at all, only the position tells columns apart.
    remedy: object = better
    if not twice and all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names):
        remedy = {names[at]: better[at] for at in wanted if better[at] != targets[at]}
    raise InvalidNameError(f"{title}: {'; '.join(wrong)}; give names, for instance rename={remedy!r}")


def _problem(name: object) -> str | None:
    try:
        check_column_name(name)
    except InvalidNameError as error:
        return str(error)
    return None


def suggested_names(names: Sequence[object]) -> list[str]:
    """Return a name that a column may have for each name, as near to it as can be.

    >>> suggested_names(["Order ID", "id", "id", "", "2nd", "Größe"])
    ['order_id', 'id', 'id_2', 'column_4', '_2nd', 'grosse']
    """
    taken: set[str] = set()
    found = []
    for at, name in enumerate(names):
        text = str(name) if name is not None else ""
        if _problem(text) is not None:
            plain = unicodedata.normalize("NFKD", text.replace("ß", "ss")).encode("ascii", "ignore").decode()
            text = _NO_WORD.sub("_", plain).strip("_").lower()[:100] or f"column_{at + 1}"
            text = f"_{text}" if text[0].isdigit() else text
            text = f"{text}_" if _problem(text) is not None else text
        chosen, count = text, 2
        while chosen.lower() in taken:
            chosen, count = f"{text}_{count}", count + 1
        taken.add(chosen.lower())
        found.append(chosen)
    return found


def cast_batches(
    batches: Iterator[pa.RecordBatch],
    columns: Sequence[LoadColumn],
    column_of: Callable[[pa.RecordBatch, LoadColumn], pa.Array],
    base: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield batches in the columns' names and types; rows are counted over all of them, from `base` on."""
    schema = pa.schema([column.known_type.arrow_field(column.name) for column in columns])
    for batch in batches:
        arrays = [column.cast(column_of(batch, column), base) for column in columns]
        base += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def file_error(path: Path, error: InvalidRecordError) -> InvalidRecordError:
    """Return an error about a value with the name of its file."""
    return InvalidRecordError(f"{path.name}: {str(error).removesuffix('; nothing was sent')}; nothing of it was loaded")
