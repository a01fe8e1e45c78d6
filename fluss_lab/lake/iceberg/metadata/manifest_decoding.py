"""Avro manifests decoded as far as is needed: the fields of an entry that are asked for, the rest being passed over.

Whoever wrote them: fields are found by id. Source: Apache Iceberg table specification, "Manifests"; Apache Avro 1.11
specification, "Binary Encoding".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.typedef import Record

from fluss_lab.lake.iceberg.metadata.avro_file import RawBlocks

#: Field ids of manifests: of an entry, and of the file in it.
_STATUS, _SEQUENCE_NUMBER, _DATA_FILE = 0, 3, 2
_CONTENT, _PATH, _FORMAT, _PARTITION, _RECORDS, _SIZE = 134, 100, 101, 102, 103, 104
_LOWER, _UPPER = 125, 128
_VARINTS: Final = frozenset({"int", "long"})
#: An array of more is none of a manifest's.
_ITEMS_MAX: Final = 100_000
_CONTENTS: Final = {each.value: each for each in DataFileContent}
_FORMATS: Final = {each.value: each for each in FileFormat}

#: Takes a value at a position out of bytes; returns it, and where the next one is.
_Take: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
#: Smallest and largest offset, and the last timestamp in epoch microseconds.
Bounds: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class QuickEntry:
    """A live entry of a manifest, as far as it was decoded.

    Attributes:
        status: Of the entry.
        sequence_number: Data sequence number; None where it is inherited.
        content: Of the file, as all that follows.
        path: Where it is.
        file_format: Its format.
        partition: Its partition values.
        records: Rows, or deletes.
        size_bytes: Its size.
        bounds: Of offsets and timestamps, as the metrics have them; None where these are missing.
    """

    status: int
    sequence_number: int | None
    content: DataFileContent
    path: str
    file_format: FileFormat
    partition: Record
    records: int
    size_bytes: int
    bounds: Bounds | None


def bounds_of(
    lower: Mapping[int, bytes], upper: Mapping[int, bytes], offset_id: int, timestamp_id: int
) -> Bounds | None:
    """Return a file's bounds out of its metrics; None where these are missing."""
    if offset_id not in lower or offset_id not in upper or timestamp_id not in upper:
        return None
    # All three are eight bytes, little-endian, whatever they count.
    raw = (lower[offset_id], upper[offset_id], upper[timestamp_id])
    first, last, latest = (int.from_bytes(each, "little", signed=True) for each in raw)
    return first, last, latest


def live_files_in(data: bytes, ids: tuple[int, int], what: str = "a manifest") -> list[QuickEntry]:
    """Return the live entries of a manifest.

    Args:
        data: The manifest's bytes.
        ids: Field ids of offset and timestamp.
        what: Named in messages.

    Raises:
        CorruptDataError: It cannot be taken apart, or its seal is broken.
        UnsupportedError, ValueError, LookupError, TypeError, OverflowError: It is none, or of a form that
            is not expected here.
    """
    raw = RawBlocks.parse(data, what)
    entry = _entry_form(raw.schema, ids)
    found = []
    for count, block in raw.blocks:
        at = 0
        for _ in range(count):
            (status, sequence_number, file), at = entry(block, at)
            if status == ManifestEntryStatus.DELETED:
                continue
            content, path, form, partition, records, size, lower, upper = file
            place, bounds = Record(*partition), bounds_of(lower or {}, upper or {}, *ids)
            kind = (_CONTENTS[content], path, _FORMATS[form.upper()], place)
            found.append(QuickEntry(status, sequence_number, *kind, records, size, bounds))
        if at != len(block):
            raise ValueError("a block does not end where it should")
    return found


@lru_cache(maxsize=64)
def _entry_form(schema: bytes, ids: tuple[int, int]) -> _Take:
    """Return what takes an entry of manifests of a schema: nearly all of a table have the same."""
    entry = json.loads(schema)
    file = next(each for each in entry["fields"] if each["field-id"] == _DATA_FILE)["type"]
    partition = next(each for each in file["fields"] if each["field-id"] == _PARTITION)["type"]
    bounds = {number: _wanted_bytes(frozenset(ids)) for number in (_LOWER, _UPPER)}
    whole_partition = _record(partition, {each["field-id"]: None for each in partition["fields"]})
    order = (_CONTENT, _PATH, _FORMAT, _PARTITION, _RECORDS, _SIZE, _LOWER, _UPPER)
    file_form = _record(file, {number: bounds.get(number) for number in order} | {_PARTITION: whole_partition})
    return _record(entry, {_STATUS: None, _SEQUENCE_NUMBER: None, _DATA_FILE: file_form})


def _record(schema: Mapping[str, Any], wanted: Mapping[int, _Take | None]) -> _Take:
    """Return what takes the wanted fields of a record, in the order wanted; each by its own form, if one is given.

    Raises:
        ValueError: One is missing, or its form is none that is expected.
    """
    numbers = list(wanted)
    steps: list[tuple[int, _Take]] = []
    for field in schema["fields"]:
        number = field["field-id"]
        if number not in wanted:
            steps.append((-1, _skipped(field["type"])))
        else:
            steps.append((numbers.index(number), _optional(field["type"], wanted[number])))
    if sum(slot >= 0 for slot, _ in steps) != len(numbers):
        raise ValueError("a field is missing")

    def take(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = [None] * len(numbers)
        for slot, step in steps:
            value, at = step(data, at)
            if slot >= 0:
                values[slot] = value
        return values, at

    return take


def _optional(schema: Any, form: _Take | None) -> _Take:
    """Return what takes a value that may be null, by a form or as the primitive that it is."""
    if not isinstance(schema, list):
        return form or _PRIMITIVES[schema]
    null = schema.index("null")
    inner = form or _PRIMITIVES[schema[1 - null]]

    def take(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        return (None, at) if branch == null else inner(data, at)

    return take


def _skipped(schema: Any) -> _Take:
    """Return what passes over a value."""
    if isinstance(schema, list):
        branches = [_skipped(each) for each in schema]

        def take_union(data: bytes, at: int) -> tuple[None, int]:
            branch, at = _long(data, at)
            return None, branches[branch](data, at)[1]

        return take_union
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    if schema["type"] == "array":
        return _skipped_array(schema["items"])
    raise ValueError(f"a field of type {schema['type']}")


def _skipped_array(items: Any) -> _Take:
    """Return what passes over an array of numbers, or of pairs of them: the metrics that nobody asked for."""
    fields = [each["type"] for each in items["fields"]] if isinstance(items, dict) else [items]
    if not set(fields) <= _VARINTS:
        values = [_PRIMITIVES[each] for each in fields]

        def skip(data: bytes, at: int, count: int) -> int:
            for _ in range(count):
                for value in values:
                    at = value(data, at)[1]
            return at
    else:

        def skip(data: bytes, at: int, count: int) -> int:
            found = _varints(count * len(fields)).match(data, at)
            if found is None:
                raise ValueError("numbers are cut off")
            return found.end()

    def take(data: bytes, at: int) -> tuple[None, int]:
        while True:
            count, at = _long(data, at)
            if not count:
                return None, at
            if abs(count) > _ITEMS_MAX:
                raise ValueError(f"an array of {count} items")
            if count < 0:
                size, at = _long(data, at)
                at += abs(size)
            else:
                at = skip(data, at, count)

    return take


def _wanted_bytes(ids: frozenset[int]) -> _Take:
    """Return what takes the values of some keys out of an array of pairs of number and bytes."""

    def take(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
        found: dict[int, bytes] = {}
        while True:
            count, at = _long(data, at)
            if not count:
                return found, at
            if abs(count) > _ITEMS_MAX:
                raise ValueError(f"an array of {count} items")
            if count < 0:
                _, at = _long(data, at)
            for _ in range(abs(count)):
                # Nearly all are of one byte.
                key, size = data[at], data[at + 1]
                if key < _MORE and size < _MORE:
                    key, size, at = (key >> 1) ^ -(key & 1), (size >> 1) ^ -(size & 1), at + 2
                else:
                    key, at = _long(data, at)
                    size, at = _long(data, at)
                if size < 0:
                    raise ValueError("bytes of a negative number")
                if key in ids:
                    found[key] = data[at : at + size]
                at += size

    return take


#: A byte of a number that is not its last has this bit.
_MORE: Final = 0x80


@lru_cache(maxsize=256)
def _varints(count: int) -> re.Pattern[bytes]:
    """Return what matches so many encoded numbers."""
    return re.compile(b"(?:[\\x80-\\xff]*[\\x00-\\x7f]){%d}" % count)


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    while byte >= _MORE:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), at + 1


def _string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _raw_bytes(data, at)
    return value.decode(), at


def _raw_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0 or at + size > len(data):
        raise ValueError("bytes are cut off")
    return data[at : at + size], at + size


def _null(data: bytes, at: int) -> tuple[None, int]:
    del data
    return None, at


_PRIMITIVES: Final[Mapping[str, _Take]] = {
    "null": _null,
    "int": _long,
    "long": _long,
    "string": _string,
    "bytes": _raw_bytes,
}
