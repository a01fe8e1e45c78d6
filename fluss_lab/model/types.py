"""The data types of Fluss tables, and what they are in Arrow.

A `DataType` is a value: it compares, prints (``DECIMAL(10,2)``, ``ARRAY<INT>``) and parses back.
Its Arrow form is the only one in which records travel and rest; what Arrow offers in several forms
(``large_string``, ``dictionary``, ``list_view``) is accepted on the way in and comes back in the one form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidSchemaError
from fluss_lab.model.names import check_name

#: Nesting beyond this is refused: decoders recurse, and upb refuses depth 101.
NESTING_MAX: Final = 16

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
}
_UNITS: Final = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_PRECISION_OF_UNIT: Final = {unit: precision for precision, unit in _UNITS.items()}
_SYNONYMS: Final = {"INTEGER": "INT", "LONG": "BIGINT", "BOOL": "BOOLEAN", "TEXT": "STRING", "VARCHAR": "STRING",
                    "VARBINARY": "BYTES", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "STRUCT": "ROW",
                    "TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP_LTZ"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A named field of a ROW."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class DataType:
    """One Fluss data type.

    Attributes:
        name: The type's root in capitals: ``INT``, ``DECIMAL``, ``ROW``, ...
        parameters: Length of CHAR and BINARY, precision of times, precision and scale of DECIMAL.
        fields: Children: ``element`` of an ARRAY, ``key`` and ``value`` of a MAP, the fields of a ROW.
        nullable: Whether null is a value.
    """

    name: str
    parameters: tuple[int, ...] = ()
    fields: tuple[Field, ...] = field(default=())
    nullable: bool = True

    def __str__(self) -> str:
        if self.name == "ROW":
            inner = "<" + ", ".join(f"{f.name} {f.type}" for f in self.fields) + ">"
        elif self.fields:
            inner = "<" + ", ".join(str(f.type) for f in self.fields) + ">"
        else:
            inner = f"({','.join(map(str, self.parameters))})" if self.parameters else ""
        return f"{self.name}{inner}{'' if self.nullable else ' NOT NULL'}"

    def with_nullable(self, nullable: bool) -> DataType:
        """Return the same type with another nullability."""
        return replace(self, nullable=nullable)

    @property
    def precision(self) -> int:
        """Return the first parameter: precision of a time or DECIMAL, length of CHAR or BINARY."""
        return self.parameters[0]

    def arrow(self) -> pa.DataType:
        """Return the one Arrow type in which values of this type travel."""
        if (simple := _SIMPLE.get(self.name)) is not None:
            return simple
        match self.name:
            case "CHAR":
                return pa.string()
            case "BINARY":
                return pa.binary(self.precision)
            case "DECIMAL":
                return pa.decimal128(*self.parameters)
            case "TIME":
                unit = _unit(self.precision)
                return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)
            case "TIMESTAMP":
                return pa.timestamp(_unit(self.precision))
            case "TIMESTAMP_LTZ":
                return pa.timestamp(_unit(self.precision), "UTC")
            case "ARRAY":
                return pa.list_(self.fields[0].type.arrow_field("element"))
            case "MAP":
                return pa.map_(self.fields[0].type.arrow(), self.fields[1].type.arrow_field("value"))
            case _:
                return pa.struct([f.type.arrow_field(f.name) for f in self.fields])

    def arrow_field(self, name: str) -> pa.Field:
        """Return an Arrow field of this type and nullability."""
        return pa.field(name, self.arrow(), nullable=self.nullable)

    def to_json(self) -> dict[str, Any]:
        """Return the type in Apache Fluss's JSON form."""
        value: dict[str, Any] = {"type": "INTEGER" if self.name == "INT" else self.name}
        value["type"] = {"TIME": "TIME_WITHOUT_TIME_ZONE", "TIMESTAMP": "TIMESTAMP_WITHOUT_TIME_ZONE",
                         "TIMESTAMP_LTZ": "TIMESTAMP_WITH_LOCAL_TIME_ZONE"}.get(self.name, value["type"])  # fmt: skip
        if not self.nullable:
            value["nullable"] = False
        if self.name in {"CHAR", "BINARY"}:
            value["length"] = self.precision
        elif self.parameters:
            value["precision"] = self.precision
            if self.name == "DECIMAL":
                value["scale"] = self.parameters[1]
        if self.name == "ARRAY":
            value["element_type"] = self.fields[0].type.to_json()
        elif self.name == "MAP":
            value["key_type"] = self.fields[0].type.to_json()
            value["value_type"] = self.fields[1].type.to_json()
        elif self.name == "ROW":
            value["fields"] = [{"name": f.name, "field_type": f.type.to_json()} for f in self.fields]
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> DataType:
        """Read the JSON form of `to_json`.

        Raises:
            InvalidSchemaError: The form is not that of a type.
        """
        try:
            return _from_json(value, 0)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidSchemaError(f"not a data type in JSON: {value!r} ({error})") from error

    @staticmethod
    def parse(text: str) -> DataType:
        """Read a type as it is written in DDL, in any case: ``decimal(10, 2)``, ``array<int> not null``.

        Raises:
            InvalidSchemaError: The text is no type; it names the place.
        """
        parser = _Parser(text)
        parsed = parser.type()
        if parser.peek() is not None:
            raise parser.error("expected the end of the type")
        return parsed

    @staticmethod
    def from_arrow(arrow: pa.DataType, nullable: bool = True) -> DataType:
        """Return the Fluss type that holds an Arrow type's values.

        Raises:
            InvalidSchemaError: No Fluss type does (unsigned integers, null, half floats, unions, durations).
        """
        return _from_arrow(arrow, nullable, 0)


def _unit(precision: int) -> str:
    return next(unit for limit, unit in _UNITS.items() if precision <= limit)


def make_type(name: str, parameters: tuple[int, ...] = (), fields: tuple[Field, ...] = ()) -> DataType:
    """Return a checked type with the defaults of Fluss DDL filled in.

    Raises:
        InvalidSchemaError: Unknown name, or parameters out of range.
    """
    name = _SYNONYMS.get(name.upper(), name.upper())
    defaults = {
        "CHAR": (1,),
        "BINARY": (1,),
        "TIME": (0,),
        "TIMESTAMP": (6,),
        "TIMESTAMP_LTZ": (6,),
        "DECIMAL": (10, 0),
    }
    if name in _SIMPLE:
        if name in {"STRING", "BYTES"}:
            parameters = ()  # VARCHAR(n) and VARBINARY(n): Fluss keeps no limit
        if parameters:
            raise InvalidSchemaError(f"type {name} takes no parameters, found {parameters}")
        return DataType(name)
    if name in defaults:
        return DataType(name, _checked_parameters(name, parameters + defaults[name][len(parameters) :]))
    if name in {"ARRAY", "MAP", "ROW"}:
        expected = {"ARRAY": 1, "MAP": 2}.get(name, len(fields) or 1)
        if len(fields) != expected:
            raise InvalidSchemaError(f"type {name} takes {expected} inner type(s), found {len(fields)}")
        return DataType(name, (), fields)
    known = ", ".join(sorted([*_SIMPLE, *defaults, "ARRAY", "MAP", "ROW"]))
    raise InvalidSchemaError(f"unknown data type {name!r}; the data types are {known}")


def _checked_parameters(name: str, parameters: tuple[int, ...]) -> tuple[int, ...]:
    limits = {"CHAR": [(1, 2**31 - 1)], "BINARY": [(1, 2**31 - 1)], "DECIMAL": [(1, 38), (0, 38)]}.get(name, [(0, 9)])
    if len(parameters) != len(limits):
        raise InvalidSchemaError(f"type {name} takes {len(limits)} parameter(s), found {parameters}")
    for value, (low, high) in zip(parameters, limits, strict=True):
        if not low <= value <= high:
            raise InvalidSchemaError(f"type {name}{parameters}: expected a parameter in [{low}, {high}], found {value}")
    if name == "DECIMAL" and parameters[1] > parameters[0]:
        raise InvalidSchemaError(f"type DECIMAL{parameters}: the scale is larger than the precision")
    return parameters


def _from_json(value: Mapping[str, Any], depth: int) -> DataType:
    if depth > NESTING_MAX:
        raise InvalidSchemaError(f"types nest deeper than {NESTING_MAX}")
    name = str(value["type"])
    name = {"TIME_WITHOUT_TIME_ZONE": "TIME", "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
            "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ"}.get(name, name)  # fmt: skip
    parameters: tuple[int, ...] = tuple(int(value[key]) for key in ("length", "precision", "scale") if key in value)
    fields: tuple[Field, ...] = ()
    if "element_type" in value:
        fields = (Field("element", _from_json(value["element_type"], depth + 1)),)
    elif "key_type" in value:
        fields = (
            Field("key", _from_json(value["key_type"], depth + 1)),
            Field("value", _from_json(value["value_type"], depth + 1)),
        )
    elif "fields" in value:
        fields = tuple(
            Field(check_name(f["name"], "field"), _from_json(f["field_type"], depth + 1)) for f in value["fields"]
        )
    return make_type(name, parameters, fields).with_nullable(bool(value.get("nullable", True)))


def is_list(arrow: pa.DataType) -> bool:
    """Return whether an Arrow type has lists of values, in any of Arrow's forms of them."""
    types = pa.types
    forms = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_form(arrow) for is_form in forms)


def _from_arrow(arrow: pa.DataType, nullable: bool, depth: int) -> DataType:
    if depth > NESTING_MAX:
        raise InvalidSchemaError(f"types nest deeper than {NESTING_MAX}")
    types = pa.types
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return _from_arrow(arrow.value_type, nullable, depth + 1)
    for name, simple in _SIMPLE.items():
        if arrow.equals(simple):
            return DataType(name, nullable=nullable)
    if types.is_large_string(arrow) or types.is_string_view(arrow):
        found = DataType("STRING")
    elif types.is_large_binary(arrow) or types.is_binary_view(arrow):
        found = DataType("BYTES")
    elif types.is_fixed_size_binary(arrow):
        found = make_type("BINARY", (arrow.byte_width,))
    elif types.is_decimal(arrow):
        found = make_type("DECIMAL", (arrow.precision, arrow.scale))
    elif types.is_time(arrow):
        found = DataType("TIME", (_PRECISION_OF_UNIT[arrow.unit],))
    elif types.is_timestamp(arrow):
        found = DataType("TIMESTAMP_LTZ" if arrow.tz else "TIMESTAMP", (_PRECISION_OF_UNIT[arrow.unit],))
    elif is_list(arrow):
        inner = arrow.value_field
        found = DataType("ARRAY", (), (Field("element", _from_arrow(inner.type, inner.nullable, depth + 1)),))
    elif types.is_map(arrow):
        key = _from_arrow(arrow.key_type, False, depth + 1)
        item = arrow.item_field
        found = DataType(
            "MAP", (), (Field("key", key), Field("value", _from_arrow(item.type, item.nullable, depth + 1)))
        )
    elif types.is_struct(arrow) and arrow.num_fields:
        fields = tuple(Field(check_name(f.name, "field"), _from_arrow(f.type, f.nullable, depth + 1)) for f in arrow)
        found = DataType("ROW", (), fields)
    else:
        hint = " (use a signed integer or decimal)" if types.is_unsigned_integer(arrow) else ""
        raise InvalidSchemaError(f"no Fluss type holds the Arrow type {arrow}{hint}")
    return found.with_nullable(nullable)


class _Parser:
    """A recursive-descent parser of type texts."""

    _TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|(\d+)|`([^`]+)`|([<>(),:]))")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidSchemaError(f"expected the text of a data type, found {text!r}")
        self.text = text
        self.tokens = list(self._split())
        self.position = 0

    def _split(self) -> Iterator[str]:
        at = 0
        text = self.text.rstrip()
        while at < len(text):
            match = self._TOKEN.match(text, at)
            if match is None:
                raise InvalidSchemaError(f"data type {self.text!r}: unexpected character at {at}: {text[at]!r}")
            yield next(group for group in match.groups() if group is not None)
            at = match.end()

    def error(self, what: str) -> InvalidSchemaError:
        found = self.peek() or "the end"
        return InvalidSchemaError(f"data type {self.text!r}: {what}, found {found!r}")

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise self.error(f"expected {expected!r}" if expected else "expected more")
        self.position += 1
        return token

    def type(self, depth: int = 0) -> DataType:
        if depth > NESTING_MAX:
            raise self.error(f"types nest deeper than {NESTING_MAX}")
        name = _SYNONYMS.get(self.take().upper(), self.tokens[self.position - 1].upper())
        parameters: list[int] = []
        fields: list[Field] = []
        if self.peek() == "(" and name != "ROW":
            self.take("(")
            while True:
                token = self.take()
                if not token.isdigit():
                    raise self.error(f"expected a number, not {token!r}, then")
                parameters.append(int(token))
                if self.take() == ")":
                    break
        elif self.peek() in {"<", "("} and name in {"ARRAY", "MAP", "ROW"}:
            fields = self._fields(name, depth)
        if name == "TIMESTAMP" and (self.peek() or "").upper() in {"WITH", "WITHOUT"}:
            name = self._time_zone()
        made = make_type(name, tuple(parameters), tuple(fields))
        if (self.peek() or "").upper() == "NOT":
            self.take()
            if self.take().upper() != "NULL":
                raise self.error("expected NULL after NOT")
            made = made.with_nullable(False)
        elif (self.peek() or "").upper() == "NULL":
            self.take()
        return made

    def _time_zone(self) -> str:
        words = []
        while (self.peek() or "").upper() in {"WITH", "WITHOUT", "LOCAL", "TIME", "ZONE"}:
            words.append(self.take().upper())
        forms = {"WITH LOCAL TIME ZONE": "TIMESTAMP_LTZ", "WITHOUT TIME ZONE": "TIMESTAMP"}
        if (name := forms.get(" ".join(words))) is None:
            raise self.error("expected WITH LOCAL TIME ZONE or WITHOUT TIME ZONE")
        return name

    def _fields(self, name: str, depth: int) -> list[Field]:
        closing = {"<": ">", "(": ")"}[self.take()]
        fields: list[Field] = []
        names = {"ARRAY": ["element"], "MAP": ["key", "value"]}.get(name)
        while True:
            if names is None:
                field_name = check_name(self.take(), "field")
                if self.peek() == ":":
                    self.take()
            elif len(fields) < len(names):
                field_name = names[len(fields)]
            else:
                raise self.error(f"{name} takes {len(names)} inner type(s)")
            inner = self.type(depth + 1)
            fields.append(Field(field_name, inner.with_nullable(False) if name == "MAP" and not fields else inner))
            if self.peek() == closing:
                self.take()
                return fields
            self.take(",")
