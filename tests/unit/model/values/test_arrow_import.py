"""Arrow data of other libraries that pyarrow does not take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidRecordError, InvalidSchemaError
from fluss_lab.model import make_schema
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.model.values.schema_inference import schema_of
from fluss_lab.workbench.load.load_source import SourceOptions, open_source


class Foreign:
    """Says to have a stream, which is of something else than rows, or none at all."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._stream


@pytest.mark.parametrize("make", [lambda: pa.chunked_array([[1]]).__arrow_c_stream__(), object], ids=["values", "none"])
def test_a_stream_that_is_no_rows_is_refused_by_name(make):
    schema = make_schema({"id": "bigint"})
    for error, use in (
        (InvalidRecordError, lambda rows: record_batches(rows, schema)),
        (InvalidSchemaError, schema_of),
        (InvalidRecordError, lambda rows: open_source(rows, SourceOptions())),
    ):
        with pytest.raises(
            error, match=r"a Foreign with data that Arrow does not take \(.+\): convert its columns first"
        ):
            use(Foreign(make()))


@pytest.mark.parametrize("rows", [pa.array([1]), pa.chunked_array([[1]])], ids=["array", "chunks"])
def test_values_that_are_no_rows_are_refused_by_name(rows):
    with pytest.raises(InvalidRecordError, match=r"Array with data that Arrow does not take"):
        record_batches(rows, make_schema({"id": "bigint"}))


def test_columns_are_series_of_any_library():
    rows = {"id": Foreign(pa.chunked_array([[1, 2]]).__arrow_c_stream__()), "name": ["a", None]}
    (batch,) = record_batches(rows, make_schema({"id": "bigint", "name": "string"}))
    assert batch.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert schema_of({"id": Foreign(pa.chunked_array([[1]]).__arrow_c_stream__())}) == pa.schema([("id", pa.int64())])
    with pytest.raises(InvalidRecordError, match="a Foreign with data that Arrow does not take"):
        record_batches({"id": Foreign(object())}, make_schema({"id": "bigint"}))
