"""Tables as sources of lookup joins: what can be joined on, which mode is chosen and why, and at which point."""

import pytest

from fluss_lab.errors import (
    InvalidPropertyError,
    InvalidRequestError,
    InvalidSchemaError,
    UnsupportedError,
)
from fluss_lab.lookup import LookupJoinContext
from fluss_lab.lookup.full_lookup import FullLookup
from fluss_lab.lookup.portable import function_of, portable_text
from fluss_lab.lookup.remote_lookup import RemoteLookup
from fluss_lab.lookup.table_lookup import FlussLookupSource
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.read_point import ReadPoint
from tests.unit.lookup.lookup_kit import found, key_batch, opened, planned, source_of, wanted


def row(key, name="a"):
    return {"id": key, "name": name, "x": 1.5}


def context(*keys, columns=("name",), **more):
    return LookupJoinContext(keys, columns, **more)


def test_a_source_says_what_it_is(make_keyed):
    table = make_keyed("pk_parts")
    source = source_of(table, "auto")
    assert source.name == str(table.history.path)
    assert source.schema.names == table.history.columns
    assert source.bucket_keys() == ("id",)
    assert source.is_unique(("p", "id"))
    assert not source.is_unique(("id",))
    assert source.get_partitioner().buckets == table.kind.buckets


def test_a_function_travels_as_text_without_the_token(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    source = source_of(table, "full")
    function = source.lookup_function(context("id"))
    token = table.connection.address.token
    text = portable_text(function)
    assert token
    assert token not in text
    assert function.secret() == token
    made = function_of(text)
    assert made.plan == function.plan
    assert made.secret() == ""
    info = table.history.info
    assert made.identity() == f"{info.table_id} made at {info.created_ms}"


def test_a_static_join_has_the_point_of_its_planning_and_a_stream_one_for_each_micro_batch(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    static, stream = (planned(table, "full", ("id",), stream=each) for each in (False, True))
    before = table.keep()
    keys = key_batch(table, ("id",), [{"id": 1}, {"id": 2}])
    table.upsert([row(2)])
    with opened(static, None):
        assert found(static, keys) == wanted(table, before, keys, static.plan.columns)
    assert static.present_point() == static.plan.point
    with pytest.raises(InvalidRequestError, match="expected a read point, found none"), opened(stream, None):
        pass
    assert ReadPoint.from_json(stream.present_point()).stops == table.reader().read_point().stops
    fixed = planned(table, "full", ("id",), point=before.asked["read_point"])
    assert ReadPoint.from_json(fixed.present_point()) == before.asked["read_point"]


def how(source, function):
    """Return how a function looks rows up, less the moment."""
    text, moment = source.describe(function).rsplit("; ", 1)
    point = function.plan.point
    at = "a read point of each micro-batch"
    if point is not None:
        at = f"the read point of {format_moment(ReadPoint.from_json(point).moment_ms)}"
    assert moment == f"at {at}"
    return text


def test_the_mode_is_chosen_by_size(make_keyed, lookup_cluster):
    table = make_keyed()
    table.upsert([row(key) for key in range(10)])
    table.upsert([row(key, "new") for key in range(10)])

    def chosen(*keys, parallelism=None, **options):
        source = source_of(
            table, "auto", options={f"lookup.{name.replace('_', '-')}": n for name, n in options.items()}
        )
        function = source.lookup_function(
            context(*keys, is_custom_shuffle_enabled=parallelism is not None, parallelism=parallelism)
        )
        return type(function), how(source, function)

    most = "full.max-rows"
    assert chosen("id") == (FullLookup, "full: at most 30 rows a task")
    assert chosen("id", **{most: 10}) == (FullLookup, "full: at most 10 rows a task")
    assert chosen("id", **{most: 9}) == (RemoteLookup, "remote: 10 rows a task")
    assert chosen("id", parallelism=2, **{most: 5}) == (FullLookup, "full: at most 5 rows a task")
    assert chosen("id", parallelism=2, **{most: 4})[0] is RemoteLookup
    assert chosen("name", **{most: 0}) == (
        FullLookup, "full: the keys are not those that servers look rows up by",
    )  # fmt: skip
    behind = {"lookup.full.max-rows": 0, "lookup.remote.max-changes": 3}
    point = table.keep().asked["read_point"]
    table.upsert([row(key, "newer") for key in range(2)])
    source = source_of(table, "auto", point=point, options=behind)
    assert how(source, source.lookup_function(context("id"))) == "full: 4 changes since the read point"
    parts = make_keyed("pk_parts")
    parts.upsert([row(1) | {"p": "p1"}, row(1) | {"p": "p2"}])
    parts.drop_partition("p1")
    source = source_of(parts, "auto", options={"lookup.full.max-rows": 0})
    assert how(source, source.lookup_function(context("id"))) == "full: the lake alone has a partition"


def test_columns_are_those_of_the_point(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    point = table.reader().read_point()
    table.history.add_column()
    assert "added0" in source_of(table, "full").schema.names
    source = source_of(table, "full", point=point)
    assert "added0" not in source.schema.names
    with pytest.raises(InvalidSchemaError):
        source.lookup_function(context("id", columns=("added0",)))


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (context("nope"), InvalidSchemaError, "nope"),
        (context("id", columns=("nope",)), InvalidSchemaError, "nope"),
        (context("id", "id"), InvalidSchemaError, "join keys: column 'id' is named twice"),
        (context("id", columns=("name", "name")), InvalidSchemaError, "columns: column 'name' is named twice"),
        (context(), UnsupportedError, "expected columns to join on, found none"),
        (context("id", "x"), UnsupportedError, "column 'x' of type double cannot be joined on"),
        (context("id", is_custom_shuffle_enabled=True), InvalidRequestError, "a custom shuffle has a number of tasks"),
    ],
)
def test_joins_that_cannot_be_are_errors(asked, error, text, make_keyed):
    with pytest.raises(error, match=text):
        source_of(make_keyed(), "full").lookup_function(asked)


def test_sources_that_cannot_be_are_errors(make_keyed, lookup_cluster):
    table, other = make_keyed(), make_keyed()
    info = table.connection.table_info(table.history.path)
    with pytest.raises(InvalidRequestError, match="expected mode auto, full, remote, found 'eager'"):
        FlussLookupSource(table.connection, info, mode="eager")
    with pytest.raises(InvalidPropertyError, match=r"did you mean 'lookup.cache.max-rows'"):
        FlussLookupSource(table.connection, info, options={"lookup.cache.max-row": 5})
    with pytest.raises(InvalidPropertyError, match="expected a whole number"):
        FlussLookupSource(table.connection, info, options={"lookup.cache.max-rows": "many"})
    with pytest.raises(InvalidRequestError, match="expected a read point of it"):
        FlussLookupSource(table.connection, info, point=other.reader().read_point())
    log = make_keyed("log")
    with pytest.raises(UnsupportedError, match="has no primary key: its rows cannot be looked up"):
        source_of(log, "auto")


def test_a_point_of_another_table_is_refused_in_tasks(make_keyed):
    table, other = make_keyed(), make_keyed()
    for mode in ("full", "remote"):
        function = planned(table, mode, ("id",))
        with pytest.raises(InvalidRequestError, match="expected a read point of it"), opened(function, other.keep()):
            pass


def test_tasks_of_another_number_are_refused(make_keyed):
    table = make_keyed()
    for mode in ("full", "remote"):
        function, moment = planned(table, mode, ("id",), tasks=2), table.keep()
        with (
            pytest.raises(InvalidRequestError, match="expected one of 2 tasks, found one of 3"),
            opened(function, moment, tasks=3),
        ):
            pass
