"""What an executed notebook keeps of outputs: bounded, and never silently."""

import random
import re

import pytest

from fluss_lab.jobs.output_limit import (
    ERROR_PART_LENGTH_MAX,
    ERROR_PARTS_MAX,
    OutputLimit,
    join_streams,
    without_emptied,
)
from fluss_lab.jobs.run_record import SUMMARY_MIME


def message(kind, **content):
    return {"msg_type": kind, "header": {"msg_type": kind, "msg_id": "1"}, "content": content}


def line(text):
    return message("stream", name="stdout", text=text)


def said(limit, given):
    kept = limit.admit(given)
    assert kept["msg_type"] == kept["header"]["msg_type"] == "stream"
    return kept["content"]["text"]


def test_what_is_too_much_is_left_out_and_said_once_a_cell():
    limit = OutputLimit(1000)
    fits, small = line("x" * 800), line("y" * 50)
    assert limit.admit(fits) is fits
    assert said(limit, line("z" * 800)) == "... left out from here: a notebook keeps 1000 B of outputs\n"
    assert limit.admit(line("z" * 800)) is None
    assert limit.admit(small) is small, "there is room for it"
    limit.next_cell()
    assert "left out" in said(limit, message("display_data", data={"text/html": "z" * 800}, metadata={}))
    assert limit.admit(message("execute_result", data={"text/plain": "z" * 800})) is None


def test_what_takes_no_room_is_always_kept():
    limit = OutputLimit(100)
    assert "left out" in said(limit, line("x" * 200))
    for given in (
        message("display_data", data={SUMMARY_MIME: {"rows": 3}}, metadata={}),
        message("update_display_data", data={"text/plain": "x" * 200}),
        message("error", ename="E", evalue="e", traceback=["x" * 200]),
        message("status", execution_state="idle"),
        message("execute_input", code="x" * 200),
        message("comm_msg", data={"x": "y" * 200}),
    ):
        assert limit.admit(given) is given


def test_an_error_is_kept_and_cut():
    """One whose message had 100 MB made a notebook of 190 MB."""
    most = ERROR_PART_LENGTH_MAX
    given = message("error", ename="E", evalue="e" * (most + 1_234), traceback=["t" * most, *["u" * (most + 1)] * 100])
    content = OutputLimit(100).admit(given)["content"]
    assert content["ename"] == "E"
    assert content["evalue"] == "e" * most + "... 1,234 characters are left out"
    assert len(content["traceback"]) == ERROR_PARTS_MAX
    assert {len(piece) for piece in content["traceback"]} == {most + len("... 1 characters are left out")}


def stream(name, text):
    return {"output_type": "stream", "name": name, "text": text}


def test_what_a_stream_got_in_several_messages_is_in_one_piece_and_displays_keep_their_places():
    shown = {"output_type": "display_data", "data": {}}
    outputs = [stream("stdout", "a"), stream("stderr", "e"), stream("stdout", "b\n"), shown, stream("stdout", "c")]
    for _ in range(2):  # a notebook is saved while its cell is under way, too
        join_streams(outputs)
        assert outputs[3] is shown
        assert without_emptied(outputs) == [stream("stdout", "ab\nc"), stream("stderr", "e"), shown]
    outputs.append(stream("stdout", "d"))
    join_streams(outputs)
    assert outputs[0]["text"] == "ab\ncd"


@pytest.mark.parametrize("seed", range(20))
def test_carriage_returns_leave_what_nbclient_leaves(seed):
    rng = random.Random(seed)
    texts = ["".join(rng.choices("ab\r\n", k=rng.randrange(12))) for _ in range(5)]
    expected = re.sub(r".*\r(?=[^\n])", "", "".join(texts))
    at_once, one_by_one = [stream("stdout", text) for text in texts], []
    join_streams(at_once)
    for text in texts:
        one_by_one.append(stream("stdout", text))
        join_streams(one_by_one)
    assert at_once[0]["text"] == one_by_one[0]["text"] == expected


def test_a_long_line_is_joined_at_once():
    """nbclient looks from each of its characters to its end: a print of ten megabytes kept a run busy until its time limit."""
    outputs = [stream("stdout", "x" * 10_000_000), stream("stdout", "\ry")]
    join_streams(outputs)
    assert outputs[0]["text"] == "y"


def test_outputs_that_are_cleared_give_their_room_back():
    limit = OutputLimit(1000)
    for _ in range(10):
        shown = line("x" * 800)
        assert limit.admit(shown) is shown
        assert limit.admit(message("clear_output", wait=True))["msg_type"] == "clear_output"
    limit.next_cell()
    assert limit.admit(shown) is shown
