"""The channel of a view, run by node: what it takes of the messages of a widget, and what it says when the kernel is gone."""

import json
import shutil
import subprocess
from itertools import pairwise

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
    pauses, channel = (
        (ROOT / "fluss_lab/explorer/view" / name).read_text() for name in ("parts/pauses.js", "channel.js")
    )
    module = "".join(line for line in f"{pauses}{channel}".splitlines(True) if not line.startswith("import "))
    text = f"{module.replace('export ', '')}{SETTING}{script}"
    done = subprocess.run([node, "--input-type=module"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_view_of_a_widget_takes_its_own_answers():
    found = run("""
    one.ask("page", "page", {}, (answer) => seen.push(["one", answer.text]));
    two.ask("page", "page", {}, (answer) => seen.push(["two", answer.text]));
    for (const { slot, seq, view } of [...sent].reverse()) hear("msg:custom", { slot, seq, view, number: 1, text: view === one.view ? "for one" : "for two" });
    hear("msg:custom", { slot: "page", seq: 1, number: 1, text: "for nobody" });
    console.log(JSON.stringify({ seen, seqs: sent.map(({ seq }) => seq) }));
    """)
    assert found == {"seen": [["two", "for two"], ["one", "for one"]], "seqs": [1, 1]}


def test_only_the_newest_question_of_a_slot_is_answered():
    found = run("""
    for (const n of [1, 2]) one.ask("page", "page", {}, () => seen.push(n));
    for (const { slot, seq, view } of sent) hear("msg:custom", { slot, seq, view, number: seq });
    one.ask("count", "count", {}, () => seen.push("dropped"));
    one.drop("count");
    hear("msg:custom", { ...sent.at(-1), number: 3 });
    console.log(JSON.stringify(seen));
    """)
    assert found == [2]


def test_a_view_that_closes_says_so_and_hears_nothing_more():
    found = run("""
    one.ask("page", "page", {}, () => seen.push("one"));
    one.close();
    hear("msg:custom", { ...sent[0], number: 1 });
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
    hear("msg:custom", {{ ...sent.at(-1), number: 1 }});
    seen.push(one.hasEnded);
    one.close();
    console.log(JSON.stringify(seen));
    """)
    assert found == [False, True, False]


#: Time goes on by hand: every quarter of a second a view looks whether it asks again, until it has asked so often.
CLOCK = """
let now = 0;
Date.now = () => now;
const pass = (seconds) => { for (let n = 0; n < 4 * seconds; n++) { now += 250; one.askAgain(); } };
const answer = (number, more = {}) => hear("msg:custom", { ...sent[0], number, ...more }), end = (last) => hear("msg:custom", { ...sent[0], last });
one.ask("page", "page", { first: 7 }, ({ number }) => seen.push(number));
"""


@pytest.mark.parametrize(
    ("reported", "times", "seen"),
    [
        ("pass(70)", [5, 15, 35], []),  # after 5 s, then 10, 20, 40
        ("answer(1); pass(14)", [5], [1]),  # the end is missing
        ("end(1); pass(14)", [5], []),  # the only answer is missing
        ("answer(1); end(1); pass(300)", [], [1]),
        ("end(null); pass(300)", [], []),  # it had none
        ("answer(1); end(2); pass(14)", [5], [1]),  # the last is missing
        ("answer(2); end(2); pass(300)", [], [2]),  # the first is, which is no matter
        ("answer(0, { last: 0, error: {} }); pass(300)", [], [0]),
        ("pass(4); answer(1); pass(4); answer(2); pass(4); answer(3); end(3); pass(300)", [], [1, 2, 3]),  # it goes on
        ("answer(1); end(2); pass(6); answer(3); answer(4); end(4); pass(300)", [5], [1, 3, 4]),  # asked again, whole
        ("answer(2); pass(6); end(4); pass(10)", [5, 16], [2]),  # of the second time nothing but the end
        ("answer(1); end(1); answer(2); end(2); pass(300)", [], [1]),  # an answer to the second of two
        ("pass(8); one.drop('page'); pass(300)", [5], []),
        ("hear('comm_live_update'); pass(300)", [], []),
    ],
)
def test_what_was_not_answered_whole_is_asked_again_as_it_was(reported, times, seen):
    found = run(f"""{CLOCK}
    const send = model.send, times = [];
    model.send = (message) => {{ times.push(now / 1000); send(message); }};
    {reported};
    console.log(JSON.stringify({{ seen, times, same: new Set(sent.map((each) => JSON.stringify(each))).size }}));
    """)
    assert (found["times"][:3], found["seen"], found["same"]) == (times, seen, 1)
    assert len(found["times"]) <= 4


def test_a_question_is_asked_again_at_least_every_minute():
    found = run(f"""{CLOCK}
    const times = [];
    model.send = () => times.push(now / 1000);
    pass(600);
    console.log(JSON.stringify(times));
    """)
    assert found[:5] == [5, 15, 35, 75, 135]
    assert all(later - earlier == 60 for earlier, later in pairwise(found[4:]))
