"""Avro files taken apart and put together again as they were, of any writer: any schema, header and values kept.

Values of manifests are decoded by pyiceberg (see `metadata_files`); this module has what pyiceberg has not. Damage: pyiceberg
returns the values before a cut as if these were all; here a file is taken apart to its end, and its seal compared.
Relocation: single values change, and whatever this release does not know of stays. Source: Apache Avro 1.11 specification,
"Object Container Files", "Binary Encoding".
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.files.file_seals import AVRO_KEY, check_avro, seal_avro
from fluss_lab.lake.iceberg.files.lake_errors import REMEDY

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_SCHEMA_KEY: Final = "avro.schema"
_CODEC_KEY: Final = "avro.codec"
_RAW_DEFLATE: Final = -15
#: What taking apart bytes that are no Avro file ends in.
_DAMAGE: Final = (
    LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError, OSError, struct.error,
    zlib.error, pa.ArrowException,
)  # fmt: skip
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A file's header and values. Records are dicts by field name; a union's value is a pair: branch, and value in it.

    Attributes:
        header: Metadata of the file, schema and codec among it.
        sync: What separates its blocks.
        blocks: The values, block by block.
    """

    header: Mapping[str, bytes]
    sync: bytes
    blocks: list[list[Any]]

    @property
    def schema(self) -> Any:
        """Return the schema as JSON."""
        return json.loads(self.header[_SCHEMA_KEY])

    @property
    def _codec(self) -> str:
        return self.header.get(_CODEC_KEY, b"null").decode()

    @staticmethod
    def parse(data: bytes, what: str) -> AvroFile:
        """Read a file's bytes.

        Args:
            data: All of them.
            what: Named in messages.

        Raises:
            CorruptDataError: They are no Avro file.
            UnsupportedError: They are compressed otherwise than by null, deflate, snappy or zstandard.
        """
        try:
            return _parse(data)
        except _DAMAGE as error:
            raise CorruptDataError(f"{what}: not an Avro file: {error!r}; {REMEDY}") from error

    def to_bytes(self) -> bytes:
        """Return the file's bytes: those that were read, when nothing was changed and the codec is deterministic.

        A file that was sealed is sealed anew.
        """
        out = _file_start(self.header, self.sync)
        form = _Form(self.schema)
        for values in self.blocks:
            body = bytearray()
            for value in values:
                form.put(body, form.schema, value)
            _put_block(out, len(values), _compress(bytes(body), self._codec), self.sync)
        return seal_avro(bytes(out)) if AVRO_KEY in self.header else bytes(out)


@dataclass(frozen=True, slots=True)
class RawBlocks:
    """A file's header, and its blocks as they are encoded.

    Attributes:
        header: Metadata of the file, schema and codec among it.
        sync: What separates its blocks.
        blocks: How many values each has, and its bytes, no longer compressed.
    """

    header: Mapping[str, bytes]
    sync: bytes
    blocks: list[tuple[int, bytes]]

    @staticmethod
    def parse(data: bytes, what: str) -> RawBlocks:
        """Take a file apart without decoding its values.

        Raises:
            CorruptDataError, UnsupportedError: As `AvroFile.parse`.
        """
        try:
            return RawBlocks(*_raw(data))
        except _DAMAGE as error:
            raise CorruptDataError(f"{what}: not an Avro file: {error!r}; {REMEDY}") from error

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(count for count, _ in self.blocks)

    def to_plain_bytes(self) -> bytes:
        """Return a file of the same values that is not compressed, so that any reader of Avro takes it."""
        out = _file_start({**self.header, _CODEC_KEY: b"null"}, self.sync)
        for count, values in self.blocks:
            _put_block(out, count, values, self.sync)
        return bytes(out)


def _header(data: bytes) -> tuple[dict[str, bytes], bytes, _Reader]:
    """Return the header, what separates blocks, and what reads on from there."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"expected it to begin with {_MAGIC!r}, found {data[:4]!r}")
    reader = _Reader(data, len(_MAGIC))
    header: dict[str, bytes] = {}
    while count := reader.count():
        for _ in range(count):
            key = reader.take_bytes().decode()
            header[key] = reader.take_bytes()
    return header, reader.take(_SYNC_BYTES), reader


def _raw(data: bytes) -> tuple[dict[str, bytes], bytes, list[tuple[int, bytes]]]:
    """Return the header, what separates blocks, and the blocks."""
    header, sync, reader = _header(data)
    codec = header.get(_CODEC_KEY, b"null").decode()
    blocks = []
    while reader.position < len(data):
        number = reader.long()
        blocks.append((number, _decompress(reader.take_bytes(), codec)))
        if reader.take(_SYNC_BYTES) != sync:
            raise ValueError(f"a block does not end where it should, at byte {reader.position}")
    check_avro(data, header, sync)
    return header, sync, blocks


def _parse(data: bytes) -> AvroFile:
    header, sync, raw = _raw(data)
    form = _Form(json.loads(header[_SCHEMA_KEY]))
    blocks = []
    for number, values in raw:
        inner = _Reader(values, 0)
        blocks.append([form.take(inner, form.schema) for _ in range(number)])
        if inner.position != len(inner.data):
            raise ValueError(f"a block has {len(inner.data) - inner.position} bytes that are no value's")
    return AvroFile(header, sync, blocks)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise ValueError(f"{size} bytes at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    def count(self) -> int:
        """Return the number of items in the next block of an array or map; 0 at its end."""
        number = self.long()
        if number < 0:
            self.long()  # the block's size in bytes
        return abs(number)

    def take_bytes(self) -> bytes:
        return self.take(self.long())


class _Form:
    """Takes values out of bytes and puts them back, by a schema."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._named: dict[str, Any] = {}
        self._learn(schema)

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for inner in (schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))):
                self._learn(inner)
            if isinstance(schema["type"], dict | list):
                self._learn(schema["type"])

    def take(self, reader: _Reader, schema: Any) -> Any:
        if isinstance(schema, list):
            branch = reader.long()
            return branch, self.take(reader, schema[branch])
        if isinstance(schema, str):
            return (
                self._take_primitive(reader, schema)
                if schema in _PRIMITIVES
                else self.take(reader, self._named_form(schema))
            )
        match schema["type"]:
            case "record":
                return {each["name"]: self.take(reader, each["type"]) for each in schema["fields"]}
            case "array":
                return [self.take(reader, schema["items"]) for count in iter(reader.count, 0) for _ in range(count)]
            case "map":
                return [
                    (reader.take_bytes(), self.take(reader, schema["values"]))
                    for count in iter(reader.count, 0)
                    for _ in range(count)
                ]
            case "fixed":
                return reader.take(schema["size"])
            case "enum":
                return reader.long()
            case inner:
                return self.take(reader, inner)

    def _take_primitive(self, reader: _Reader, name: str) -> Any:
        match name:
            case "null":
                return None
            case "boolean":
                return reader.take(1)
            case "int" | "long":
                return reader.long()
            case "float":
                return reader.take(4)
            case "double":
                return reader.take(8)
            case _:
                return reader.take_bytes()

    def put(self, out: bytearray, schema: Any, value: Any) -> None:
        if isinstance(schema, list):
            branch, inner = value
            _put_long(out, branch)
            self.put(out, schema[branch], inner)
            return
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                _put_primitive(out, schema, value)
            else:
                self.put(out, self._named_form(schema), value)
            return
        match schema["type"]:
            case "record":
                for each in schema["fields"]:
                    self.put(out, each["type"], value[each["name"]])
            case "array":
                _put_items(out, value, lambda item: self.put(out, schema["items"], item))
            case "map":
                _put_items(out, value, lambda item: self._put_pair(out, schema["values"], *item))
            case "fixed":
                out += value
            case "enum":
                _put_long(out, value)
            case inner:
                self.put(out, inner, value)

    def _put_pair(self, out: bytearray, schema: Any, key: bytes, value: Any) -> None:
        _put_bytes(out, key)
        self.put(out, schema, value)

    def _named_form(self, name: str) -> Any:
        return self._named[name.rpartition(".")[2]] if name not in self._named else self._named[name]


def _file_start(header: Mapping[str, bytes], sync: bytes) -> bytearray:
    """Return what comes before the first block."""
    out = bytearray(_MAGIC)
    _put_long(out, len(header))
    for key, value in header.items():
        _put_bytes(out, key.encode())
        _put_bytes(out, value)
    out += b"\x00" + sync
    return out


def _put_block(out: bytearray, count: int, packed: bytes, sync: bytes) -> None:
    _put_long(out, count)
    _put_bytes(out, packed)
    out += sync


def _put_items(out: bytearray, items: list[Any], put: Callable[[Any], None]) -> None:
    if items:
        _put_long(out, len(items))
        for item in items:
            put(item)
    out += b"\x00"


def _put_primitive(out: bytearray, name: str, value: Any) -> None:
    if name in {"int", "long"}:
        _put_long(out, value)
    elif name in {"bytes", "string"}:
        _put_bytes(out, value)
    elif name != "null":
        out += value


def _put_long(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, value: bytes) -> None:
    _put_long(out, len(value))
    out += value


def _decompress(data: bytes, codec: str) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            return zlib.decompress(data, _RAW_DEFLATE)
        case "zstandard":
            with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
                return bytes(stream.read())
        case "snappy":
            return bytes(pa.Codec("snappy").decompress(data[:-4], decompressed_size=_snappy_size(data)))
        case _:
            raise UnsupportedError(f"Avro codec {codec!r}: expected null, deflate, snappy or zstandard")


def _snappy_size(data: bytes) -> int:
    size = shift = position = 0
    while True:
        byte = data[position]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        position, shift = position + 1, shift + 7


def _compress(data: bytes, codec: str) -> bytes:
    match codec:
        case "deflate":
            packer = zlib.compressobj(wbits=_RAW_DEFLATE)
            return packer.compress(data) + packer.flush()
        case "zstandard":
            return bytes(pa.Codec("zstd").compress(data, asbytes=True))
        case "snappy":
            return bytes(pa.Codec("snappy").compress(data, asbytes=True)) + struct.pack(">I", zlib.crc32(data))
        case _:
            return data
