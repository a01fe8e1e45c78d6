"""The table of features: each row names a test that is there."""

import ast
import re

from tests.architecture.laws import ROOT

ROW = re.compile(r"^\| (\d+) \|.*\| `([\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_every_feature_names_a_test_that_is_there():
    rows = ROW.findall((ROOT / "docs" / "features.md").read_text())
    assert [int(number) for number, _, _ in rows] == list(range(1, 33))
    missing = [f"{path}::{name}" for _, path, name in rows if name not in names_in(path)]
    assert not missing


def names_in(path):
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
