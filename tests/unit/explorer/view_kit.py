"""The explorer's view run by node: all of its modules, on a page without a browser (`small_page.js`), with answers that a test gives."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fluss_lab.explorer.view_script import view_script

PAGE = Path(__file__).with_name("small_page.js")
#: Answers about a lab with one table, as a model gives them.
ANSWERS = """
const TREE = { lab: "lab", zone: "UTC", offsets: [[0, 0]], databases: [{ name: "shop", tables: [{ path: "shop.flights", kind: "pk", rows: "5", state: "ok" }] }],
  servers: { ok: true, text: "1 server" }, code: [], now_ms: Date.now(), jobs: null, findings: null };
const HEAD = { path: "shop.flights", table_id: "1", schema_id: 1, kind: "pk", key: ["id"], state: "ok", trouble: null, rows: "5", lake_rows: "0", log_records: "5",
  lag_records: "5", lag_complete: true, lag_ms: 0, freshness_ms: 1000, tiering: null, last_round_ms: null, lake_enabled: true, buckets: 1, partitions: null, now_ms: Date.now(), action: null };
const column = (name, kind) => ({ name, type: kind, kind, role: "", comment: null });
const SCHEMA = { columns: [column("id", "number"), column("text", "text")], total: 2, masked: 0, comment: null, properties: [], schema_id: 1 };
const BUCKETS = { rows: [[null, 0, "0", "0", "5", "5", null, null, 10, 1, null]], summed: false, total: 1, in_lake: true, code: [], now_ms: Date.now() };
/** Records of the changelog, by offset from one on. */
const records = (first, count) => {
  const all = [...Array(count).keys()].map((n) => first + n);
  return { columns: ["id", "text"], types: all.map(() => "+A"), rows: all.map((n) => [null, 0, String(n), Date.now() + n]), times: all.map((n) => `2026-07-02 09:00:00.${n}`),
    cells: all.map((n) => [String(n), "text"]), cut: [], source: "g".repeat(count), pairs: [] };
};
const CHANGES = { ...records(10, 5), window: "w1", kept: 5, records: "20", older: true, newer: true, code: ["changes"] };
const tail = (first, count, more) => ({ ...records(first, count), skipped: 0, total: first + count, rate: 1, held: 0, limit: 10000, state: "following", ...more });
const PAGE = { point: { name: "p1", moment_ms: Date.now(), snapshot_id: null, table_id: "1", schema_id: 1, records: "5" }, from: 0, columns: ["id", "text"], code: ["page"], total: 2, at_least: 2,
  cells: [["1", "a"], ["2", "b"]], cut: [], rows: [[null, 0, "0", Date.now()], [null, 0, "1", Date.now()]], source: "gg" };
const LAKE = { enabled: true, snapshots: [["7", Date.now(), "append", true, "5", "1", "5", "1", "0", []]], older: 0, newer: 0, held: 1, expired: 0, code: ["lake"] };
const NO_ROWS = { ...PAGE, total: 0, at_least: 0, cells: [], rows: [], source: "" };
const AWAY = { error: { class: "ServerUnavailableError", text: "no server answered in 10 s", retriable: true } };
const WRONG = { error: { class: "InvalidRequestError", text: "nothing is there", retriable: false } };
"""
#: Opens the explorer on one screen of the table, and answers what it asks of the table itself.
OPENED = """
model.set("saved", JSON.stringify({ table: "shop.flights", tab: TAB }));
const explorer = new Explorer(model, document.body), found = [];
const screen = () => explorer.screens[TAB], polled = (head = HEAD) => {
  explorer.poll();
  tell("tree", TREE);
  tell("head", head);
};
const said = () => {
  pass(40);
  return explorer.live.textContent;
};
const focused = () => document.activeElement.dataset.key || document.activeElement.localName;
tell("tree", TREE);
tell("head", HEAD);
"""


def run_view(tab, script):
    """Open a screen, run a script, and return what it has put into ``found``.

    Args:
        tab: The screen's key.
        script: JavaScript behind `OPENED`, with the names of `small_page.js`.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here to run JavaScript; the browser's tests do it")
    view = view_script().replace("export default{render};", "")
    opened = OPENED.replace("TAB", json.dumps(tab))
    text = f"{PAGE.read_text()}\n{view}\n{{{ANSWERS}{opened}{script}\nconsole.log(JSON.stringify(found));\n}}\n"
    done = subprocess.run([node, "--input-type=module"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
