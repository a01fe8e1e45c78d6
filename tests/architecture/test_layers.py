"""The house keeps its laws, and each law catches a lawbreaker."""

import subprocess
import sys

import pytest

from tests.architecture import laws

_LAWS = {
    "floors": laws.floor_complaints,
    "strangers": laws.stranger_complaints,
    "keepers": laws.keeper_complaints,
    "durability": laws.durability_complaints,
    "safety": laws.safety_complaints,
    "schemes": laws.scheme_complaints,
    "sizes": laws.size_complaints,
    "names": laws.name_complaints,
    "command line": laws.command_line_complaints,
}


def _report(complaints):
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("law", _LAWS)
def test_every_module_keeps_the_law(law):
    modules = laws.modules("fluss_lab")
    assert modules
    _report([each for module, source, _ in modules for each in _LAWS[law](source, module)])


@pytest.mark.parametrize("law", [laws.folder_complaints, laws.circle_complaints])
def test_the_house_as_a_whole_keeps_the_law(law):
    _report(law(laws.modules("fluss_lab")))


def test_every_package_opens_with_imports_and_nothing_else():
    _report([each for module, source, package in laws.modules("fluss_lab") if package
             for each in laws.init_complaints(source, module)])  # fmt: skip


def test_every_folder_of_modules_is_a_package():
    """A folder without ``__init__`` works in a checkout and is missing in what is installed."""
    folders = {path.parent for path in (laws.ROOT / "fluss_lab").rglob("*.py")}
    assert sorted(folder for folder in folders if not (folder / "__init__.py").exists()) == []


@pytest.mark.parametrize("folder", ["benchmarks", "tools"])
def test_what_stands_around_the_house_can_be_read_too(folder):
    _report([each for module, source, _ in laws.modules(folder)
             for law in ("safety", "sizes") for each in _LAWS[law](source, module)])  # fmt: skip


def test_no_test_sleeps():
    _report([each for module, source, _ in laws.modules("tests") for each in laws.sleep_complaints(source, module)])


def test_no_test_draws_without_a_seed():
    _report([each for module, source, _ in laws.modules("tests") for each in laws.chance_complaints(source, module)])


_BROKEN = [
    ("command line", "fluss_lab.workbench.lab", "from fluss_lab.cli.commands import main"),
    ("command line", "fluss_lab.testing.clusters", "def f():\n    import fluss_lab.cli"),
    ("floors", "fluss_lab.model.schema", "from fluss_lab.rpc import channel"),
    ("floors", "fluss_lab.model.schema", "import fluss_lab.rpc.channel"),
    ("floors", "fluss_lab.lake.iceberg.commit", "from fluss_lab import tiering"),
    ("floors", "fluss_lab.read.union.read_plan", "def f():\n    from fluss_lab.workbench import Lab"),
    (
        "floors",
        "fluss_lab.read.union.read_plan",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fluss_lab.cli",
    ),
    ("floors", "fluss_lab.read.union.read_plan", "from ...workbench.lab import Lab"),
    ("floors", "fluss_lab.read.union.read_plan", "import importlib\nimportlib.import_module('fluss_lab.workbench')"),
    ("floors", "fluss_lab.workbench.lab", "import fluss_lab as fl"),
    ("floors", "fluss_lab.workbench.lab", "from fluss_lab import Lab"),
    ("floors", "fluss_lab.attic.chest", ""),
    ("strangers", "fluss_lab.server.coordinator.tables", "from fluss_lab.lake import LakeCatalog"),
    ("strangers", "fluss_lab.server.tablet.log.bucket_log", "import fluss_lab.client"),
    ("strangers", "fluss_lab.client.log.log_scanner", "from fluss_lab.lake.iceberg import source"),
    ("strangers", "fluss_lab.lake.iceberg.read.row_source", "from fluss_lab.client import Connection"),
    ("keepers", "fluss_lab.workbench.lab", "import pyspark.sql"),
    ("keepers", "fluss_lab.workbench.lab", "def f():\n    import anywidget"),
    ("keepers", "fluss_lab.tiering.round.tiering_round", "def f():\n    from pyspark import SparkContext"),
    ("keepers", "fluss_lab.workbench.lab", "from pyiceberg.table import Table"),
    ("keepers", "fluss_lab.lake.format_interfaces", "from pyiceberg.expressions import EqualTo"),
    ("keepers", "fluss_lab.read.union.read_plan", "from pyiceberg.catalog import load_catalog"),
    ("durability", "fluss_lab.server.tablet.log.bucket_log", "import os\nos.fsync(3)"),
    ("durability", "fluss_lab.server.tablet.log.bucket_log", "from os import replace"),
    ("durability", "fluss_lab.server.tablet.log.bucket_log", "path.replace(target)"),
    ("durability", "fluss_lab.server.tablet.log.bucket_log", "path.rename(target)"),
    ("safety", "fluss_lab.tiering.results", "import pickle"),
    ("safety", "fluss_lab.tiering.results", "from cloudpickle import loads"),
    ("safety", "fluss_lab.tiering.results", "x = eval('1')"),
    ("safety", "fluss_lab.tiering.results", "exec(text)"),
    ("safety", "fluss_lab.tiering.results", "import yaml\nyaml.load(text)"),
    ("safety", "fluss_lab.tiering.results", "np.load(path, allow_pickle=True)"),
    ("schemes", "fluss_lab.lake.iceberg.read.row_source", "if urlsplit(place).scheme == 'file': pass"),
    ("schemes", "fluss_lab.lake.iceberg.read.row_source", "is_remote = place.startswith('s3')"),
    ("schemes", "fluss_lab.lake.iceberg.read.row_source", "is_here = place.startswith(('/', 'file:'))"),
    ("schemes", "fluss_lab.lake.iceberg.read.row_source", "scheme, _, rest = place.partition(':')"),
    ("schemes", "fluss_lab.tiering.round.tiering_round", "path = place.removeprefix('file://')"),
    ("schemes", "fluss_lab.lake.iceberg.write.write_target", "where = PyArrowFileIO.parse_location(place)[0]"),
    ("sizes", "fluss_lab.model.types", "x = 1\n" * 501),
    ("sizes", "fluss_lab.model.types", "def f():\n" + "    x = 1\n" * 70),
    ("names", "fluss_lab.model.types", "def _joined(rows): ..."),
    ("names", "fluss_lab.model.types", "class C:\n    def taken(self): ..."),
    ("names", "fluss_lab.model.types", "async def written_by(writer): ..."),
    ("names", "fluss_lab.model.types", "def kept_of(snapshot): ..."),
    ("names", "fluss_lab.model.types", "def _among(values): ..."),
]

_KEPT = [
    (
        "floors",
        "fluss_lab.read.union.read_plan",
        "from fluss_lab.lake import LakeSource\nfrom fluss_lab.tiering import splits",
    ),
    ("floors", "fluss_lab", "from fluss_lab.workbench import Lab"),
    ("strangers", "fluss_lab.server.coordinator.tables", "from fluss_lab.rpc import status"),
    ("strangers", "fluss_lab.client.log.log_scanner", "from fluss_lab.lake import FlussLogSource"),
    ("keepers", "fluss_lab.spark.session.spark_session", "from pyspark.sql import SparkSession"),
    ("keepers", "fluss_lab.read.filter.filter_compiler", "from pyiceberg.expressions import parser"),
    ("keepers", "fluss_lab.workbench.lab", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
    ("durability", "fluss_lab.files", "import os\nos.replace(a, b)"),
    (
        "durability",
        "fluss_lab.model.names",
        "'a'.replace('a', 'b')\nmoment.replace(tzinfo=UTC)\ntable.rename_columns(n)",
    ),
    ("safety", "fluss_lab.model.names", "import re\nre.compile('a')\nframe.eval('a')\nyaml.safe_load(t)"),
    ("schemes", "fluss_lab.lake.iceberg.files.file_locations", "if urlsplit(place).scheme == 'file': pass"),
    ("schemes", "fluss_lab.model.names", "key.startswith('s3.')\nname.removeprefix('files')\nplace = 's3://b'"),
    ("sizes", "fluss_lab.model.types", "x = 1\n" * 500),
    ("sizes", "fluss_lab.model.types", "def f():\n" + "    x = 1\n" * 69),
    (
        "names",
        "fluss_lab.model.types",
        "def join(rows): ...\ndef damaged_buckets(): ...\ndef feed(): ...\ndef of(x): ...",
    ),
    ("names", "fluss_lab.model.types", "@property\ndef closed(self): ...\n@contextmanager\ndef locked(self): ..."),
]


@pytest.mark.parametrize(("law", "module", "source"), _BROKEN)
def test_a_lawbreaker_is_caught(law, module, source):
    assert len(_LAWS[law](source, module)) == 1


@pytest.mark.parametrize(("law", "module", "source"), _KEPT)
def test_what_is_allowed_is_let_pass(law, module, source):
    assert _LAWS[law](source, module) == []


def test_who_may_look_at_schemes_does():
    """An exception that nobody needs any more goes."""
    found = {module: source for module, source, _ in laws.modules("fluss_lab") if module in laws.SCHEME_KEEPERS}
    assert set(found) == set(laws.SCHEME_KEEPERS)
    assert [module for module, source in found.items() if not laws.scheme_lines(source)] == []


def test_a_crowded_folder_is_caught():
    crowd = [(f"fluss_lab.read.m{number}", "", False) for number in range(16)]
    assert len(laws.folder_complaints(crowd)) == 1
    assert laws.folder_complaints([*crowd[:15], ("fluss_lab.read", "", True)]) == []


def test_a_name_that_stands_twice_is_caught():
    assert len(laws.folder_complaints([("fluss_lab.read.plan", "", False), ("fluss_lab.tiering.plan", "", False)])) == 1


_TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fluss_lab.read.a"


@pytest.mark.parametrize("back", ["import fluss_lab.read.a", "def f():\n    from fluss_lab.read import a", _TYPING])
def test_an_import_circle_is_caught(back):
    house = [
        ("fluss_lab.read.a", "from fluss_lab.read.b import c", False), ("fluss_lab.read.b", back, False),
        ("fluss_lab.read.above", "import fluss_lab.read.a", False), ("fluss_lab.read.below", "", False),
    ]  # fmt: skip
    assert len(laws.circle_complaints(house)) == 2
    assert (
        laws.circle_complaints([house[0], ("fluss_lab.read.b", "import fluss_lab.read.below", False), *house[2:]]) == []
    )


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fluss_lab.rpc", "from fluss_lab.rpc import status\n__all__ = ['status']"),
        ("fluss_lab.rpc", "'''Doc.'''\nfrom fluss_lab.rpc import status"),
        ("fluss_lab.rpc", "'''Doc.'''\nfrom a import A, b\n__all__ = ['b', 'A']"),
        ("fluss_lab.rpc", "'''Doc.'''\nPORT = 9123"),
        ("fluss_lab.rpc", "'''Doc.'''\ndef __getattr__(name):\n    return 1"),
        ("fluss_lab", "'''Doc.'''\ndef helper():\n    return 1"),
    ],
)
def test_a_package_that_does_more_than_open_is_caught(module, source):
    assert len(laws.init_complaints(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fluss_lab.rpc", "'''Doc.'''"),
        ("fluss_lab.rpc", "'''Doc.'''\nfrom __future__ import annotations"),
        ("fluss_lab.rpc", "'''Doc.'''\nfrom a import B_MAX, Apple, zoo\n__all__ = ['B_MAX', 'Apple', 'zoo']"),
        ("fluss_lab", "'''Doc.'''\n_HOMES = {}\n__all__ = []\ndef __getattr__(name):\n    return 1"),
    ],
)
def test_a_package_that_opens_is_let_pass(module, source):
    assert laws.init_complaints(source, module) == []


@pytest.mark.parametrize("source", ["import time\ntime.sleep(1)", "from time import sleep"])
def test_a_sleeper_is_caught(source):
    assert len(laws.sleep_complaints(source, "tests.x")) == 1


@pytest.mark.parametrize(
    "source",
    ["os.urandom(3)", "random.SystemRandom()", "import random\nrandom.Random()", "import random\nrandom.randint(1, 2)",
     "import numpy as np\nnp.random.default_rng()"],
)  # fmt: skip
def test_who_draws_without_a_seed_is_caught(source):
    assert len(laws.chance_complaints(source, "tests.x")) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import random\nrandom.Random(7)",
        "import random\ndef test(random):\n    random.choice('ab')",
        "np.random.default_rng(7)",
    ],
)
def test_who_draws_with_a_seed_is_let_pass(source):
    assert laws.chance_complaints(source, "tests.x") == []


#: What must not be loaded by an import of the package: each takes longer than the rest together, or shows something.
_HEAVY = ("pyspark", "pandas", "ipywidgets", "papermill", "anywidget", "fluss_lab.explorer")
_LOADED = "import sys\n{}\nprint(*[name for name in {!r} if name in sys.modules])"


def _loaded(statement):
    words = [sys.executable, "-c", _LOADED.format(statement, _HEAVY)]
    return subprocess.run(words, cwd=laws.ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_import_is_light():
    assert _loaded("import fluss_lab") == []
    assert _loaded("import fluss_lab, pandas") == ["pandas"]
