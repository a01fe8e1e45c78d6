"""Filters as JSON, for readers in other processes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model import Schema
from fluss_lab.read.filter import predicates as tree
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES, Filter, filter_of


def filter_to_json(where: Filter) -> str:
    """Return a filter as text that `filter_from_json` reads. Literals keep their types and every bit."""
    literals: list[pa.Scalar] = []
    node = _node(where.predicate, literals)
    return json.dumps({"text": where.text, "predicate": node, "literals": _literals_text(literals)})


def filter_from_json(text: str, schema: Schema) -> Filter:
    """Return the filter that `filter_to_json` wrote.

    Args:
        text: Of it.
        schema: The table's: with the columns that the filter names, in the types that they had.

    Raises:
        InvalidRequestError: The text is none, or names what the schema has not.
    """
    try:
        value = json.loads(text)
        types = {field.name: field.type for field in schema.arrow_schema} | SYSTEM_TYPES
        node = _tree(value["predicate"], types, _literals(value["literals"]))
        return filter_of(node, str(value["text"]))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, pa.ArrowException) as error:
        raise InvalidRequestError(f"not a filter of this table in JSON ({error!r}): {text[:100]!r}") from error


# -- trees ------------------------------------------------------------------------------------------------------------


def _node(node: tree.Predicate, literals: list[pa.Scalar]) -> list[Any]:
    """Return a node as a list; its literals are appended, and stand in it by their places."""

    def place(scalar: pa.Scalar) -> int:
        literals.append(scalar)
        return len(literals) - 1

    match node:
        case tree.Constant():
            return ["constant", node.value]
        case tree.Junction():
            return ["all" if node.all_of else "any", [_node(part, literals) for part in node.parts]]
        case tree.Compare():
            return ["compare", node.column.path, node.operator, place(node.value)]
        case tree.Among():
            return ["among", node.column.path, [place(each) for each in node.values], node.with_null, node.negated]
        case tree.Null():
            return ["null", node.column.path, node.negated]
        case tree.NotANumber():
            return ["nan", node.column.path, node.negated]
        case tree.Like():
            return ["like", node.column.path, node.pattern, node.negated]
        case tree.Applied():
            form = base64.b64encode(node.form).decode()
            return ["applied", [each.path for each in node.columns], form, node.negated]


def _tree(value: Sequence[Any], types: Mapping[str, pa.DataType], literals: Sequence[pa.Scalar]) -> tree.Predicate:
    kind = value[0]
    if kind == "constant":
        return tree.Constant(None if value[1] is None else bool(value[1]))
    if kind in {"all", "any"}:
        return tree.Junction(kind == "all", tuple(_tree(part, types, literals) for part in value[1]))
    if kind == "applied":
        columns = tuple(_reference(path, types) for path in value[1])
        return tree.Applied(base64.b64decode(value[2], validate=True), columns, bool(value[3]))
    column = _reference(value[1], types)
    match kind:
        case "compare":
            return tree.Compare(column, str(value[2]), literals[value[3]])
        case "among":
            return tree.Among(column, tuple(literals[each] for each in value[2]), bool(value[3]), bool(value[4]))
        case "null":
            return tree.Null(column, bool(value[2]))
        case "nan":
            return tree.NotANumber(column, bool(value[2]))
        case "like":
            return tree.Like(column, str(value[2]), bool(value[3]))
    raise ValueError(f"a node of kind {kind!r}")


def _reference(path: Sequence[Any], types: Mapping[str, pa.DataType]) -> tree.Reference:
    dtype = types[path[0]]
    for name in path[1:]:
        dtype = dtype.field(name).type
    return tree.Reference(tuple(str(name) for name in path), dtype)


def _literals_text(literals: Sequence[pa.Scalar]) -> str:
    """Return literals as an Arrow stream of one row: JSON has neither their types nor infinities."""
    names = [str(place) for place in range(len(literals))]
    row = pa.record_batch([pa.array([each], each.type) for each in literals], names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return base64.b64encode(sink.getvalue()).decode()


def _literals(text: str) -> list[pa.Scalar]:
    with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as stream:
        table = stream.read_all()
    return [column[0] for column in table.columns]
