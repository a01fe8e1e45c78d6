"""An explorer's model asked as its view asks it."""

import itertools
import json

from fluss_lab.explorer.explorer_answers import ANSWER_BYTES_MAX
from fluss_lab.explorer.explorer_requests import parse_request

_numbers = itertools.count(1)


def request(kind, slot=None, **body):
    return parse_request({"kind": kind, "slot": slot or kind, "seq": next(_numbers), **body})


def answers(model, kind, **body):
    """Return every answer to a request; each is JSON of bounded size."""
    found = [each for each in model.steps(request(kind, **body)) if each is not None]
    assert all(len(json.dumps(each, ensure_ascii=False).encode()) <= ANSWER_BYTES_MAX for each in found)
    return found


def ask(model, kind, **body):
    """Return the last answer to a request, which is no error."""
    found = answers(model, kind, **body)[-1]
    assert "error" not in found, found
    return found


def refused(model, kind, **body):
    """Return the error that a request is answered with."""
    return answers(model, kind, **body)[-1]["error"]


def run(answer, lab):
    """Run the lines of an answer; return what the last one gives."""
    *before, last = answer["code"]
    names = {"lab": lab}
    exec("\n".join(before), names)
    return eval(last, names)
