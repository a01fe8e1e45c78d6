"""What a connection keeps of tables: made once an answer, never outdated, changed by nobody."""

from __future__ import annotations

import copy
import json
import threading

import pytest

from fluss_lab.client.cluster.metadata_cache import Metadata
from fluss_lab.errors import InvalidSchemaError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb

PATH = TablePath("db", "t")
MADE = make_descriptor({"id": "bigint", "name": "string"}, properties={"table.log.ttl": "1d"})


def answer(descriptor=MADE, **ids):
    text = json.dumps(descriptor.to_json()).encode()
    known = {"table_id": 7, "schema_id": 1, "created_time": 5, "modified_time": 6} | ids
    return pb.GetTableInfoResponse(table_json=text, **known)


def test_the_same_answer_gives_the_same_table_and_another_answer_another():
    kept = Metadata()
    first = kept.table_info(PATH, answer())
    assert (first.path, first.table_id, first.schema_id, first.descriptor) == (PATH, 7, 1, MADE)
    assert (first.created_ms, first.modified_ms) == (5, 6)
    assert kept.table_info(PATH, answer()) is first
    for name, value in [("table_id", 8), ("schema_id", 2), ("created_time", 9), ("modified_time", 9)]:
        found = kept.table_info(PATH, answer(**{name: value}))
        assert value in (found.table_id, found.schema_id, found.created_ms, found.modified_ms), name
    wider = make_descriptor({"id": "bigint", "name": "string", "more": "int"})
    assert kept.table_info(PATH, answer(wider)).schema.names == ["id", "name", "more"]
    assert kept.table_info(TablePath("db", "other"), answer()).path == TablePath("db", "other")
    assert kept.table_info(PATH, answer()) == first


def test_a_table_that_is_shared_cannot_be_changed_and_a_copy_can():
    kept = Metadata()
    found = kept.table_info(PATH, answer())
    found.schema.derived["of a room"] = threading.Lock()  # no copy of it can be made
    with pytest.raises(TypeError, match="item assignment"):
        found.descriptor.properties["table.log.ttl"] = "9d"
    own = copy.deepcopy(found)  # as it goes to other processes
    assert own == found
    assert (own.schema.derived, own.is_log_table) == ({}, True)
    own.descriptor.properties["table.log.ttl"] = "9d"
    assert kept.table_info(PATH, answer()).descriptor.properties == {"table.log.ttl": "1d"}


def test_a_long_definition_is_read_anew_and_one_that_is_none_is_refused():
    kept = Metadata()
    long = make_descriptor({f"column_{number}": "bigint" for number in range(1_000)})
    found = kept.table_info(PATH, answer(long))
    assert found.descriptor == long
    assert kept.table_info(PATH, answer(long)) is not found
    for _ in range(2):
        with pytest.raises(InvalidSchemaError):
            kept.table_info(PATH, pb.GetTableInfoResponse(
                table_id=7, schema_id=1, table_json=b"{}", created_time=5, modified_time=6
            ))  # fmt: skip


def test_a_table_that_others_alter_or_make_again_is_seen_at_once(connection, stranger, make_table):
    made = make_table()
    info = connection.table_info(made.path)
    assert connection.table_info(made.path) is info
    stranger.admin().alter_table(made.path, set={"table.log.ttl": "3d"})
    assert connection.table_info(made.path).descriptor.properties == {"table.log.ttl": "3d"}
    stranger.admin().alter_table(made.path, reset=["table.log.ttl"], add_columns={"x": "int"})
    altered = connection.table_info(made.path)
    assert (altered.schema.names, dict(altered.descriptor.properties)) == (["id", "name", "x"], {})
    assert altered.schema.arrow_schema.names == ["id", "name", "x"]
    stranger.admin().drop_table(made.path)
    again = stranger.admin().create_table(made.path, make_descriptor({"id": "bigint", "name": "string"}))
    found = connection.table_info(made.path)
    assert found == again
    assert found.table_id != info.table_id
