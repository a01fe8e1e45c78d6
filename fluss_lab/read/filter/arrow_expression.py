"""Arrow expressions taken apart, by the form in which Arrow hands them from process to process.

An expression cannot be looked into, but Arrow writes it out: a file of one row that holds the literals and options, whose
metadata lists, in order, what the expression is made of (``call`` equal, ``field_ref`` k, ``literal`` 0, ``end`` equal).
Substrait's form is not used: `to_substrait` refuses casts that may fail (``k == 5.5`` on INT, a TIME beside a literal), `match_like`,
`utf8_upper` and most other functions, drops options, and does not end within a minute for an OR of 50 terms.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError

#: What an expression may be made of: nodes, and bytes when written out.
PARTS_MAX: Final = 1_000_000
#: Of the thread that asks Arrow to write an expression out: it goes down into it, some 100 bytes of stack a level. A chain
#: of 100,000 would end the process on a usual stack of 8 MB.
_STACK_BYTES: Final = 256 * 1024 * 1024
_STACK_LOCK: Final = threading.Lock()
_MAGIC: Final = b"ARROW1\x00\x00"
_CONTINUATION: Final = 0xFFFFFFFF
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Node:
    """A part of an expression.

    Attributes:
        name: The function; "" for a field or literal.
        arguments: Of the function.
        path: Of a field: names from the outside in; else empty.
        literal: Of a literal.
        options: Of the function, by name; None without.
        start: Where the part begins among the written tokens.
        stop: Where it ends.
    """

    name: str
    arguments: list[Node]
    path: tuple[str, ...]
    literal: pa.Scalar | None
    options: dict[str, Any] | None
    start: int
    stop: int = 0


class ExpressionForm:
    """An expression as Arrow wrote it out, as a tree whose parts can be made expressions again."""

    def __init__(self, where: pc.Expression) -> None:
        try:
            self.text, form = _on_a_deep_stack(lambda: (str(where), form_of(where)))
        except (pa.ArrowException, NotImplementedError) as error:
            raise InvalidFilterError(
                f"where: Arrow cannot write this expression out ({error}); columns are named, not numbered: use "
                "pc.field('name')"
            ) from error
        self._tokens = _metadata(form)
        if len(self._tokens) > PARTS_MAX:
            raise InvalidFilterError(
                f"where: an expression of {len(self._tokens)} parts: expected at most {PARTS_MAX}; use isin for many values"
            )
        with pa.ipc.open_file(pa.BufferReader(form)) as file:
            self._literals = file.get_batch(0)
        self.root = self._tree()

    def part(self, node: Node) -> bytes:
        """Return the form of a part; `expression_of` makes it an expression."""
        tokens, columns, fields = [], [], []
        for key, value in self._tokens[node.start : node.stop]:
            if key in {"literal", "options"}:
                place = int(value)
                columns.append(self._literals.column(place))
                fields.append(self._literals.schema.field(place))
                value = str(len(columns) - 1)  # noqa: PLW2901 - the place among this part's own
            tokens.append((key, value))
        return _write_file(tokens, columns, fields)

    def _tree(self) -> Node:
        """Read the tokens into a tree, without going down: an expression may be a chain of any length."""
        outer = Node("", [], (), None, None, 0)
        open_calls = [outer]
        tokens = self._tokens
        at = 0
        while at < len(tokens):
            key, value = tokens[at]
            call = open_calls[-1]
            match key:
                case "call":
                    node = Node(value, [], (), None, None, at)
                    call.arguments.append(node)
                    open_calls.append(node)
                case "options":
                    call.options = self._literals.column(int(value))[0]
                case "end":
                    call.stop = at + 1
                    open_calls.pop()
                case "literal":
                    call.arguments.append(Node("", [], (), self._literals.column(int(value))[0], None, at, at + 1))
                case "field_ref":
                    call.arguments.append(Node("", [], (value,), None, None, at, at + 1))
                case "nested_field_ref":
                    names = tuple(name for _, name in tokens[at + 1 : at + 1 + int(value)])
                    call.arguments.append(Node("", [], names, None, None, at, at + 1 + int(value)))
                    at += int(value)
                case _:
                    raise InvalidFilterError(f"where: this pyarrow writes expressions with an unknown part {key!r}")
            at += 1
        if len(open_calls) != 1 or len(outer.arguments) != 1:
            raise InvalidFilterError("where: this pyarrow writes expressions in an unknown form")
        return outer.arguments[0]


def form_of(expression: pc.Expression) -> bytes:
    """Return an expression as bytes: the ones in which Arrow hands it from process to process."""
    _, (buffer,) = expression.__reduce__()
    return bytes(buffer)


def expression_of(form: bytes) -> pc.Expression:
    """Return the expression of a form.

    Raises:
        pyarrow.ArrowException: The bytes are no form.
    """
    restore, _ = pc.scalar(True).__reduce__()
    return restore(pa.py_buffer(form))


def _on_a_deep_stack(work: Callable[[], _Result]) -> _Result:
    done: list[_Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # raised again by the caller
            failed.append(error)

    with _STACK_LOCK:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="fluss-lab-expression", daemon=True)
            thread.start()
        except RuntimeError:  # no room for such a stack: a limit of the process
            return work()
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


# -- the written file -------------------------------------------------------------------------------------------------


def _write_file(tokens: list[tuple[str, str]], columns: list[pa.Array], fields: list[pa.Field]) -> bytes:
    """Return a file of one row whose schema's metadata is the tokens, in order, names more than once."""
    metadata = pa.KeyValueMetadata([(key.encode(), value.encode()) for key, value in tokens])
    named = [field.with_name(str(place)) for place, field in enumerate(fields)]
    schema = pa.schema(named, metadata=metadata)
    if columns:
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    else:
        batch = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _metadata(form: bytes) -> list[tuple[str, str]]:
    """Return the metadata of a file's schema in order; pyarrow gives it as a dictionary, which has each name once.

    A file begins with its magic and a message: a flatbuffer of format/Message.fbs and format/Schema.fbs.
    """
    try:
        if form[:8] != _MAGIC or struct.unpack_from("<I", form, 8)[0] != _CONTINUATION:
            raise InvalidFilterError("where: this pyarrow writes expressions in an unknown form")
        flat = _Flat(form[16 : 16 + struct.unpack_from("<i", form, 12)[0]])
        schema = flat.table(flat.table(0, None), 2)
        return [(flat.text(pair, 0), flat.text(pair, 1)) for pair in flat.vector(schema, 2)]
    except struct.error as error:
        raise InvalidFilterError(f"where: this pyarrow writes expressions in an unknown form ({error})") from error


class _Flat:
    """Reads tables of a flatbuffer: a table begins with its distance from the list of where its fields are."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def table(self, at: int, field: int | None) -> int:
        """Return where the table is that a field of a table points to; None: that the buffer begins with."""
        place = at if field is None else self._field(at, field)
        return place + int(struct.unpack_from("<I", self._data, place)[0])

    def vector(self, at: int, field: int) -> list[int]:
        """Return where the tables of a list are; an absent list is empty."""
        if not (place := self._field(at, field)):
            return []
        start = self.table(place, None)
        count = int(struct.unpack_from("<I", self._data, start)[0])
        return [self.table(start + 4 + 4 * number, None) for number in range(count)]

    def text(self, at: int, field: int) -> str:
        if not (place := self._field(at, field)):
            return ""
        start = self.table(place, None)
        length = int(struct.unpack_from("<I", self._data, start)[0])
        return self._data[start + 4 : start + 4 + length].decode()

    def _field(self, at: int, field: int) -> int:
        fields = at - int(struct.unpack_from("<i", self._data, at)[0])
        size = int(struct.unpack_from("<H", self._data, fields)[0])
        offset = struct.unpack_from("<H", self._data, fields + 4 + 2 * field)[0] if 6 + 2 * field <= size else 0
        return at + int(offset) if offset else 0
