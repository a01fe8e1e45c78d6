"""The codec of JSON: its bytes are those of `json.dumps`, it coerces nothing, and its errors name the place."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from fluss_lab.errors import CorruptDataError, FlussError, InvalidRequestError, UnsupportedError
from fluss_lab.model import TablePath
from fluss_lab.model.json_codec import Whole, decode, encode, from_plain, to_plain

#: Threads that read types of their own for the first time; what is not locked ends the process within ten of them.
_AT_ONCE = """
import sys, threading
import msgspec
from fluss_lab.model import make_schema
from fluss_lab.model.json_codec import decode, from_plain
from fluss_lab.model.values.plain_rows import PlainRows

sys.setswitchinterval(1e-6)

def together(work):
    begin = threading.Barrier(4)
    def run():
        begin.wait()
        work()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

for number in range(100):
    Inner = msgspec.defstruct("Inner", [("a", int), ("b", "list[int]", []), ("c", "dict[str, int]", {})])
    Outer = msgspec.defstruct("Outer", [("i", Inner), ("j", list[Inner]), ("k", Inner | None, None)], module=__name__)
    plain = {"i": {"a": 1}, "j": [{"a": 2}]}
    together(lambda: decode(Outer, msgspec.json.encode(plain), "it"))
    Inner = msgspec.defstruct("Inner", [("a", int), ("b", "list[int]", []), ("c", "dict[str, int]", {})])
    Outer = msgspec.defstruct("Outer", [("i", Inner), ("j", list[Inner]), ("k", Inner | None, None)], module=__name__)
    together(lambda: from_plain(Outer, plain, "it"))
    rows = PlainRows.of(make_schema({"a": "int", "b": "string", "c": "double", "d": "timestamp(6)"}))
    together(lambda: rows.look_at({"a": 1, "b": "x"}))
print("done")
"""


def test_threads_may_read_a_type_for_the_first_time_together():
    done = subprocess.run([sys.executable, "-c", _AT_ONCE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str | None
    start: Whole


@dataclass(frozen=True, slots=True)
class Note:
    number: int
    text: str = ""
    marks: tuple[Mark, ...] = ()
    share: float = 0.0
    more: Any = field(default_factory=dict)


NOTES = [
    Note(1),
    Note(-(2**70), 'ä\n"\\/\x00\x7f\u2028😀', (Mark("p$ä", 2**63 - 1), Mark(None, 0)), 0.25, {"a": [1, {}, []]}),
    Note(0, "{: ,}", more=MappingProxyType({"é": None})),
]


@pytest.mark.parametrize("note", NOTES)
def test_bytes_are_those_of_json_and_come_back(note):
    plain = to_plain(note)
    assert plain["marks"] == tuple([mark.name, mark.start] for mark in note.marks)
    assert encode(note) == json.dumps(plain, separators=(",", ":")).encode()
    assert encode(note, indent=0) == json.dumps(plain).encode()
    assert encode(note, indent=1) == json.dumps(plain, indent=1).encode()
    assert encode(note, version=3, indent=0) == json.dumps({"version": 3} | plain).encode()
    assert decode(Note, encode(note, version=3), "a note", version=3) == note
    assert from_plain(Note, json.loads(encode(note)), "a note") == note


def test_an_object_without_members_has_its_version():
    assert encode({}, version=1) == b'{"version":1}'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"number": "1"}', r"Expected `int`, got `str` - at `\$.number`"),
        ('{"number": true}', r"Expected `int`, got `bool` - at `\$.number`"),
        ('{"number": 1.0}', r"Expected `int`, got `float` - at `\$.number`"),
        ('{"number": null}', r"Expected `int`, got `null` - at `\$.number`"),
        ('{"number": 1, "share": NaN}', "malformed"),
        ('{"number": 1, "marks": [["a", -1]]}', r"Expected `int` >= 0 - at `\$.marks\[0\]\[1\]`"),
        ('{"number": 1, "marks": [["a", 9223372036854775808]]}', r"at `\$.marks\[0\]\[1\]`"),
        ('{"number": 1, "marks": [["a"]]}', r"at least length 2, got 1 - at `\$.marks\[0\]`"),
        ('{"number": 1, "marks": [["a", 1, 1]]}', "at most length 2"),
        ("{}", "missing required field `number`"),
        ("[]", "Expected `object`, got `array`"),
        ("", "truncated"),
        ('{"number": 1} {}', "trailing"),
        (b"\xff", "malformed"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        ('{"number": 1, "more": ' + "[" * 100_000, "recursion"),
        ('{"number": 1, "text": "\\ud800"}', "truncated"),
    ],
)
def test_what_is_not_of_the_type_is_refused_with_its_place(data, message):
    with pytest.raises(InvalidRequestError, match=f"^the note: .*{message}.*; write another$") as refused:
        decode(Note, data, "the note", error=InvalidRequestError, remedy="write another")
    assert "found" not in str(refused.value)
    with pytest.raises(CorruptDataError, match="found "):
        decode(Note, data, "the note", shown=True)


def test_only_the_begin_of_the_data_is_shown():
    with pytest.raises(CorruptDataError) as refused:
        decode(Note, '{"number": "' + "x" * 10_000, "the note", shown=True)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("version", "error", "message"),
    [
        (b"3", UnsupportedError, "newer version of fluss_lab .format 3, this one reads up to 2"),
        (b"1", CorruptDataError, "expected version 2, found 1; remedy"),
        (b"true", CorruptDataError, "expected version 2, found True; remedy"),
        (b'"2"', CorruptDataError, "expected version 2, found '2'; remedy"),
        (b"null", CorruptDataError, "expected version 2, found None; remedy"),
    ],
)
def test_another_version_is_refused_before_all_else(version, error, message):
    data = b'{"new": {}, "version": %s}' % version
    with pytest.raises(error, match=f"^the note: .*{message}"):
        decode(Note, data, "the note", version=2, remedy="remedy")
    with pytest.raises(
        CorruptDataError, match=r"the note: expected version 2, found .*; driver and workers run different"
    ):
        decode(Note, data, "the note", version=2, peer=True)


def test_a_peer_says_every_member():
    data = encode(NOTES[0], version=1)
    assert decode(Note, data, "the note", version=1, peer=True) == NOTES[0]
    with pytest.raises(CorruptDataError, match="the note: Object missing required field `marks`"):
        decode(Note, data.replace(b'"marks":[],', b""), "the note", version=1, peer=True)


def test_an_older_version_may_be_read_too():
    for version in (2, 3):
        assert decode(Note, b'{"version":%d,"number":1}' % version, "the note", version=3, oldest=2) == Note(1)
    with pytest.raises(CorruptDataError, match="the note: expected version 2 to 3, found 1"):
        decode(Note, b'{"version":1,"number":1}', "the note", version=3, oldest=2)
    with pytest.raises(UnsupportedError, match="format 4"):
        decode(Note, b'{"version":4,"number":1}', "the note", version=3, oldest=2)


def test_checks_of_the_types_own_are_reported_with_what_it_is():
    with pytest.raises(CorruptDataError, match="the path: database name 'no name': expected a letter"):
        decode(TablePath, '{"database": "no name", "table": "t"}', "the path")


def test_values_of_other_types_travel_by_their_forms():
    forms = {FlussError: (str, {"no": UnsupportedError("no")}.__getitem__)}
    data = encode([UnsupportedError("no")], forms=forms)
    (found,) = decode(list[FlussError], data, "errors", forms=forms)
    assert (data, type(found), str(found)) == (b'["no"]', UnsupportedError, "no")
    with pytest.raises(CorruptDataError, match="errors: "):
        decode(list[FlussError], '["yes"]', "errors", forms=forms)
    with pytest.raises(TypeError, match="no JSON form of UnsupportedError"):
        encode([UnsupportedError("no")])
