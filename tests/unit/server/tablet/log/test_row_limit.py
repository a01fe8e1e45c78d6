"""The largest row, as a server sees it: whatever a client sends, what is taken can be changed and read afterwards."""

import pyarrow as pa
import pytest

from fluss_lab.errors import RecordTooLargeError, error_from_code
from fluss_lab.model.types import DataType
from fluss_lab.records import encode
from fluss_lab.records.row_sizes import RowLimit, around_bytes, value_bytes
from tests.unit.server.tablet.kv_kit import BEFORE, DELETE, KvTablet, joined
from tests.unit.server.tablet.tablet_kit import SCHEMA, Tablet

REQUEST_BYTES = 1 << 20
SIZES = {"server__request_size_max": "1mb"}


def _wide(schema: pa.Schema, *, keyed: bool, more: int = 0) -> dict[str, object]:
    """A row exactly as large as may be, or larger."""
    row = {name: 1 if pa.types.is_integer(schema.field(name).type) else "" for name in schema.names}
    arrays = [pa.array([row[field.name]], field.type) for field in schema]
    size = around_bytes(schema) + sum(int(value_bytes(array)[0]) for array in arrays)
    return {**row, "name": "x" * (RowLimit.of(REQUEST_BYTES, keyed=keyed).bytes_max - size + more)}


@pytest.fixture
def tablet(tmp_path):
    service = KvTablet(tmp_path, **SIZES).open(0)
    yield service
    service.service.close()


def test_a_row_of_the_limit_can_be_updated_deleted_and_looked_up(tablet):
    row = _wide(tablet.schema, keyed=True)
    assert tablet.put([row]) == (0, 1)
    assert tablet.put([{**row, "score": 2}]) == (1, 3)
    assert tablet.put([{"id": 1, "score": 3}], columns=["id", "score"]) == (3, 5)
    assert tablet.lookup(1) == [{**row, "score": 3}]
    assert tablet.scan()[0] == [{**row, "score": 3, "__offset": 4, "__timestamp": tablet.clock.now_ms()}]
    assert tablet.delete(1) == (5, 6)
    assert [event.change for event in tablet.changelog()].count(BEFORE) == 2
    assert tablet.changelog()[-1].change == DELETE


def test_a_row_over_the_limit_is_not_put(tablet):
    row = _wide(tablet.schema, keyed=True, more=1)
    with pytest.raises(
        RecordTooLargeError, match=r"a row of 458,753 bytes, expected at most 458,752 .*request-size-max"
    ):
        tablet.put([{**row, "id": 2, "name": "small"}, row])
    tablet.put([{"id": 1, "name": row["name"][1:]}])
    with pytest.raises(RecordTooLargeError, match="a row of 458,753 bytes"):
        tablet.put([row])
    assert len(tablet.changelog()) == 1


def test_a_row_over_the_limit_is_not_appended(tmp_path):
    tablet = Tablet(tmp_path, **SIZES)
    tablet.open(0)

    def append(more: int):
        row = _wide(SCHEMA, keyed=False, more=more)
        rows = pa.RecordBatch.from_pylist([row], SCHEMA)
        return tablet.produce({0: joined(encode(rows, schema_id=1))})[0]

    answer = append(1)
    error = error_from_code(answer.error_code, answer.error_message)
    assert isinstance(error, RecordTooLargeError)
    assert "a row of 917,505 bytes, expected at most 917,504 in a table without a primary key" in str(error)
    assert not append(0).HasField("error_code")
    assert tablet.describe()[0].log_end_offset == 1
    tablet.service.close()


def test_a_row_over_the_limit_of_today_can_be_deleted_and_made_smaller(tablet):
    row = _wide(tablet.schema, keyed=True)
    tablet.put([row, {**row, "id": 2, "name": ""}])
    tablet.put([{**row, "id": 2}])
    today = tablet.reopen(server__request_size_max="512kb")
    with pytest.raises(RecordTooLargeError, match="a row of 458,752 bytes, expected at most 229,376"):
        today.put([{**row, "id": 3}])
    today.put([{"id": 1, "name": "small", "score": 1}])
    today.delete(2)
    assert today.lookup(1, 2) == [{"id": 1, "name": "small", "score": 1}, None]
    today.service.close()


def test_inner_columns_count():
    inner = ", ".join(f"f{index} int" for index in range(50))
    assert around_bytes(pa.schema([("r", DataType.parse(f"row<{inner}>").arrow())])) == 512 + 51 * 256
    assert around_bytes(pa.schema([("a", DataType.parse("array<array<int>>").arrow())])) == 512 + 3 * 256


@pytest.mark.parametrize(
    ("request_bytes", "log", "keyed"), [(32 << 20, 28 << 20, 14 << 20), (1 << 30, 1 << 27, 1 << 27)]
)
def test_the_limits_are_those_that_the_documents_name(request_bytes, log, keyed):
    assert RowLimit.of(request_bytes, keyed=False).bytes_max == log
    assert RowLimit.of(request_bytes, keyed=True).bytes_max == keyed


@pytest.mark.parametrize("fields", [1, 40])
def test_what_is_sent_and_logged_of_the_largest_row_is_within_the_request(fields):
    """Twice the row, as an update is logged, and once, as it is appended."""
    for keyed, rows in ((False, 1), (True, 2)):
        schema = pa.schema([(f"c{index}", pa.binary()) for index in range(fields)])
        limit = RowLimit.of(REQUEST_BYTES, keyed=keyed).bytes_max
        each = (limit - around_bytes(schema)) // fields - 4
        batch = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names, b"x" * each)] * rows, schema)
        RowLimit.of(REQUEST_BYTES, keyed=keyed).check(batch)
        assert len(joined(encode(batch, schema_id=1))) < REQUEST_BYTES
