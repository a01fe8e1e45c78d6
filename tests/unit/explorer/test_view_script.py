"""The view's files: joined into one script, small, and without a way to make markup of a value."""

import re
import shutil
import subprocess

import pytest

from fluss_lab.explorer.view_script import _short as view_script_module
from fluss_lab.explorer.view_script import view_script, view_style
from tests.architecture.laws import ROOT

VIEW = ROOT / "fluss_lab" / "explorer" / "view"
#: What turns text into markup or code, or reaches beyond the page.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\b|new Function"
    r"|\bfetch\(|XMLHttpRequest|WebSocket|importScripts|import\(|javascript:|https?://(?!www\.w3\.org/2000/svg)"
)
#: As it travels: three quarters of what is saved with a view. The screens were thought to take 120 kB; thirteen take more.
SIZE_MAX = 200_000
#: Strings of one line, and words with what else is no punctuation.
STRING = re.compile(r"""\"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`""")
NESTED = re.compile(r"\$\{[^}]*`")
WORD = re.compile(r"[\w$]+")


def test_nothing_makes_markup_or_code_of_a_value_and_nothing_is_loaded():
    for path in sorted(VIEW.rglob("*.*")):
        assert not FORBIDDEN.findall(path.read_text()), path.name
    assert FORBIDDEN.search("x.innerHTML = y")
    assert "@import" not in view_style()
    assert "url(" not in view_style()


def test_script_and_style_are_small():
    assert len(view_script().encode()) + len(view_style().encode()) <= SIZE_MAX


def test_every_module_is_in_the_script_once():
    script = view_script()
    assert not re.search(r"^import ", script, re.MULTILINE)
    assert re.findall(r"^export .*", script, re.MULTILINE) == ["export default{render};"]
    modules = [path.read_text() for path in sorted(VIEW.rglob("*.js"))]
    assert all(module.startswith("// ") for module in modules)
    for module in modules:
        exported = re.findall(r"^export (?:const|function|class) (\w+)", module, re.MULTILINE)
        assert all(re.search(rf"^(?:const|function|class) {name}\b", script, re.MULTILINE) for name in exported)


def test_what_travels_is_what_is_written_but_for_spaces_between_words_and_punctuation():
    for path in sorted(VIEW.rglob("*.js")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        code = [line for line in lines if line and not line.startswith(("//", "/**", "*"))]
        sent = view_script_module(path.read_text()).splitlines()
        assert len(sent) == len(code)
        for line, short in zip(code, sent, strict=True):
            assert line.count("`") % 2 == 0, (
                f"{path.name}: a template over several lines would lose its indents: {line}"
            )
            assert short.replace(" ", "") == line.replace(" ", "")
            assert WORD.findall(short) == WORD.findall(line)
            if "/" not in line and not NESTED.search(line):
                assert STRING.findall(short) == STRING.findall(line)
            else:
                assert short == line


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("const { a, b } = c ? [1] : d || !e;", "const{a,b}=c?[1]:d||!e;"),
        ("say(\" a , b \", ' \\' = ( ');", "say(\" a , b \",' \\' = ( ');"),
        ("a = b - -c + +d;", "a=b - -c + +d;"),
        ("return typeof x in y;", "return typeof x in y;"),
        ("text.replace(/ , /g, ` = `) ;", "text.replace(/ , /g, ` = `) ;"),
        ("say(` a , ${b ? c : d} `, [` = `], e);", "say(` a , ${b ? c : d} `,[` = `],e);"),
        ("say(`${a ? ` , ` : b} = `, c);", "say(`${a ? ` , ` : b} = `, c);"),
    ],
)
def test_spaces_that_part_nothing(line, short):
    assert view_script_module(line) == short


def test_the_script_can_be_read():
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here to parse JavaScript; the browser's tests do it")
    done = subprocess.run([node, "--check", "--input-type=module"], input=view_script(), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
