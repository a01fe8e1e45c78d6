"""NOT NULL fields of rows that are null: they are cast whatever they are, and written."""

import pyarrow as pa
import pytest

from fluss_lab.model.values.required_fields import cast_column


def test_a_value_of_another_length_that_is_there_is_refused():
    source = pa.struct([pa.field("x", pa.binary(), nullable=False)])
    target = pa.struct([pa.field("x", pa.binary(3), nullable=False)])
    column = pa.chunked_array([pa.array([{"x": b"abc"}, None, {"x": b""}], source)])
    with pytest.raises(pa.ArrowInvalid, match="widths must match"):
        cast_column(column, target)
    assert cast_column(column.slice(0, 2), target).to_pylist() == [{"x": b"abc"}, None]


@pytest.mark.parametrize("large", [False, True])
def test_what_others_write_in_large_types_is_cast_too(large):
    of_list, of_bytes = (pa.large_list, pa.large_binary()) if large else (pa.list_, pa.binary())

    def made(bytes_type):
        inner = pa.struct([pa.field("x", bytes_type, nullable=False)])
        return pa.struct([pa.field("l", of_list(inner), nullable=False), pa.field("r", inner)])

    values = [{"l": [{"x": b"abc"}, None], "r": {"x": b"abc"}}, None, {"l": [], "r": None}]
    found = cast_column(pa.array(values, made(of_bytes)), made(pa.binary(3)))
    assert found.to_pylist() == values
    assert found.type == made(pa.binary(3))
