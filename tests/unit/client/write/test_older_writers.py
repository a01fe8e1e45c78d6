"""Writers that were opened before columns were added to their table: what they do not know of they leave alone."""

import random

import pytest

from fluss_lab.model import TablePath

OLD = ("id", "name")


def table(make_table, **properties):
    return make_table({"id": "bigint", "name": "string"}, primary_key=["id"], buckets=1, properties=properties)


def add_columns(connection, info):
    connection.admin().alter_table(info.path, add_columns={"note": "string", "count": "int"})


def rows(connection, info, ids):
    path = TablePath(info.path.database, info.path.table)
    found = connection.lookuper(path).lookup([{"id": each} for each in ids]).to_pylist()
    return [row if row["id"] is not None else None for row in found]


def test_a_writer_of_an_older_schema_leaves_columns_alone_that_it_does_not_know(connection, make_table):
    info = table(make_table)
    with connection.upsert_writer(info.path) as old:
        old.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]).result()
        add_columns(connection, info)
        with connection.upsert_writer(info.path) as new:
            new.upsert([{"id": key, "name": "n", "note": f"n{key}", "count": key} for key in (1, 2, 3)]).result()
        old.upsert([{"id": 1, "name": "again"}, {"id": 4, "name": "d"}]).result()
        assert rows(connection, info, [1, 4]) == [
            {"id": 1, "name": "again", "note": "n1", "count": 1},
            {"id": 4, "name": "d", "note": None, "count": None},
        ]
        # The same row again changes nothing, and a row that is deleted is gone with all its columns.
        ((start, end),) = old.upsert([{"id": 1, "name": "again"}]).result().offsets[None, 0]
        assert start == end
        old.delete([{"id": 2}]).result()
        old.upsert([{"id": 2, "name": "back"}]).result()
        assert rows(connection, info, [2]) == [{"id": 2, "name": "back", "note": None, "count": None}]


@pytest.mark.parametrize("engine", ["first_row", "versioned"])
def test_merge_engines_choose_before_columns_are_kept(connection, make_table, engine):
    properties = {"table.merge-engine": engine}
    if engine == "versioned":
        properties["table.merge-engine.versioned.ver-column"] = "id2"
    info = make_table(
        {"id": "bigint", "id2": "bigint", "name": "string"}, primary_key=["id"], buckets=1, properties=properties
    )
    with connection.upsert_writer(info.path) as old:
        old.upsert([{"id": 9, "id2": 0, "name": "x"}]).result()
        add_columns(connection, info)
        with connection.upsert_writer(info.path) as new:
            new.upsert([{"id": 1, "id2": 5, "name": "new", "note": "kept", "count": 1}]).result()
        old.upsert([{"id": 1, "id2": 4, "name": "older"}]).result()
        old.upsert([{"id": 1, "id2": 6, "name": "newer"}]).result()
        expected = {"first_row": (5, "new"), "versioned": (6, "newer")}[engine]
        (found,) = rows(connection, info, [1])
        assert (found["id2"], found["name"], found["note"], found["count"]) == (*expected, "kept", 1)


def test_batches_of_an_older_schema_agree_with_a_model(connection, make_table, seed):
    """Upserts and deletes of few keys in one batch, by writers of both schemas in turns."""
    rng, info, model = random.Random(seed), table(make_table), {}
    old = connection.upsert_writer(info.path)
    old.upsert([{"id": 0, "name": "first"}]).result()
    model[0] = {"id": 0, "name": "first", "note": None, "count": None}
    add_columns(connection, info)
    new = connection.upsert_writer(info.path)
    for step in range(25):
        writer = rng.choice([old, old, new])
        for number in range(rng.randint(1, 12)):
            key = rng.randrange(6)
            if rng.random() < 0.3:
                writer.delete([{"id": key}])
                model.pop(key, None)
                continue
            row = {"id": key, "name": f"{step}.{number}"}
            if writer is new:
                row |= {"note": rng.choice([None, f"note {step}"]), "count": rng.randrange(9)}
            writer.upsert([row])
            model[key] = {"note": None, "count": None, **({} if writer is new else model.get(key, {})), **row}
        writer.flush()
        found = rows(connection, info, range(6))
        assert found == [model.get(key) and {name: model[key][name] for name in found_names()} for key in range(6)]
    old.close()
    new.close()


def found_names():
    return (*OLD, "note", "count")
