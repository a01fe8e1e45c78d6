"""The channel of a view, run by node: what it takes of the messages of a widget, and what it says when the kernel is gone."""

import json
import shutil
import subprocess

import pytest

from tests.architecture.laws import ROOT

#: Two views of one widget, and the model that a front end gives them: it brings every message to both.
SETTING = """
const handlers = new Map(), sent = [], seen = [];
let isGone = false;
const model = {
  on: (name, each) => handlers.set(name, [...(handlers.get(name) || []), each]),
  off: (name, each) => handlers.set(name, (handlers.get(name) || []).filter((other) => other !== each)),
  send: (message) => {
    if (isGone) throw new Error("Cannot send");
    sent.push(message);
  },
};
const hear = (name, message) => (handlers.get(name) || []).forEach((each) => each(message));
const one = new Channel(model), two = new Channel(model);
"""


def run(script):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here to run JavaScript; the browser's tests do it")
    channel = (ROOT / "fluss_lab/explorer/view/channel.js").read_text().replace("export class", "class")
    text = f"{channel}{SETTING}{script}"
    done = subprocess.run([node, "--input-type=module"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_view_of_a_widget_takes_its_own_answers():
    found = run("""
    one.ask("page", "page", {}, (answer) => seen.push(["one", answer.text]));
    two.ask("page", "page", {}, (answer) => seen.push(["two", answer.text]));
    for (const { slot, seq, view } of [...sent].reverse()) hear("msg:custom", { slot, seq, view, text: view === one.view ? "for one" : "for two" });
    hear("msg:custom", { slot: "page", seq: 1, text: "for nobody" });
    console.log(JSON.stringify({ seen, seqs: sent.map(({ seq }) => seq) }));
    """)
    assert found == {"seen": [["two", "for two"], ["one", "for one"]], "seqs": [1, 1]}


def test_only_the_newest_question_of_a_slot_is_answered():
    found = run("""
    for (const n of [1, 2]) one.ask("page", "page", {}, () => seen.push(n));
    for (const { slot, seq, view } of sent) hear("msg:custom", { slot, seq, view });
    one.ask("count", "count", {}, () => seen.push("dropped"));
    one.drop("count");
    hear("msg:custom", sent.at(-1));
    console.log(JSON.stringify(seen));
    """)
    assert found == [2]


def test_a_view_that_closes_says_so_and_hears_nothing_more():
    found = run("""
    one.ask("page", "page", {}, () => seen.push("one"));
    one.close();
    hear("msg:custom", sent[0]);
    console.log(JSON.stringify({ seen, last: sent.at(-1).kind, same: sent[0].view === sent[1].view, left: handlers.get("msg:custom").length }));
    """)
    assert found == {"seen": [], "last": "leave", "same": True, "left": 1}


@pytest.mark.parametrize("end", ['hear("comm_live_update")', "isGone = true"])
def test_a_kernel_that_is_gone_is_noticed_and_one_that_answers_is_there(end):
    found = run(f"""
    seen.push(one.hasEnded);
    {end};
    one.ask("page", "page", {{}}, () => 0);
    seen.push(one.hasEnded);
    isGone = false;
    one.ask("page", "page", {{}}, () => 0);
    hear("msg:custom", sent.at(-1));
    seen.push(one.hasEnded);
    one.close();
    console.log(JSON.stringify(seen));
    """)
    assert found == [False, True, False]
