"""Lines that are Python whatever the names and values are."""

import ast
import datetime as dt

import pytest

from fluss_lab.explorer.texts import code_lines, lake_code
from fluss_lab.explorer.texts.code_lines import record_code
from fluss_lab.explorer.texts.typed_values import read_text
from fluss_lab.model import TablePath
from fluss_lab.model.types import DataType
from tests.unit.display.card_rules import HOSTILE, IDS
from tests.unit.explorer.record_texts import GOOD

PATH = TablePath("nyc", "flights")


@pytest.mark.parametrize("text", [each for each in HOSTILE if "\ud800" not in each], ids=IDS[:-4] + IDS[-3:])
def test_any_text_is_one_literal(text):
    literal = code_lines.python_literal(text)
    assert ast.literal_eval(literal) == text
    assert literal.isprintable()


@pytest.mark.parametrize(("name", "variable"), [("flights", "flights"), ("class", "class_table"), ("lab", "lab_table")])
def test_a_name_that_python_or_the_lines_need_is_not_taken(name, variable):
    path = TablePath("nyc", name)
    assert code_lines.variable(path) == variable
    ast.parse("\n".join(code_lines.buckets_code(path)))


def blocks(path):
    """Return what every function gives that makes lines, by its name."""
    code, lake = code_lines, lake_code
    spans = {(None, bucket): (0, 5) for bucket in range(5)}
    values = [(read_text(text, kind, dt.UTC), kind) for kind, text in typed()]
    return {
        "buckets_code": [code.buckets_code(path)],
        "rows_code": [code.rows_code(path, ["id"], "id > 1", "now")],
        "row_code": [code.row_code(path, None, 0, 7, ["id"], is_held=is_held) for is_held in (True, False)],
        "fresh_code": [code.fresh_code(path, "2013-01", 0, 7, ["id"])],
        "changes_code": [code.changes_code(path, spans, None), code.changes_code(path, {}, None, net=True, first=5)],
        "tail_code": [code.tail_code(path, None)],
        "rounds_code": [code.rounds_code(path)],
        "tier_code": [code.tier_code(path)],
        "compact_code": [code.compact_code(path)],
        "lake_code": [code.lake_code(path)],
        "schema_code": [code.schema_code(path)],
        "empty_lab_code": [code.empty_lab_code()],
        "jobs_code": [code.jobs_code(None, 5), code.jobs_code("refresh", 5)],
        "first_job_code": [code.first_job_code()],
        "run_code": [code.run_code("r1")],
        "job_action_code": [code.job_action_code(action, "refresh") for action in ("start", "rerun", "pause")],
        "health_code": [code.health_code()],
        "enable_code": [lake.enable_code(path)],
        "snapshots_code": [lake.snapshots_code(path)],
        "files_code": [lake.files_code(path, 1)],
        "manifests_code": [lake.manifests_code(path, 1, is_newest=is_newest) for is_newest in (True, False)],
        "partitions_code": [lake.partitions_code(path, 1)],
        "schemas_code": [lake.schemas_code(path)],
        "refs_code": [lake.refs_code(path)],
        "diff_code": [lake.diff_code(path, "1 hour ago", None, "added", ["id"])],
        "record_code": [record_code(path, "append", {"x": value}) for value in values],
    }


def typed():
    """Return types and texts of values of them."""
    return [(DataType.parse(kind), text) for kind, texts in GOOD.items() for text in texts]


def names_in(block):
    """Return the names that lines bind or use, as far as they are no attributes of others."""
    found = set()
    for node in ast.walk(ast.parse("\n".join(block))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def test_no_table_takes_a_name_that_lines_bind_or_use():
    """A table called as one has another name in its lines, all of which are looked at here."""
    made = blocks(PATH)
    makers = {name for module in (code_lines, lake_code) for name in vars(module) if name.endswith("_code")}
    assert set(made) == makers
    used = set().union(*(names_in(block) for each in made.values() for block in each)) - {"flights"}
    assert used >= {"lab", "place", "lag", "dt", "Decimal", "float", "pa", "lake", "run"}
    assert {name: code_lines.variable(TablePath("nyc", name)) for name in used} == {
        name: f"{name}_table" for name in used
    }


def test_only_what_is_set_stands_in_a_line():
    assert code_lines.rows_code(PATH, None, "", None)[1] == "flights.scan(with_source=True).to_pandas()"
    full = code_lines.rows_code(PATH, ["id", "dest"], "dest = 'ATL'", 8295)[1]
    assert (
        full
        == """flights.scan(columns=["id", "dest"], where="dest = 'ATL'", as_of=8295, with_source=True).to_pandas()"""
    )
    assert 'as_of="yesterday"' in code_lines.rows_code(PATH, None, "", "yesterday")[1]
