"""What acts in the explorer, rounds and records, in a real JupyterLab in a headless browser."""

import os
from pathlib import Path

import pytest

from tests.notebooks.jupyterlab_server import FLAWS, run_page, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")

LAB = """
import threading, time
import fluss_lab as fl
from fluss_lab.errors import ForeignCommitError, TieringCancelledError
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TaskNews, TaskResult
from fluss_lab.workbench.lake_upkeep import LakeUpkeep

class Slow(LocalTieringExecutor):
    # A task in four seconds, so that a round can be watched; without Spark, which takes longer to start than a test should.
    def run(self, tasks, progress=None):
        results, news = [], []
        for at, task in enumerate(tasks):
            for _ in range(40):
                time.sleep(0.1)
                if self._cancelled.is_set():
                    self._cancelled.clear()
                    raise TieringCancelledError("tiering tasks: cancelled")
            results += super().run([task])
            done = TaskResult.from_bytes(results[-1])
            news.append(TaskNews(at, done.rows + done.events, done.size_bytes))
            progress and progress(at + 1, len(tasks), list(news))
        return results

class Failing(LocalTieringExecutor):
    def run(self, tasks, progress=None):
        raise ForeignCommitError("lake table shop.broken: snapshot 6614402177150902218 (overwrite, not by fluss_lab) removed 412 rows. " * 3)

def tier(table, executor):
    run_round(lab.connection, lab.lake_storage(), executor, table_id=table.info.table_id)

LakeUpkeep._executor = lambda _table: Slow()
lab = fl.Lab.open("acts-NAME", config={"server.grace": "200ms"})
lab.create_database("shop")
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s"}
IMAGE = "<img src=x onerror='window.wronged=1'>"
clicks = lab.create_table("shop.clicks", {"id": "bigint", "page": "string"}, buckets=2, bucket_key=["id"], properties=LAKE)
for turn in range(3):
    clicks.append([{"id": n, "page": "/"} for n in range(100 * (turn + 1))])
    tier(clicks, LocalTieringExecutor())
clicks.append([{"id": n, "page": "/late"} for n in range(500)])
broken = lab.create_table("shop.broken", {"id": "bigint"}, properties=LAKE)
broken.append([{"id": 1}])
for _ in range(2):
    try:
        tier(broken, Failing())
    except ForeignCommitError:
        pass
planes = lab.create_table("shop.planes", {"tailnum": "string", "seats": "int", "model": "string", "engine": "string"}, primary_key=["tailnum"], buckets=2, properties=LAKE)
planes.upsert([{"tailnum": f"N{n}", "seats": n, "model": "A321-231", "engine": "Turbo-fan"} for n in range(20)])
notes = lab.create_table("shop.notes", {"id": "bigint", "author": "string", "text": "string", "score": "double"}, primary_key=["id"], comment=IMAGE)
notes.upsert([{"id": 1, "author": IMAGE, "text": "</td><script>window.wronged=2</script>"}])
every = lab.create_table("shop.every", {
    "a_boolean": "boolean", "a_tinyint": "tinyint", "a_smallint": "smallint", "an_int": "int", "a_bigint": "bigint", "a_float": "float", "a_double": "double",
    "a_decimal": "decimal(10, 2)", "a_string": "string", "a_char": "char(3)", "a_bytes": "bytes", "a_binary": "binary(2)", "a_date": "date", "a_time": "time(3)",
    "a_timestamp": "timestamp(6)", "a_moment": "timestamp_ltz(6)", "an_array": "array<int>", "a_map": "map<string, double>", "a_row": "row<a int, b string>"})
lab.create_table("shop.wide", {f"signal_{n:03}_{'x' * (n % 90)}": "double" for n in range(200)})
"""
CELLS = [LAB, 'lab.explore("shop.clicks")', 'lab.explore("shop.clicks", read_only=True)']


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, lab_place, tmp_path_factory):
    url, folder = lab_place
    cells = [cell.replace("NAME", request.param) for cell in CELLS]
    name = write_notebook(Path(folder) / f"acts-{request.param}.ipynb", cells)
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    return run_page("explorer_tiering_page", url, name, request.param, pictures) | {"asked": request.param}


def test_nothing_goes_wrong_and_nothing_is_loaded_from_elsewhere(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["errors"] == []


def test_no_value_becomes_markup_and_every_text_can_be_read(seen):
    assert seen["markup"] == [None, 0]
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_a_round_is_begun_followed_left_and_found_again(used):
    assert used["tab"] == "Tiering"
    assert used["button"] == [True, "Tiering…"]
    assert used["code"] == "clicks.tier()"
    assert 0 <= used["rows_ms"] < 5_000, "a round keeps no read waiting"
    assert used["again"] >= 0
    assert used["ended_ms"] >= 0
    assert "Round 4: 500 rows in 2 files" in used["report"]
    assert used["rounds"] == 4


def test_a_round_is_cancelled_and_the_tail_follows(used):
    assert used["appended"] == 'clicks.append([{"id": 7, "page": None}])'
    assert "nothing of it is in the lake" in used["cancelled"]
    assert "cancelled" in used["last"]
    assert used["tail"].startswith("Following")


def test_the_lake_is_compacted_from_its_screen(used):
    waited, is_disabled = used["compacting"]
    assert waited >= 0
    assert is_disabled, "one action of a table at a time"
    text, is_disabled, _code = used["compacted"]
    assert " became " in text
    assert not is_disabled


def test_a_record_is_checked_upserted_and_deleted(used):
    status, error, focus = used["wrong"]
    assert status == "1 field does not fit"
    assert error.endswith('found "5O"')
    assert focus == "seats", "the first wrong field has the focus"
    assert used["changed"].split() == ["2", "50"]
    status, code = used["upserted"]
    assert status.startswith("Acknowledged in ")
    assert "bucket " in status
    assert code == 'planes.upsert([{"tailnum": "N2", "seats": 50, "model": None, "engine": None}])'
    assert used["partial"] == 'planes.upsert([{"tailnum": "N2", "engine": ""}], columns=["tailnum", "engine"])'
    assert used["deleted"] == 'planes.delete([{"tailnum": "N2"}])'
    assert used["alt"] == "Tiering"
    assert used["cells"] == 3, "no key reaches the notebook's own shortcuts"


def test_an_explorer_that_only_reads_shows_nothing_that_writes(used):
    assert "Tiering" in used["reader_tabs"]
    assert "Write" not in used["reader_tabs"]
    assert used["reader_buttons"] == ["Tail"]
