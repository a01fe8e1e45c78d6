"""A filter that went through text is the same filter, whatever it compares with."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model import make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.filter.filter_json import filter_from_json, filter_to_json
from tests.unit.read.types import ALL_TYPES, all_types_rows

SCHEMA = make_descriptor(ALL_TYPES).schema

FILTERS = [
    "id > 5 and not (txt like 'A%' or txt like '%b_') and flag",
    "dbl = 1e308 or dbl is nan or flt > 3 or not (flt <= 0.1)",
    "dec in (1.25, 2, null) or dec not in (3, 4)",
    "wide = 12345678901234567890123456789012.12345",
    "ts > '2013-01-01 00:00:00.000001' and at <= '2013-01-01T00:00:00Z' and at3 is not null",
    "bin = X'00ff' or fixed != X'0a00'",
    "day < '2013-01-01' or tod0 > '12:00:00' or tod < '00:00:00.000001'",
    "rec.x = 3 and rec.y is null",
    "__offset > 5 and __bucket in (0, 1) and __timestamp < '2030-01-01T00:00:00Z'",
    "txt = 'é\"''\\ \n 😀'",
    "tiny < 1000",
    "1 = num or true",
    pc.field("txt").isin(["a", "b"]) & (pc.field("dbl") < float("inf")),
    pc.field("dbl") > float("-inf"),
    pc.field("id") + 1 > 5,
    ~(pc.field("rec", "x") + 1 > 5) & (pc.utf8_slice_codeunits(pc.field("txt"), 0, 2) == "x1"),
    "not (num + small > 5 or upper(txt) like 'X%') or flt = 'Infinity'",
]


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_a_filter_goes_through_text_and_is_the_same(where):
    made = compile_filter(where, SCHEMA)
    found = filter_from_json(filter_to_json(made), SCHEMA)
    assert found.predicate == made.predicate
    assert (found.text, found.columns) == (made.text, made.columns)
    info = type("Info", (), {"schema": SCHEMA})
    rows = all_types_rows(info, 40)
    rng = random.Random(1)
    rows = rows.append_column("__bucket", pa.array([rng.randrange(3) for _ in range(40)], pa.int32()))
    rows = rows.append_column("__offset", pa.array(range(40), pa.int64()))
    rows = rows.append_column("__timestamp", pa.array(range(40), pa.timestamp("us", "UTC")))
    assert rows.filter(found.expression)["id"].equals(rows.filter(made.expression)["id"])


def test_text_that_is_no_filter_of_the_table_is_refused():
    text = filter_to_json(compile_filter("num = 1", SCHEMA))
    other = make_descriptor({"id": "int"}).schema
    for given, schema in (("", SCHEMA), ("{}", SCHEMA), (text.replace("compare", "compute"), SCHEMA), (text, other)):
        with pytest.raises(InvalidRequestError, match="filter of this table"):
            filter_from_json(given, schema)
